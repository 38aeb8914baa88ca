// Run by test_sasl.py: node kafkajs_sasl.js HOST:PORT CA_FILE MECHANISM USER SECRET TOPIC. Ends with 0 if a message went in and out.
const assert = require("assert");
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [broker, authority, mechanism, username, password, topic] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [broker],
  ssl: { ca: [fs.readFileSync(authority, "utf-8")] },
  sasl: { mechanism, username, password },
  logLevel: logLevel.NOTHING,
  retry: { retries: 2 },
});

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "hello" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic, sessionTimeout: 6000, heartbeatInterval: 300 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const found = await new Promise((done) =>
    consumer.run({ eachMessage: async ({ message }) => done(message.value.toString()) }));
  await consumer.disconnect();
  assert.strictEqual(found, "hello");
}

main().then(() => process.exit(0), (error) => {
  console.error(error.stack);
  process.exit(1);
});
