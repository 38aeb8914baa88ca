// Messages of a topic: by offset, time, key, header or a piece of their value; one in full, its journey, and a new one.
import { get, getAll, post, route } from "../api.js";
import { count, moment, plural } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { attempt, Dialog, Empty, Field, FormDialog, Heading, Loaded, Panel, Table, Tag, tell, Time } from "../parts.js";
import { Headers, inFull, Payload, Preview } from "../payload.js";
import { may } from "../session.js";
import { Journey } from "./journey.js";

const PAGE = 50;
const PRIORITIES = ["critical", "high", "normal", "low", "background"];
// A search in values reads so many messages at most, and then says where it stopped.
const SEARCH_MESSAGES_MAX = 10_000;

/** Choose a topic, for screens that show one at a time. */
export function TopicChoice({ word, name, topics }) {
  return html`<${Field} label="Topic"><select value=${name ?? ""} onChange=${(event) => { location.hash = `#/${word}/${encodeURIComponent(event.target.value)}`; }}>
    ${!name && html`<option value="">choose a topic</option>`}
    ${[...new Set([...(name ? [name] : []), ...topics])].map((one) => html`<option value=${one} selected=${one === name}>${one}</option>`)}</select><//>`;
}

/** Names of all topics that the user reaches. */
export const useTopics = () => useLive((signal) => getAll("/topics", "topics", {}, signal), [], 30_000);

export function Publish({ topic, onClose, onDone }) {
  const send = async (fields) => {
    const message = { value: fields.value };
    if (fields.key) message.key = fields.key;
    if (fields.priority !== "normal") message.priority = fields.priority;
    if (fields.partition) message.partition = Number(fields.partition);
    if (fields.delay.trim()) message.delay = fields.delay.trim();
    if (fields.headers.trim()) message.headers = JSON.parse(fields.headers);
    const { results: [one] } = await post(route`/topics/${topic}/messages`, { messages: [message] });
    tell(one.delayed ? `It comes at ${one.deliver_at}.` : `Published at offset ${one.offset} of partition ${one.partition}, ${one.guarantee}.`);
    onDone(one);
  };
  return html`<${FormDialog} title=${`Publish to ${topic}`} action="Publish" onSend=${send} onClose=${onClose}>
    <${Field} label="Value"><textarea name="value"></textarea><//>
    <${Field} label="Key" hint="Messages with one key stay in order"><input name="key" autocomplete="off" /><//>
    <${Field} label="Headers" hint='As JSON: {"source": "console"}'><input name="headers" class="mono" autocomplete="off" /><//>
    <div class="row end">
      <${Field} label="Priority"><select name="priority">${PRIORITIES.map((one) => html`<option selected=${one === "normal"}>${one}</option>`)}</select><//>
      <${Field} label="Partition"><input name="partition" type="number" min="0" placeholder="by key" /><//>
      <${Field} label="Delay"><input name="delay" placeholder="30s, 2h" size="8" autocomplete="off" /><//></div>
  <//>`;
}

function MessageDialog({ topic, partition, message, onClose }) {
  const [isJourney, setJourney] = useState(false);
  return html`<${Dialog} title=${`${topic}, partition ${partition}, offset ${count(message.offset)}`} isWide=${true} onClose=${onClose}>
    <div class="stack panel">
      <dl class="facts">
        <dt>Key</dt><dd class="mono">${inFull(message.key)}</dd>
        <dt>Stored</dt><dd><${Time} at=${message.timestamp} /></dd>
        <dt>Priority</dt><dd>${message.priority}</dd>
        ${message.expires_at && html`<dt>Expires</dt><dd><${Time} at=${message.expires_at} /></dd>`}
        ${message.idempotency_key !== null && html`<dt>Idempotency key</dt><dd class="mono">${inFull(message.idempotency_key)}</dd>`}
      </dl>
      <h3>Value</h3><${Payload} content=${message.value} label="value" headers=${message.headers} />
      <h3>Headers</h3><${Headers} headers=${message.headers} />
      ${message.dead_letter && html`<h3>Why it died</h3><dl class="facts">${Object.entries(message.dead_letter).map(([name, value]) => html`<dt>${name}</dt><dd>${String(value)}</dd>`)}</dl>`}
      <h3>Journey</h3>
      ${isJourney ? html`<${Journey} topic=${topic} partition=${partition} offset=${message.offset} />`
        : html`<div class="row"><button onClick=${() => setJourney(true)}>Show the journey</button></div>`}
    </div><//>`;
}

