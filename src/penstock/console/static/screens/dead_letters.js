// Dead letters: by reason and error; the first few go back, and then the rest; edited, or discarded.
import { get, post, route } from "../api.js";
import { count, plural } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Dialog, Empty, Field, FormDialog, Heading, Loaded, Notice, Panel, Table, Tag, tell, Time } from "../parts.js";
import { Diff } from "../diff.js";
import { Headers, inFull, Payload, Preview, preview, prettyJson } from "../payload.js";
import { may } from "../session.js";
import { TopicChoice, useTopics } from "./messages.js";
import { isDeadLetterTopic } from "./topics.js";

const FIRST = 5;
// Each one's journey is asked for every two seconds.
const OUTCOMES_MAX = 20;
// To count dead letters the broker reads them all, so they are not counted as often as other figures are asked for.
const COUNT_EVERY_MS = 30_000;
// So many the list shows at a time.
const PAGE = 100;
const placesOf = (letters) => letters.map(({ partition, offset }) => ({ partition, offset }));
/** Those that were counted: one that dies later, or again, is not one that the user saw. */
const seenOf = (filter, counts) => ({ ...filter, before: new Date(Math.max(...counts.map((one) => new Date(one.last).valueOf())) + 1).toISOString() });

/** What a journey says of the group that failed before: done, a dead letter again, or on its way. */
function Outcome({ status, target }) {
  if (status === "completed") return html`<${Tag} kind="good">done<//>`;
  if (status === "failed") return html`<${Tag} kind="bad">a dead letter again<//>`;
  return html`<${Tag} kind="warning">back with the ${target}, ${status.replaceAll("_", " ")}<//>`;
}

/** What became of messages that went back, from their journeys, asked for while the dialog is open. */
function Outcomes({ topic, letters, target }) {
  const shown = letters.slice(0, OUTCOMES_MAX);
  const live = useLive((signal) => Promise.all(shown.map(async (one) => {
    const found = await get(route`/topics/${`${topic}.dlq`}/partitions/${one.partition}/messages/${one.offset}/journey`, {}, signal);
    return { ...one, status: found.groups.find((group) => group.group === one.group)?.status ?? found.status };
  })), [topic, letters.length], 2000);
  return html`<${Loaded} live=${live}>${(rows) => html`<${Table} title="What became of them" rows=${rows} columns=${[
    { title: "Was at", cell: (one) => `${one.originalTopic}/${one.originalPartition}/${one.originalOffset}` },
    { title: "Value", cell: (one) => html`<${Preview} content=${one.originalValue} />` },
    { title: "Now", cell: (one) => html`<${Outcome} status=${one.status} target=${target} />` },
  ]} />
    ${letters.length > shown.length && html`<p class="hint">Of the first ${shown.length}.</p>`}`}<//>`;
}

/** The first few go back, their outcomes are shown, and then the rest is asked for. */
function Redrive({ topic, seen, total, onClose, onDone }) {
  const [sent, setSent] = useState(null);
  const left = total - (sent?.redriven ?? 0);
  const redrive = (filter, target) => post(route`/topics/${topic}/dlq/redrive`, { filter, target });
  const send = async (fields) => {
    if (sent === null) {
      const { target } = fields;
      const page = await get(route`/topics/${topic}/dlq`, { ...seen, limit: Number(fields.limit) });
      const done = await redrive({ offsets: placesOf(page.dead_letters) }, target);
      setSent({ target, letters: page.dead_letters, done, redriven: done.redriven });
      onDone();
      return;
    }
    const done = await redrive(seen, sent.target);
    tell(`${plural(done.redriven, "dead letter")} went back to the ${sent.target}${done.failed.length ? `, ${plural(done.failed.length, "one")} could not` : ""}.`);
    onDone();
    // One request sends 10,000 at most.
    if (done.redriven > 0 && left > done.redriven + done.failed.length) setSent({ ...sent, redriven: sent.redriven + done.redriven });
    else onClose();
  };
  return html`<${FormDialog} title="Send dead letters back" isWide=${sent !== null} action=${sent === null ? "Send the first ones" : `Send the other ${count(left)}`} isReady=${left > 0} onSend=${send} onClose=${onClose}>
    ${sent === null
      ? html`<p>${plural(total, "dead letter")} match. Try a few first, and see what becomes of them.</p>
        <${Field} label="How many first"><input name="limit" type="number" min="1" max="1000" required defaultValue=${Math.min(FIRST, total)} /><//>
        <fieldset><legend>Where to</legend>
          <label><input type="radio" name="target" value="group" defaultChecked=${true} /> only to the group that failed</label><br />
          <label><input type="radio" name="target" value="topic" /> to the topic: every group gets them again</label></fieldset>`
      : html`<${Notice} kind=${sent.done.failed.length ? "warning" : "good"}>${plural(sent.done.redriven, "dead letter")} went back.
          ${sent.done.failed.map((one) => html`<div>${one.partition}/${one.offset}: ${one.reason}</div>`)}<//>
        <${Outcomes} topic=${topic} letters=${sent.letters} target=${sent.target} />
        ${left === 0 && html`<p>There are no others.</p>`}`}<//>`;
}

