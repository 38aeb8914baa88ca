// Settings of the broker, with what they mean. They are changed in its file.
import { get } from "../api.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Filter, Heading, Loaded, Panel, Prose, Table, Tag } from "../parts.js";

const written = (value) => (typeof value === "string" ? value || '""' : JSON.stringify(value));

export function Settings() {
  const [typed, setTyped] = useState("");
  const live = useLive((signal) => get("/admin/settings", {}, signal), [], 0);
  return html`
    <${Heading} title="Settings" lead="As this process has them. Change penstock.yaml, then send SIGHUP for those that are live, or restart."><${Filter} label="Filter settings" value=${typed} onChange=${setTyped} /><//>
    <${Loaded} live=${live}>${({ sections }) => Object.entries(sections).map(([section, settings]) => {
      const rows = settings.filter((one) => `${section}.${one.name} ${one.text}`.toLowerCase().includes(typed.toLowerCase()));
      return rows.length > 0 && html`<${Panel} key=${section} title=${section} isFlush=${true}><${Table} title=${`Settings of ${section}`} rows=${rows} columns=${[
        { title: "Setting", cell: (one) => html`<code>${section}.${one.name}</code>` },
        { title: "Value", kind: "name", cell: (one) => html`<code>${written(one.value)}</code> ${written(one.value) !== written(one.default) && html`<${Tag} kind="warning">not the default ${written(one.default)}<//>`}` },
        { title: "What it means", cell: (one) => html`<${Prose} text=${one.text} />` },
        { title: "Live", cell: (one) => one.is_live && html`<${Tag} kind="good">SIGHUP<//>` },
      ]} /><//>`;
    })}<//>`;
}
