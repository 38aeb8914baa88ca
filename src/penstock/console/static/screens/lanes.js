// Priority lanes of a topic: what waits in each, its share of what is handed out, and how long messages wait.
import { get, getAll } from "../api.js";
import { count, rate, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Field, Heading, Loaded, Panel, Table, Time } from "../parts.js";
import { TopicChoice, useTopics } from "./messages.js";

const PRIORITIES = ["critical", "high", "normal", "low", "background"];

/** One row for each lane: sums over the partitions, and the wait of what was handed out, weighed by how much it was. */
function lanesOf(partitions, shares) {
  const sum = (name, lane) => partitions.reduce((total, one) => total + one[name][lane], 0);
  const handedOut = PRIORITIES.reduce((total, _word, lane) => total + sum("dequeue_rate", lane), 0);
  return PRIORITIES.map((priority, lane) => {
    const outRate = sum("dequeue_rate", lane);
    const waited = partitions.reduce((total, one) => total + one.wait_ms[lane] * one.dequeue_rate[lane], 0);
    const served = partitions.map((one) => one.last_served[lane]).filter(Boolean).sort();
    return {
      priority,
      outRate,
      inRate: sum("enqueue_rate", lane),
      ready: sum("ready", lane),
      inFlight: sum("in_flight", lane),
      served: sum("served", lane),
      promised: shares[priority],
      taken: handedOut > 0 ? (100 * outRate) / handedOut : null,
      waitMs: outRate > 0 ? waited / outRate : null,
      lastServed: served.at(-1) ?? null,
    };
  });
}

const COLUMNS = [
  { title: "Lane", cell: (one) => one.priority },
  { title: "Waiting", kind: "number", cell: (one) => count(one.ready) },
  { title: "In flight", kind: "number", cell: (one) => count(one.inFlight) },
  { title: "Its share", kind: "number", cell: (one) => `${one.promised} %` },
  { title: "Share of the last minute", kind: "number", cell: (one) => (one.taken === null ? "–" : `${Math.round(one.taken)} %`) },
  { title: "Published", kind: "number", cell: (one) => `${rate(one.inRate)}/s` },
  { title: "Handed out", kind: "number", cell: (one) => `${rate(one.outRate)}/s` },
  { title: "Waits for", kind: "number", cell: (one) => (one.waitMs === null ? "–" : span(one.waitMs / 1000)) },
  { title: "Handed out since the start", kind: "number", cell: (one) => count(one.served) },
  { title: "Last", kind: "tight", cell: (one) => html`<${Time} at=${one.lastServed} />` },
];

function TopicLanes({ topic }) {
  const [group, setGroup] = useState("");
  const groups = useLive((signal) => getAll("/groups", "groups", { topics: true }, signal), [], 30_000);
  const live = useLive((signal) => get("/priority/stats", { topic, group: group || undefined }, signal), [topic, group]);
  const readers = (groups.data ?? []).filter((one) => one.topics.includes(topic));
  return html`
    <div class="row end"><${Field} label="Group"><select value=${group} onChange=${(event) => setGroup(event.target.value)}>
      <option value="">the furthest behind</option>
      ${readers.map((one) => html`<option value=${one.group} selected=${one.group === group}>${one.group}</option>`)}</select><//></div>
    <${Loaded} live=${live}>${({ topics, shares }) => {
      const found = Object.hasOwn(topics, topic) && topics[topic];
      if (!found) return html`<${Panel}><${Empty} title="No group reads this topic yet" text="Lanes are served group by group." command=${`penstock consume ${topic} --group billing`} /><//>`;
      return html`<${Panel} title=${`Lanes of ${topic} for ${found.group}`} isFlush=${true}>
        <${Table} title="Lanes" columns=${COLUMNS} rows=${lanesOf(Object.values(found.partitions), shares)} /><//>`;
    }}<//>`;
}

export function Lanes({ name }) {
  const topics = useTopics();
  return html`
    <${Heading} title=${name ? `Lanes of ${name}` : "Lanes"} lead="Messages wait in five lanes by priority. While messages wait in all of them, each gets its share of what is handed out; none starves." />
    <${Loaded} live=${topics}>${(names) => (names.length || name
      ? html`<div class="row end"><${TopicChoice} word="lanes" name=${name} topics=${names} /></div>`
      : html`<${Panel}><${Empty} title="No topics yet" command="penstock topic create orders" /><//>`)}<//>
    ${name && html`<${TopicLanes} key=${name} topic=${name} />`}`;
}
