// One topic: its partitions, and its settings with what they mean.
import { call, get, getAll, post, route } from "../api.js";
import { bytes, count } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Act, ConfirmName, Field, FormDialog, Heading, Loaded, Panel, Prose, Table, Tag, tell } from "../parts.js";
import { may } from "../session.js";
import { isDeadLetterTopic } from "./topics.js";

/** What a user wrote as the value of a setting: a number, true, false, or text. Error for a number that a script would round. */
function valueOf(written) {
  if (/^-?\d+$/.test(written.trim()) && !Number.isSafeInteger(Number(written))) throw new Error("This number is too large to be sent as it is.");
  try {
    return JSON.parse(written);
  } catch {
    return written;
  }
}

function ChangeSetting({ topic, setting, onClose, onDone }) {
  const send = async ({ value }) => {
    await call("PATCH", route`/topics/${topic}`, { body: { config: { [setting.name]: valueOf(value) } } });
    tell(`${setting.name} is ${value} now.`);
    onDone();
  };
  return html`<${FormDialog} title=${`Change ${setting.name}`} action="Change" onSend=${send} onClose=${onClose}>
    <p class="hint"><${Prose} text=${setting.text} /></p>
    <${Field} label=${setting.name}><input name="value" required defaultValue=${String(setting.value)} autocomplete="off" /><//>
  <//>`;
}

function Grow({ topic, partitions, onClose, onDone }) {
  const send = async (fields) => {
    const done = await post(route`/admin/topics/${topic}/partitions`, { count: Number(fields.count) });
    tell(`${done.partitions_added.length} partitions were added.`);
    onDone();
  };
  return html`<${FormDialog} title="Add partitions" action="Add partitions" onSend=${send} onClose=${onClose}>
    <p class="hint">Messages with a key may go to another partition than before. Partitions cannot be taken away again.</p>
    <${Field} label="New total"><input name="count" type="number" required min=${partitions + 1} defaultValue=${partitions + 1} /><//>
  <//>`;
}

function Partitions({ name, partitions }) {
  return html`<${Panel} title="Partitions" isFlush=${true}><${Table} title="Partitions" rows=${partitions} columns=${[
    { title: "Partition", kind: "tight", cell: (one) => html`<a href=${`#/messages/${encodeURIComponent(name)}?partition=${one.partition}`}>${one.partition}</a>` },
    { title: "Earliest", kind: "number", cell: (one) => count(one.earliest) },
    { title: "Next", kind: "number", cell: (one) => count(one.latest) },
    { title: "Messages", kind: "number", cell: (one) => count(one.messages) },
    { title: "Size", kind: "number", cell: (one) => bytes(one.size_bytes) },
    { title: "State", cell: (one) => (one.fault ? html`<${Tag} kind="bad">${one.fault}<//>` : html`<${Tag} kind="good">serving<//>`) },
  ]} /><//>`;
}

function SettingsTable({ settings, onChange }) {
  return html`<${Panel} title="Settings" isFlush=${true}><${Table} title="Settings" rows=${settings} columns=${[
    { title: "Setting", cell: (one) => html`<code>${one.name}</code>` },
    { title: "Value", kind: "name", cell: (one) => html`<code>${String(one.value)}</code> ${one.value !== one.default && html`<${Tag} kind="warning">not the usual ${String(one.default)}<//>`}` },
    { title: "What it means", cell: (one) => html`<${Prose} text=${one.text} />` },
    ...(may("configure a topic")
      ? [{ title: "Change", cell: (one) => html`<button class="small" aria-label=${`Change ${one.name}`} onClick=${() => onChange(one)}>Change</button>` }]
      : []),
  ]} /><//>`;
}

export function Topic({ name }) {
  const [open, setOpen] = useState(null);
  const live = useLive(async (signal) => {
    const [topic, partitions, words] = await Promise.all([
      get(route`/topics/${name}`, {}, signal),
      getAll(route`/topics/${name}/partitions`, "partitions", {}, signal),
      get("/topic-settings", {}, signal),
    ]);
    const settings = words.settings.map((one) => ({ ...one, value: topic.config[one.name] ?? one.default }));
    return { topic, partitions, settings };
  }, [name]);
  const close = () => setOpen(null);
  const done = () => {
    close();
    live.refresh();
  };
  const remove = async () => {
    await call("DELETE", route`/topics/${name}`);
    tell(`Topic ${name} is deleted.`);
    location.hash = "#/topics";
  };
  const sweep = () => post(route`/admin/topics/${name}/compact`);
  const swept = (found) => `${found.segments_removed} segments removed, ${bytes(found.bytes_freed)} freed.`;
  const link = (word, text) => html`<a class="button" href=${`#/${word}/${encodeURIComponent(name)}`}>${text}</a>`;
  return html`
    <${Heading} title=${name}>
      ${link("messages", "Messages")}
      ${may("see dead letters") && !isDeadLetterTopic(name) && link("dead-letters", "Dead letters")}
      ${link("delayed", "Delayed")}
      ${may("compact a topic") && html`<${Act} work=${sweep} done=${swept}>Sweep now<//>`}
      ${may("configure a topic") && html`<button onClick=${() => setOpen("grow")}>Add partitions</button>`}
      ${may("delete a topic") && html`<button class="danger" onClick=${() => setOpen("delete")}>Delete</button>`}<//>
    <${Loaded} live=${live}>${({ topic, partitions, settings }) => html`
      <p class="lead">${count(topic.total_messages)} messages, ${bytes(topic.total_size_bytes)}</p>
      <${Partitions} name=${name} partitions=${partitions} />
      <${SettingsTable} settings=${settings} onChange=${setOpen} />
      ${open === "grow" && html`<${Grow} topic=${name} partitions=${topic.partitions} onClose=${close} onDone=${done} />`}
      ${open?.name && html`<${ChangeSetting} topic=${name} setting=${open} onClose=${close} onDone=${done} />`}`}<//>
    ${open === "delete" && html`<${ConfirmName} title="Delete the topic" name=${name} action="Delete topic" onSend=${remove} onClose=${close}>
      Everything in it goes: messages, the progress of all groups, delayed messages and dead letters.<//>`}`;
}
