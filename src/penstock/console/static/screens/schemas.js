// Schemas: subjects and their versions, what changed between two, and whether a new one would be taken.
import { get, post, route } from "../api.js";
import { Diff } from "../diff.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Field, FormDialog, Heading, Loaded, Notice, Panel, Table, Tag, tell } from "../parts.js";
import { prettyJson } from "../payload.js";
import { may } from "../session.js";

const TYPES = ["AVRO", "JSON", "PROTOBUF"];

/** A schema for people: JSON is indented, Protobuf is as it was written. */
const pretty = (schema) => prettyJson(schema, Infinity) ?? schema;

function Register({ subject, onClose, onDone }) {
  const [checked, setChecked] = useState(null);
  const send = async (fields) => {
    const name = subject ?? fields.subject.trim();
    const body = { schema: fields.schema, schemaType: fields.type };
    if (checked !== fields.schema && subject) {
      const found = await post(`${route`/compatibility/subjects/${name}/versions/latest`}?verbose=true`, body);
      if (!found.is_compatible) throw new Error(`Not compatible with the latest version: ${(found.messages ?? []).join("; ")}`);
      setChecked(fields.schema);
      return;
    }
    const made = await post(route`/subjects/${name}/versions`, body);
    tell(`Schema ${made.id} is registered for ${name}.`);
    onDone(name);
  };
  const canRegister = may("register a schema");
  return html`<${FormDialog} title=${subject ? `Another version of ${subject}` : "A new subject"} isWide=${true} onSend=${send} onClose=${onClose}
      action=${subject && checked === null ? "Check" : "Register"} isReady=${canRegister || checked === null}>
    ${!subject && html`<${Field} label="Subject" hint="orders-value is for the values of topic orders"><input name="subject" required autocomplete="off" /><//>`}
    <${Field} label="Language"><select name="type">${TYPES.map((one) => html`<option>${one}</option>`)}</select><//>
    <${Field} label="Schema"><textarea name="schema" required onInput=${() => setChecked(null)}></textarea><//>
    ${checked !== null && html`<${Notice} kind="good">It is compatible with the latest version.<//>`}<//>`;
}

function Subject({ name }) {
  const [isOpen, setOpen] = useState(false);
  const [chosen, choose] = useState(null);
  const live = useLive(async (signal) => {
    const numbers = await get(route`/subjects/${name}/versions`, {}, signal);
    const versions = await Promise.all(numbers.slice(-20).map((number) => get(route`/subjects/${name}/versions/${number}`, {}, signal)));
    const { compatibilityLevel } = await get(route`/config/${name}`, { defaultToGlobal: true }, signal);
    return { versions: versions.reverse(), compatibilityLevel };
  }, [name], 30_000);
  return html`<${Loaded} live=${live}>${({ versions, compatibilityLevel }) => {
    const shown = versions.find((one) => one.version === chosen) ?? versions[0];
    const before = versions.find((one) => one.version < shown.version);
    return html`
      <p class="lead">Compatibility <${Tag}>${compatibilityLevel}<//></p>
      <${Panel} title="Versions" isFlush=${true} actions=${html`<button onClick=${() => setOpen(true)}>Check a new version</button>`}>
        <${Table} title="Versions" rows=${versions} columns=${[
          { title: "Version", cell: (one) => html`<button class="small" aria-pressed=${one === shown} onClick=${() => choose(one.version)}>${one.version}</button>` },
          { title: "Id", kind: "number", cell: (one) => one.id },
          { title: "Language", cell: (one) => one.schemaType ?? "AVRO" },
        ]} /><//>
      <${Panel} title=${`Version ${shown.version}`}><pre class="payload" tabindex="0" role="region" aria-label="Schema">${pretty(shown.schema)}</pre><//>
      ${before && html`<${Panel} title=${`What version ${shown.version} changed`}><${Diff} before=${pretty(before.schema)} after=${pretty(shown.schema)} /><//>`}
      ${isOpen && html`<${Register} subject=${name} onClose=${() => setOpen(false)} onDone=${() => { setOpen(false); live.refresh(); }} />`}`;
  }}<//>`;
}

export function Schemas({ name }) {
  const [isOpen, setOpen] = useState(false);
  const live = useLive((signal) => get("/subjects", {}, signal), [], 30_000);
  const registered = (subject) => {
    setOpen(false);
    location.hash = `#/schemas/${encodeURIComponent(subject)}`;
  };
  if (name) return html`<${Heading} title=${name} /><${Subject} key=${name} name=${name} />`;
  return html`
    <${Heading} title="Schemas">${may("register a schema") && html`<button class="main" onClick=${() => setOpen(true)}>Register a schema</button>`}<//>
    <${Loaded} live=${live}>${(subjects) => html`<${Panel} isFlush=${true}><${Table} title="Subjects" rows=${subjects} columns=${[
      { title: "Subject", kind: "name", cell: (one) => html`<a href=${`#/schemas/${encodeURIComponent(one)}`}>${one}</a>` },
    ]} empty=${html`<${Empty} title="No schemas yet" text="A schema says what the values of a topic look like, and the broker can hold producers to it." command="penstock schema register orders-value order.avsc" />`} /><//>`}<//>
    ${isOpen && html`<${Register} onClose=${() => setOpen(false)} onDone=${registered} />`}`;
}