/** A message as lines of text, JSON laid out, so that a change of one field is one changed line. */
const linesOf = ({ key, headers, value }) => [`key: ${key}`, ...headers.split("\n").filter(Boolean).map((line) => `header ${line}`), "", prettyJson(value, Infinity) ?? value].join("\n");

/** Headers as they are edited, one to a line. */
const headerLines = (headers) => headers.map(([name, value]) => `${name}: ${typeof value === "string" ? value : preview(value)}`).join("\n");
/** Whether a header is the same when it is written as a line and read again. */
const isLine = ([name, value]) => typeof value === "string" && !/[\r\n]/.test(name + value) && !name.includes(":") && name !== "" && name === name.trim() && value === value.trim();

function headersOf(lines) {
  return lines.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`A header is a name, a colon and a value, not “${line}”.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

function Edit({ topic, letter, onClose, onDone }) {
  const isText = (content) => content === null || typeof content === "string";
  // Bytes that are no text cannot be edited here, and stay as they are.
  const canKey = isText(letter.originalKey);
  const canHeaders = letter.headers.every(isLine);
  const before = { key: canKey ? (letter.originalKey ?? "") : preview(letter.originalKey), headers: headerLines(letter.headers), value: letter.originalValue };
  const [edited, setEdited] = useState(before);
  const change = (name) => (event) => setEdited({ ...edited, [name]: event.target.value });
  const changed = Object.keys(before).filter((name) => edited[name] !== before[name]);
  const send = async () => {
    const set = {};
    if (changed.includes("value")) set.value = edited.value;
    if (changed.includes("key")) set.key = edited.key === "" ? null : edited.key;
    if (changed.includes("headers")) set.headers = headersOf(edited.headers);
    const body = { filter: { offsets: placesOf([letter]) }, target: "topic", set };
    const done = await post(route`/topics/${topic}/dlq/redrive`, body);
    if (done.failed.length) throw new Error(done.failed[0].reason);
    if (!done.redriven) throw new Error("It is no dead letter any more: it went back, or was discarded.");
    tell("The edited message went back to the topic.");
    onDone();
  };
  return html`<${FormDialog} title="Edit and send back" isWide=${true} action="Send back to the topic" isReady=${changed.length > 0} onSend=${send} onClose=${onClose}>
    <${Field} label="Key"><input name="key" autocomplete="off" disabled=${!canKey} value=${edited.key} onInput=${change("key")} /><//>
    <${Field} label="Headers" hint="One to a line: name: value"><textarea name="headers" class="mono short" disabled=${!canHeaders} value=${edited.headers} onInput=${change("headers")}></textarea><//>
    <${Field} label="Value"><textarea name="value" value=${edited.value} onInput=${change("value")}></textarea><//>
    <h3>What changes</h3>${changed.length ? html`<${Diff} before=${linesOf(before)} after=${linesOf(edited)} />` : html`<p class="hint">Nothing yet.</p>`}<//>`;
}

