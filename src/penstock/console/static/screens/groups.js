// Groups: who reads what, and how far behind.
import { get, getAll } from "../api.js";
import { count, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Filter, Heading, Loaded, Panel, Table } from "../parts.js";
import { topicLink } from "./topics.js";

const COLUMNS = [
  { title: "Group", kind: "name", cell: (one) => html`<a href=${`#/groups/${encodeURIComponent(one.group)}`}>${one.group}</a>` },
  { title: "Topics", cell: (one) => one.topics.map((topic, index) => html`${index ? ", " : ""}${topicLink(topic)}`) },
  { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
  { title: "Oldest", kind: "number", cell: (one) => span(one.lag_seconds) },
  { title: "In flight", kind: "number", cell: (one) => html`<a href=${`#/in-flight/${encodeURIComponent(one.group)}`} aria-label=${`${one.in_flight} in flight of ${one.group}`}>${count(one.in_flight)}</a>` },
  { title: "Retrying", kind: "number", cell: (one) => count(one.waiting) },
  { title: "Given up", kind: "number", cell: (one) => count(one.dead) },
];

export function Groups() {
  const [typed, setTyped] = useState("");
  const live = useLive(async (signal) => {
    const [groups, { lags }] = await Promise.all([getAll("/groups", "groups", { topics: true }, signal), get("/stats/lag", { limit: 10_000 }, signal)]);
    const byName = new Map(lags.map((one) => [one.group, one]));
    return groups.map((one) => ({ ...one, ...byName.get(one.group) })).sort((left, right) => (right.lag ?? 0) - (left.lag ?? 0));
  }, []);
  const empty = html`<${Empty} title="No groups yet" text="A group begins with its first consumer, and keeps its progress for all of them." command="penstock consume orders --group billing" />`;
  return html`
    <${Heading} title="Groups"><${Filter} label="Filter groups" value=${typed} onChange=${setTyped} /><//>
    <${Loaded} live=${live}>${(groups) => html`<${Panel} isFlush=${true}>
      <${Table} title="Groups" columns=${COLUMNS} rows=${groups.filter((one) => one.group.includes(typed))} 
        empty=${typed ? html`<${Empty} title=${`No group has “${typed}” in its name`} />` : empty} /><//>`}<//>`;
}