/** Messages whose value has a text in it, from an offset on, read page by page within a bound. */
async function searchValues(topic, partition, from, text, signal) {
  const found = [];
  let offset = from;
  let read = 0;
  let latest = from;
  while (read < SEARCH_MESSAGES_MAX && found.length < PAGE) {
    const page = await get(route`/topics/${topic}/partitions/${partition}/messages`, { offset, limit: 500 }, signal);
    latest = page.latest;
    if (page.next_offset <= offset) break;
    read += page.messages.length;
    found.push(...page.messages.filter((one) => typeof one.value === "string" && one.value.includes(text)));
    offset = page.next_offset;
    if (offset >= page.latest) break;
  }
  return { messages: found, next_offset: offset, earliest: from, latest, note: `${plural(read, "message")} searched` };
}

/** The end of a partition. Of large messages one answer has some only, so fewer are asked for until the last is among them. */
async function loadLatest(path, { earliest = 0, latest = 0 }, signal) {
  for (let size = PAGE; ; ) {
    const page = await get(path, { offset: Math.max(earliest, latest - size), limit: PAGE }, signal);
    if (size === 1 || page.next_offset >= latest) return page;
    size = Math.max(1, Math.min(Math.floor(size / 2), page.messages.length));
  }
}

async function load(topic, asked, signal) {
  const { partition, by, text } = asked;
  const path = route`/topics/${topic}/partitions/${partition}/messages`;
  if (by === "key" || by === "header") {
    const { traces, cursor } = await get("/traces/search", { topic, [by]: text, limit: PAGE }, signal);
    return { traces, note: cursor ? "the search goes on in older messages: narrow it" : "" };
  }
  if (by === "value") return searchValues(topic, partition, Number(asked.offset || 0), text, signal);
  if (by === "time" && text) return get(path, { from_time: moment(text), limit: PAGE }, signal);
  if (by === "offset" && asked.offset !== "") return get(path, { offset: asked.offset, limit: PAGE }, signal);
  const { partition_offsets: ends } = await get(route`/topics/${topic}`, {}, signal);
  return loadLatest(path, ends[partition] ?? {}, signal);
}

const WAYS = { latest: "the latest", offset: "from an offset", time: "from a time", key: "with a key", header: "with a header", value: "with a text in the value" };