function Letter({ letter, onClose, onEdit }) {
  const isText = typeof letter.originalValue === "string" && letter.originalValue.length < 1 << 18;
  return html`<${Dialog} title=${`Dead letter ${letter.partition}/${letter.offset}`} isWide=${true} onClose=${onClose}>
    <div class="panel">
      <dl class="facts">
        <dt>Reason</dt><dd><${Tag} kind="bad">${letter.dlqReason}<//></dd>
        <dt>Error</dt><dd><pre class="payload">${letter.lastError || "none was given"}</pre></dd>
        <dt>Was</dt><dd>${letter.originalTopic}, partition ${letter.originalPartition}, offset ${count(letter.originalOffset)}, <${Time} at=${letter.originalTimestamp} /></dd>
        <dt>Group</dt><dd>${letter.group}, ${plural(letter.deliveryAttempts, "delivery attempt")}, last by ${letter.lastConsumer || "–"}</dd>
        <dt>Died</dt><dd><${Time} at=${letter.dlqTimestamp} /></dd>
        <dt>Key</dt><dd class="mono">${inFull(letter.originalKey)}</dd>
      </dl>
      <h3>Value</h3><${Payload} content=${letter.originalValue} label="value" headers=${letter.headers} />
      <h3>Headers</h3><${Headers} headers=${letter.headers} />
      ${may("redrive dead letters") && isText && html`<div class="row"><button class="main" onClick=${onEdit}>Edit and send back</button></div>`}
    </div><//>`;
}

function Counts({ groups, by, filter, onFilter }) {
  return html`<${Panel} title=${by === "reason" ? "By reason" : "By error"} isFlush=${true}><${Table} title=${`Dead letters by ${by}`} rows=${groups} columns=${[
    { title: by === "reason" ? "Reason" : "Error", kind: "name", cell: (one) => html`<button class="small" aria-pressed=${filter[by] === one[by]} onClick=${() => onFilter(by, one[by])}>${one[by] || "none was given"}</button>` },
    { title: "Count", kind: "number", cell: (one) => count(one.count) },
    { title: "Last", cell: (one) => html`<${Time} at=${one.last} />` },
  ]} /><//>`;
}

