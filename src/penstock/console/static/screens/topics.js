// Topics: the list, and a new one.
import { getAll, post } from "../api.js";
import { bytes, count, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Field, Filter, FormDialog, Heading, Loaded, Panel, Table, Tag, tell } from "../parts.js";
import { may } from "../session.js";

export const isDeadLetterTopic = (name) => name.endsWith(".dlq");
export const topicLink = (name) => html`<a href=${`#/topics/${encodeURIComponent(name)}`}>${name}</a>`;

function CreateTopic({ onClose }) {
  const send = async (fields) => {
    const body = { name: fields.name.trim() };
    if (fields.partitions) body.num_partitions = Number(fields.partitions);
    if (fields.retention) body.retention_hours = Number(fields.retention);
    await post("/topics", body);
    tell(`Topic ${body.name} is there.`);
    onClose();
    location.hash = `#/topics/${encodeURIComponent(body.name)}`;
  };
  return html`<${FormDialog} title="Create a topic" action="Create topic" onSend=${send} onClose=${onClose}>
    <${Field} label="Name" hint="Letters, digits, dot, underscore and hyphen"><input name="name" required maxlength="245" autocomplete="off" /><//>
    <${Field} label="Partitions" hint="Empty: as the broker's settings say. They can be added later, never taken away."><input name="partitions" type="number" min="1" max="10000" /><//>
    <${Field} label="Keep messages for, in hours" hint="Empty: as the broker's settings say; -1: for ever"><input name="retention" type="number" step="any" min="-1" /><//>
  <//>`;
}

const COLUMNS = [
  { title: "Topic", kind: "name", cell: (one) => topicLink(one.name) },
  { title: "Partitions", kind: "number", cell: (one) => count(one.partitions) },
  { title: "Messages", kind: "number", cell: (one) => count(one.total_messages) },
  { title: "Size", kind: "number", cell: (one) => bytes(one.total_size_bytes) },
  { title: "Kept", kind: "number", cell: (one) => (one.config.retention_hours < 0 ? "for ever" : span(one.config.retention_hours * 3600)) },
  { title: "State", cell: (one) => (Object.keys(one.faulty ?? {}).length ? html`<${Tag} kind="bad">faulty partition<//>` : html`<${Tag} kind="good">serving<//>`) },
  { title: "Look at", cell: (one) => html`<a href=${`#/messages/${encodeURIComponent(one.name)}`} aria-label=${`Messages of ${one.name}`}>messages</a>` },
];

export function Topics() {
  const live = useLive((signal) => getAll("/topics", "topics", { details: true }, signal), [], 30_000);
  const [typed, setTyped] = useState("");
  const [isCreating, setCreating] = useState(false);
  const empty = html`<${Empty} title="No topics yet" text="A topic is a log of messages that groups read." command="penstock topic create orders --partitions 3" />`;
  return html`
    <${Heading} title="Topics">
      <${Filter} label="Filter topics" value=${typed} onChange=${setTyped} />
      ${may("create a topic") && html`<button class="main" onClick=${() => setCreating(true)}>Create topic</button>`}<//>
    <${Loaded} live=${live}>${(topics) => html`<${Panel} isFlush=${true}>
      <${Table} title="Topics" columns=${COLUMNS} rows=${topics.filter((one) => one.name.includes(typed))}
        empty=${typed ? html`<${Empty} title=${`No topic has “${typed}” in its name`} />` : empty} /><//>`}<//>
    ${isCreating && html`<${CreateTopic} onClose=${() => setCreating(false)} />`}`;
}
