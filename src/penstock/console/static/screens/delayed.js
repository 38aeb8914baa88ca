// Delayed messages by due time or key: cancelled, or moved to another time; and schedules, whose messages come again.
import { call, get, route } from "../api.js";
import { count, moment, plural, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Empty, Field, Filter, FormDialog, Heading, Loaded, Notice, Panel, Table, Tag, tell, Time } from "../parts.js";
import { Preview, preview } from "../payload.js";
import { may } from "../session.js";
import { TopicChoice, useTopics } from "./messages.js";
import { Schedules } from "./schedules.js";

const pathOf = (one) => route`/topics/${one.topic}/delayed/${one.partition}/${one.offset}`;

function Move({ message, onClose, onDone }) {
  const send = async (fields) => {
    const body = fields.at ? { deliver_at: moment(fields.at) } : { delay: fields.delay };
    const moved = await call("PATCH", pathOf(message), { body });
    tell(`It comes at ${moved.deliver_at}.`);
    onDone();
  };
  return html`<${FormDialog} title="Deliver at another time" action="Reschedule" onSend=${send} onClose=${onClose}>
    <${Field} label="From now" hint="30s, 5m, 2h or 3d; 0s: at once"><input name="delay" autocomplete="off" defaultValue="0s" /><//>
    <${Field} label="Or at"><input name="at" type="datetime-local" step="1" /><//><//>`;
}

function List({ topic }) {
  const [open, setOpen] = useState(null);
  const [key, setKey] = useState("");
  const live = useLive(async (signal) => {
    const [page, stats] = await Promise.all([get(route`/topics/${topic}/delayed`, { limit: 1000 }, signal), may("see stats") ? get("/delay/stats", {}, signal) : null]);
    return { ...page, pending: stats?.by_topic[topic]?.pending };
  }, [topic], 3000);
  const close = () => setOpen(null);
  const done = () => {
    close();
    live.refresh();
  };
  const cancel = async () => {
    await call("DELETE", pathOf(open.cancel));
    tell("Cancelled: it will not come.");
    done();
  };
  const nameOf = (one) => (one.delay_key === null ? `${one.partition}/${one.offset}` : preview(one.delay_key));
  const actions = (one) => html`<div class="row">
    <button class="small" aria-label=${`Reschedule ${nameOf(one)}`} onClick=${() => setOpen({ move: one })}>Reschedule</button>
    <button class="small danger" aria-label=${`Cancel ${nameOf(one)}`} onClick=${() => setOpen({ cancel: one })}>Cancel</button></div>`;
  return html`<${Loaded} live=${live}>${({ messages, unreadable, pending, cursor }) => html`
    ${unreadable > 0 && html`<${Notice} kind="bad">${plural(unreadable, "message")} cannot be read: the disk has damaged them.<//>`}
    <${Panel} isFlush=${true} title=${pending === undefined ? "The next to come" : `${plural(pending, "message")} waiting, the next to come first`}
        actions=${html`<${Filter} label="Filter by business key" value=${key} onChange=${setKey} />`}>
      <${Table} title="Delayed messages" rows=${messages.filter((one) => !key || (one.delay_key !== null && preview(one.delay_key).includes(key)))} keyOf=${(one) => `${one.partition}/${one.offset}`} columns=${[
        { title: "Due", kind: "tight", cell: (one) => html`<${Time} at=${one.deliver_at} />` },
        { title: "In", kind: "number", cell: (one) => span(Math.max(0, one.time_remaining / 1000)) },
        { title: "Place", kind: "tight", cell: (one) => `${one.partition}/${count(one.offset)}` },
        { title: "Business key", cell: (one) => (one.delay_key === null ? "" : html`<${Preview} content=${one.delay_key} />`) },
        { title: "Value", cell: (one) => (one.damage ? html`<${Tag} kind="bad">${one.damage}<//>` : html`<${Preview} content=${one.value} />`) },
        ...(may("cancel or reschedule delayed messages") ? [{ title: "Change", cell: actions }] : []),
      ]} empty=${key ? html`<${Empty} title=${`No key of these messages has “${key}” in it`} />` : html`<${Empty} title="No message waits for its time" text="Publish with a delay or a moment, and it comes then." command=${`penstock produce ${topic} reminder --delay 2h`} />`} />
      ${cursor && html`<p class="more">These are the next 1,000.</p>`}<//>
    ${open?.move && html`<${Move} message=${open.move} onClose=${close} onDone=${done} />`}
    ${open?.cancel && html`<${ConfirmName} title="Cancel a delayed message" name=${nameOf(open.cancel)} action="Cancel the message" onSend=${cancel} onClose=${close}>
      It will not come. Its value: <code>${preview(open.cancel.value)}</code><//>`}`}<//>`;
}

export function Delayed({ name }) {
  const topics = useTopics();
  return html`
    <${Heading} title=${name ? `Delayed messages of ${name}` : "Delayed messages"} lead="They are stored already, and no reader sees them before their time. Schedules publish theirs when they are due." />
    <${Loaded} live=${topics}>${(names) => (names.length || name
      ? html`<div class="row end"><${TopicChoice} word="delayed" name=${name} topics=${names} /></div>`
      : html`<${Panel}><${Empty} title="No topics yet" command="penstock topic create orders" /><//>`)}<//>
    ${name && html`<${List} key=${name} topic=${name} />${may("see schedules") && html`<${Schedules} key=${name} topic=${name} />`}`}`;
}
