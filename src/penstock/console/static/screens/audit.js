// The audit log: what administrators did, and what was refused.
import { get } from "../api.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { attempt, Empty, Heading, Loaded, Panel, Table, Tag, Time } from "../parts.js";

const COLUMNS = [
  { title: "When", kind: "tight", cell: (one) => html`<${Time} at=${one.at} />` },
  { title: "Who", kind: "name", cell: (one) => one.who },
  { title: "What", cell: (one) => one.what },
  { title: "On", kind: "name", cell: (one) => one.where },
  { title: "Outcome", cell: (one) => (one.is_allowed ? html`<${Tag} kind="good">done<//>` : html`<${Tag} kind="bad">refused<//>`) },
];

export function Audit() {
  const [older, setOlder] = useState({ lines: [], cursor: undefined });
  const live = useLive((signal) => get("/admin/audit", { limit: 100 }, signal), []);
  const more = (cursor) => attempt(async () => {
    const page = await get("/admin/audit", { limit: 1000, cursor });
    setOlder({ lines: [...older.lines, ...page.lines], cursor: page.cursor });
  }, "Older lines are below.");
  return html`
    <${Heading} title="Audit" lead="Newest first. Each line carries the hash of the one before; penstock audit verify looks for changes." />
    <${Loaded} live=${live}>${({ lines, cursor }) => {
      const next = older.cursor === undefined ? cursor : older.cursor;
      return html`<${Panel} isFlush=${true}>
        <${Table} title="Audit log" columns=${COLUMNS} rows=${[...lines, ...older.lines]} empty=${html`<${Empty} title="Nothing was done or refused yet" command="penstock audit verify ./data" />`} />
        ${next && html`<div class="more"><button onClick=${() => more(next)}>Older lines</button></div>`}<//>`;
    }}<//>`;
}