function Letters({ topic }) {
  const [filter, setFilter] = useState({});
  const [from, setFrom] = useState(undefined);
  const [open, setOpen] = useState(null);
  const live = useLive(async (signal) => {
    const path = route`/topics/${topic}/dlq`;
    const [reasons, errors, page] = await Promise.all([
      get(path, { group_by: "reason" }, signal),
      get(path, { group_by: "error" }, signal),
      get(path, { ...filter, limit: PAGE, cursor: from }, signal),
    ]);
    const chosen = filter.error !== undefined ? errors.groups.filter((one) => one.error === filter.error) : reasons.groups.filter((one) => !filter.reason || one.reason === filter.reason);
    const matching = chosen.reduce((sum, one) => sum + one.count, 0);
    return { reasons: reasons.groups, errors: errors.groups, page, matching, chosen };
  }, [topic, filter.reason, filter.error, from], COUNT_EVERY_MS);
  const close = () => setOpen(null);
  const narrow = (next) => {
    setFilter(next);
    setFrom(undefined);
  };
  const choose = (by, value) => narrow(filter[by] === value ? {} : { [by]: value });
  const discard = async () => {
    let discarded = 0;
    let done;
    // One request discards 10,000 at most.
    do {
      done = await post(route`/topics/${topic}/dlq/discard`, { filter: open.seen });
      discarded += done.discarded;
    } while (done.discarded && discarded < open.total);
    tell(`${plural(discarded, "dead letter")} discarded.`);
    close();
    live.refresh();
  };
  const isFiltered = Object.keys(filter).length > 0;
  return html`<${Loaded} live=${live}>${({ reasons, errors, page, matching, chosen }) => html`${reasons.length === 0
    ? html`<${Panel}><${Empty} title="No dead letters" text="A message that fails too often, or is rejected, is kept here." command=${`penstock dlq list ${topic}`} /><//>`
    : html`
      <div class="columns"><${Counts} by="reason" groups=${reasons} filter=${filter} onFilter=${choose} />
        <${Counts} by="error" groups=${errors} filter=${filter} onFilter=${choose} /></div>
      <${Panel} isFlush=${true} title=${`${plural(matching, "dead letter")}${isFiltered ? ", filtered" : ""}`} actions=${html`
          ${isFiltered && html`<button onClick=${() => narrow({})}>Show all</button>`}
          ${matching > 0 && may("redrive dead letters") && html`<button class="main" onClick=${() => setOpen({ is: "redrive", seen: seenOf(filter, chosen), total: matching })}>Send back</button>`}
          ${matching > 0 && may("discard dead letters") && html`<button class="danger" onClick=${() => setOpen({ is: "discard", seen: seenOf(filter, chosen), total: matching })}>Discard</button>`}`}>
        <${Table} title="Dead letters" rows=${page.dead_letters} columns=${[
          { title: "Letter", kind: "tight", cell: (one) => html`<button class="small" aria-label=${`Open dead letter ${one.partition} ${one.offset}`} onClick=${() => setOpen({ letter: one })}>${one.partition}/${count(one.offset)}</button>` },
          { title: "Died", cell: (one) => html`<${Time} at=${one.dlqTimestamp} />` },
          { title: "Group", kind: "name", cell: (one) => one.group },
          { title: "Attempts", kind: "number", cell: (one) => one.deliveryAttempts },
          { title: "Error", cell: (one) => html`<${Preview} content=${one.lastError} />` },
          { title: "Value", cell: (one) => html`<${Preview} content=${one.originalValue} />` },
        ]} empty=${html`<${Empty} title="None match" />`} />
        ${(from || page.cursor) && html`<div class="more">
          <button disabled=${!from} onClick=${() => setFrom(undefined)}>The first</button>
          <button disabled=${!page.cursor} onClick=${() => setFrom(page.cursor)}>Later</button>
          <span>${PAGE} at a time</span></div>`}<//>`}
      ${open?.is === "redrive" && html`<${Redrive} topic=${topic} seen=${open.seen} total=${open.total} onClose=${close} onDone=${live.refresh} />`}
      ${open?.is === "discard" && html`<${ConfirmName} title="Discard dead letters" name=${topic} action="Discard" onSend=${discard} onClose=${close}>
        ${plural(open.total, "dead letter")} will not be listed or sent back any more.<//>`}
      ${open?.letter && !open.isEditing && html`<${Letter} letter=${open.letter} onClose=${close} onEdit=${() => setOpen({ ...open, isEditing: true })} />`}
      ${open?.isEditing && html`<${Edit} topic=${topic} letter=${open.letter} onClose=${close} onDone=${() => { close(); live.refresh(); }} />`}`}<//>`;
}

export function DeadLetters({ name }) {
  const topics = useTopics();
  return html`
    <${Heading} title=${name ? `Dead letters of ${name}` : "Dead letters"} lead="Messages that a group gave up, with the reason. They wait here until they are sent back or discarded." />
    <${Loaded} live=${topics}>${(names) => {
      const own = names.filter((one) => !isDeadLetterTopic(one));
      const withLetters = own.filter((one) => names.includes(`${one}.dlq`));
      return html`<div class="row end"><${TopicChoice} word="dead-letters" name=${name} topics=${own} /></div>
        ${!name && (withLetters.length
          ? html`<${Panel} title="Topics that have had dead letters"><ul>${withLetters.map((one) => html`<li><a href=${`#/dead-letters/${encodeURIComponent(one)}`}>${one}</a></li>`)}</ul><//>`
          : html`<${Panel}><${Empty} title="No topic has had a dead letter" text="A message that fails too often, or is rejected, is kept until you decide." command="penstock dlq list orders" /><//>`)}`;
    }}<//>
    ${name && html`<${Letters} key=${name} topic=${name} />`}`;
}
