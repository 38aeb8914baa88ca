// The audit log: what administrators did, and what was refused.
import { get } from "../api.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Act, Empty, Heading, Loaded, Panel, Table, Tag, Time } from "../parts.js";

const COLUMNS = [
  { title: "When", kind: "tight", cell: (one) => html`<${Time} at=${one.at} />` },
  { title: "Who", kind: "name", cell: (one) => one.who },
  { title: "What", cell: (one) => one.what },
  { title: "On", kind: "name", cell: (one) => one.where },
  { title: "From", kind: "name", cell: (one) => one.client },
  { title: "Outcome", cell: (one) => (one.is_allowed ? html`<${Tag} kind="good">done<//>` : html`<${Tag} kind="bad">refused<//>`) },
];

export function Audit() {
  // Lines as they were when older ones were asked for: newer ones would come between, out of sight.
  const [kept, setKept] = useState(null);
  const live = useLive((signal) => get("/admin/audit", { limit: 100 }, signal), []);
  const more = async ({ lines, cursor }) => {
    const page = await get("/admin/audit", { limit: 1000, cursor });
    setKept({ lines: [...lines, ...page.lines], cursor: page.cursor });
  };
  return html`
    <${Heading} title="Audit" lead="Newest first. Each line carries the hash of the one before; penstock audit verify looks for changes." />
    <${Loaded} live=${live}>${(newest) => {
      const shown = kept ?? newest;
      return html`<${Panel} isFlush=${true}>
        <${Table} title="Audit log" columns=${COLUMNS} rows=${shown.lines} empty=${html`<${Empty} title="Nothing was done or refused yet" command="penstock audit verify ./data" />`} />
        <div class="more">
          ${shown.cursor && html`<${Act} work=${() => more(shown)} done="Older lines are below.">Older lines<//>`}
          ${kept && html`<button onClick=${() => setKept(null)}>Newest lines</button><span>Newer lines are not shown with older ones.</span>`}</div><//>`;
    }}<//>`;
}
