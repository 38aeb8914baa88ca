// Run by test_kafkajs.py: node kafkajs_scenario.js HOST:PORT. Ends with 0 if everything was as it should be.
const assert = require("assert");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
const timings = { sessionTimeout: 45000, heartbeatInterval: 300, rebalanceTimeout: 60000 };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function until(isSo, what) {
  for (let turn = 0; turn < 1200; turn++) {
    if (await isSo()) return;
    await sleep(100);
  }
  throw new Error(`it took too long: ${what}`);
}

async function reading(topic, groupId, onMessage) {
  const consumer = kafka.consumer({ groupId, ...timings });
  const owned = { count: 0 };
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    owned.count = (event.payload.memberAssignment[topic] || []).length;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommitThreshold: 1, eachMessage: onMessage });
  return { consumer, owned };
}

async function compressions(producer) {
  for (const [name, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    const topic = `js-${name}`;
    const messages = [...Array(100).keys()].map((number) => ({
      key: "k", value: `value ${number}`, headers: { a: "1" },
    }));
    await producer.send({ topic, compression, messages });
    const seen = [];
    const { consumer } = await reading(topic, `readers-${name}`, async ({ message }) => {
      assert.strictEqual(message.headers.a.toString(), "1");
      seen.push(message.value.toString());
    });
    await until(() => seen.length >= 100, name);
    await consumer.disconnect();
    assert.deepStrictEqual(seen, messages.map((one) => one.value));
  }
}

async function seekAndResume(producer, admin) {
  await admin.createTopics({ topics: [{ topic: "js-seek", numPartitions: 1 }] });
  const messages = [...Array(20).keys()].map((number) => ({ value: `${number}` }));
  await producer.send({ topic: "js-seek", messages });
  await admin.setOffsets({ groupId: "js-resume", topic: "js-seek", partitions: [{ partition: 0, offset: "15" }] });
  const seen = [];
  const first = await reading("js-seek", "js-resume", async ({ message }) => seen.push(message.offset));
  await until(() => seen.length >= 5, "resumed");
  assert.strictEqual(seen[0], "15");
  first.consumer.seek({ topic: "js-seek", partition: 0, offset: "18" });
  await until(() => seen.length >= 7, "sought");
  assert.strictEqual(seen[5], "18");
  await first.consumer.disconnect();
  const [known] = await admin.fetchOffsets({ groupId: "js-resume", topics: ["js-seek"] });
  assert.strictEqual(known.partitions[0].offset, "20");
}

async function threeMembers(producer, admin) {
  await admin.createTopics({ topics: [{ topic: "js-trio", numPartitions: 6 }] });
  const seen = [];
  const members = await Promise.all(
    [1, 2, 3].map(() => reading("js-trio", "js-trio", async ({ message }) => seen.push(message.value.toString()))),
  );
  await until(() => members.every((one) => one.owned.count === 2), "two each");
  const messages = [...Array(60).keys()].map((number) => ({ value: `${number}` }));
  await producer.send({ topic: "js-trio", messages });
  await until(() => new Set(seen).size >= 60, "sixty");
  await members.pop().consumer.disconnect();
  await until(() => members.every((one) => one.owned.count === 3), "three each");
  await Promise.all(members.map((one) => one.consumer.disconnect()));
}

async function administration(admin) {
  await admin.createTopics({ topics: [{ topic: "js-admin", numPartitions: 2, configEntries: [{ name: "retention.ms", value: "3600000" }] }] });
  assert((await admin.listTopics()).includes("js-admin"));
  await admin.createPartitions({ topicPartitions: [{ topic: "js-admin", count: 4 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: ["js-admin"] });
  assert.strictEqual(topics[0].partitions.length, 4);
  const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: "js-admin" }], includeSynonyms: false });
  const retention = resources[0].configEntries.find((one) => one.configName === "retention.ms");
  assert.strictEqual(retention.configValue, "3600000");
  await admin.alterConfigs({ resources: [{ type: 2, name: "js-admin", configEntries: [{ name: "retention.ms", value: "7200000" }] }] });
  assert((await admin.listGroups()).groups.some((one) => one.groupId === "js-resume"));
  const described = await admin.describeGroups(["js-resume"]);
  assert.strictEqual(described.groups[0].state, "Empty");
  await admin.deleteGroups(["js-resume"]);
  await admin.deleteTopics({ topics: ["js-admin"] });
  assert(!(await admin.listTopics()).includes("js-admin"));
}

async function main() {
  const producer = kafka.producer();
  const admin = kafka.admin();
  await producer.connect();
  await admin.connect();
  await compressions(producer);
  await seekAndResume(producer, admin);
  await threeMembers(producer, admin);
  await administration(admin);
  const idempotent = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await idempotent.connect();
  await idempotent.send({ topic: "js-none", messages: [{ value: "once" }] });
  await idempotent.disconnect();
  await producer.disconnect();
  await admin.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => { console.error(error); process.exit(1); },
);