function Question({ partitions, asked, onAsk }) {
  const [by, setBy] = useState(asked.by);
  const send = (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    onAsk({ partition: fields.partition ?? asked.partition, by, offset: fields.offset ?? "", text: fields.text ?? "" });
  };
  const hasPartition = by !== "key" && by !== "header";
  return html`<form class="row end" onSubmit=${send} aria-label="Which messages">
    ${hasPartition && html`<${Field} label="Partition"><select name="partition">${Array.from({ length: partitions }, (_one, number) => html`<option value=${number} selected=${String(number) === String(asked.partition)}>${number}</option>`)}</select><//>`}
    <${Field} label="Messages"><select name="by" onChange=${(event) => setBy(event.target.value)}>${Object.entries(WAYS).map(([word, title]) => html`<option value=${word} selected=${word === by}>${title}</option>`)}</select><//>
    ${(by === "offset" || by === "value") && html`<${Field} label="From offset"><input name="offset" type="number" min="0" defaultValue=${asked.offset || 0} /><//>`}
    ${by === "time" && html`<${Field} label="From"><input name="text" type="datetime-local" step="1" required defaultValue=${asked.by === "time" ? asked.text : ""} /><//>`}
    ${by === "key" && html`<${Field} label="Key"><input name="text" required defaultValue=${asked.text} autocomplete="off" /><//>`}
    ${by === "header" && html`<${Field} label="Header"><input name="text" required defaultValue=${asked.text} placeholder="name=value" autocomplete="off" /><//>`}
    ${by === "value" && html`<${Field} label="Text"><input name="text" required defaultValue=${asked.text} autocomplete="off" /><//>`}
    <button class="main">Show</button></form>`;
}

function Found({ topic, asked, found, onOpen, onFrom }) {
  const empty = html`<${Empty} title="No message here" text="Publish one, here or from a shell." command=${`penstock produce ${topic} '{"id": 1}'`} />`;
  if (found.traces) {
    const open = (row) => attempt(async () => {
      const page = await get(route`/topics/${row.topic}/partitions/${row.partition}/messages`, { offset: row.offset, limit: 1 });
      const message = page.messages[0];
      if (message?.offset !== row.offset) throw new Error(`Offset ${row.offset} is not there any more.`);
      onOpen({ partition: row.partition, message });
    }, `Offset ${row.offset}`);
    return html`<${Table} title="Messages found" rows=${found.traces} empty=${empty} columns=${[
      { title: "Partition", kind: "number", cell: (one) => one.partition },
      { title: "Offset", kind: "number", cell: (one) => html`<button class="small" onClick=${() => open(one)}>${count(one.offset)}</button>` },
      { title: "Published", cell: (one) => html`<${Time} at=${one.start} />` },
      { title: "Status", cell: (one) => html`<${Tag}>${one.status}<//>` },
      { title: "Events", kind: "number", cell: (one) => one.span_count },
    ]} />`;
  }
  const { messages } = found;
  const first = messages[0]?.offset ?? found.next_offset;
  return html`
    <${Table} title="Messages" rows=${messages} empty=${empty} columns=${[
      { title: "Offset", kind: "number", cell: (one) => html`<button class="small" aria-label=${`Open offset ${one.offset}`} onClick=${() => onOpen({ partition: asked.partition, message: one })}>${count(one.offset)}</button>` },
      { title: "Stored", kind: "tight", cell: (one) => html`<${Time} at=${one.timestamp} />` },
      { title: "Key", cell: (one) => html`<${Preview} content=${one.key} />` },
      { title: "Value", cell: (one) => html`<${Preview} content=${one.value} />` },
      { title: "Headers", kind: "number", cell: (one) => one.headers.length },
    ]} />
    <div class="more">
      <button disabled=${first <= found.earliest} onClick=${() => onFrom(Math.max(found.earliest, first - PAGE))}>Earlier</button>
      <button disabled=${found.next_offset >= found.latest} onClick=${() => onFrom(found.next_offset)}>Later</button>
      <span>offsets ${count(found.earliest)} to ${count(found.latest)}</span></div>`;
}

function TopicMessages({ name, query }) {
  const start = { partition: query.partition ?? "0", by: query.offset ? "offset" : "latest", offset: query.offset ?? "", text: "" };
  const [asked, ask] = useState(start);
  const [open, setOpen] = useState(null);
  const [isPublishing, setPublishing] = useState(false);
  const topic = useLive((signal) => get(route`/topics/${name}`, {}, signal), [name], 30_000);
  const live = useLive(
    (signal) => (may("read by offset") ? load(name, asked, signal) : { messages: [], next_offset: 0, earliest: 0, latest: 0 }),
    [name, asked.partition, asked.by, asked.offset, asked.text],
    asked.by === "latest" ? 3000 : 0,
  );
  const askNow = (next) => {
    ask(next);
    // Also if it is what was asked before.
    live.refresh();
  };
  const published = ({ partition, delayed }) => {
    setPublishing(false);
    if (!delayed) ask({ partition: String(partition), by: "latest", offset: "", text: "" });
    live.refresh();
  };
  return html`
    <div class="row end">
      ${may("read by offset") && topic.data && html`<${Question} key=${`${asked.by}-${asked.partition}`} partitions=${topic.data.partitions} asked=${asked} onAsk=${askNow} />`}
      ${may("publish") && html`<button onClick=${() => setPublishing(true)}>Publish a message</button>`}</div>
    ${may("read by offset")
      ? html`<${Panel} isFlush=${true}><${Loaded} live=${live}>${(found) => html`
          <${Found} topic=${name} asked=${asked} found=${found} onOpen=${setOpen} onFrom=${(offset) => ask({ ...asked, by: asked.by === "value" ? "value" : "offset", offset: String(offset) })} />
          ${found.note && html`<p class="more" role="status">${found.note}</p>`}`}<//><//>`
      : html`<p class="lead">Your key publishes; it does not read.</p>`}
    ${open && html`<${MessageDialog} topic=${name} ...${open} onClose=${() => setOpen(null)} />`}
    ${isPublishing && html`<${Publish} topic=${name} onClose=${() => setPublishing(false)} onDone=${published} />`}`;
}

export function Messages({ name, query }) {
  const topics = useTopics();
  return html`
    <${Heading} title=${name ? `Messages of ${name}` : "Messages"} lead="Reading here leases nothing and moves no group." />
    <${Loaded} live=${topics}>${(names) => (names.length || name
      ? html`<div class="row end"><${TopicChoice} word="messages" name=${name} topics=${names} /></div>`
      : html`<${Panel}><${Empty} title="No topics yet" command="penstock topic create orders" /><//>`)}<//>
    ${name && html`<${TopicMessages} key=${name} name=${name} query=${query} />`}`;
}
