// Schedules of a topic: messages that come again and again. Paused, run now, moved to other times, deleted.
import { call, get, post, route } from "../api.js";
import { count, plural, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Act, ConfirmName, Empty, Field, FormDialog, Loaded, Panel, Table, Tag, tell, Time } from "../parts.js";
import { Preview } from "../payload.js";
import { may } from "../session.js";

const pathOf = (one) => route`/topics/${one.topic}/schedules/${one.key}`;
const timingOf = (one) => (one.cron ? `${one.cron} (${one.timezone})` : `every ${span(one.every_ms / 1000)}`);
/** By due time; those that are paused, or that cannot be told, come last. */
const byDue = (left, right) => (left.next_due ?? "~").localeCompare(right.next_due ?? "~");

const everyOf = (schedule) => (schedule?.every_ms ? `${schedule.every_ms}ms` : "");

/** What a form says of the timing: cron in a time zone, or a span. Of both, the one that is new counts. */
function timing(fields, schedule) {
  const [cron, timezone, every] = [fields.cron, fields.timezone, fields.every].map((one) => one.trim());
  const isCron = cron !== (schedule?.cron ?? "");
  const isEvery = every !== everyOf(schedule);
  if (cron && every && isCron === isEvery) throw new Error("Say when by a cron expression or by a span, not by both.");
  if (every && (isEvery || !cron)) return { every };
  return { cron, ...(timezone ? { timezone } : {}) };
}

const Timing = ({ schedule }) => html`
  <${Field} label="Cron" hint="Minute, hour, day, month, weekday: 0 9 * * 1-5"><input name="cron" class="mono" autocomplete="off" defaultValue=${schedule?.cron ?? ""} /><//>
  <${Field} label="Time zone" hint="Empty: UTC"><input name="timezone" autocomplete="off" placeholder="Europe/Berlin" defaultValue=${schedule?.timezone ?? ""} /><//>
  <${Field} label="Or every" hint="30s, 5m, 2h or 3d"><input name="every" autocomplete="off" defaultValue=${everyOf(schedule)} /><//>`;

function Create({ topic, onClose, onDone }) {
  const send = async (fields) => {
    const body = { key: fields.key.trim(), value: fields.value, missed: fields.missed, ...timing(fields) };
    if (fields.message_key) body.message_key = fields.message_key;
    const made = await post(route`/topics/${topic}/schedules`, body);
    tell(`${made.key} comes at ${made.next_due}.`);
    onDone();
  };
  return html`<${FormDialog} title=${`A schedule of ${topic}`} action="Create schedule" onSend=${send} onClose=${onClose}>
    <${Field} label="Name"><input name="key" required autocomplete="off" /><//>
    <${Timing} />
    <${Field} label="Value"><textarea name="value"></textarea><//>
    <${Field} label="Key of the messages"><input name="message_key" autocomplete="off" /><//>
    <${Field} label="After a stop publish"><select name="missed"><option value="latest">the latest that was missed</option><option value="all">all that were missed</option><option value="skip">none of them</option></select><//><//>`;
}

function Move({ schedule, onClose, onDone }) {
  const send = async (fields) => {
    const moved = await call("PATCH", pathOf(schedule), { body: timing(fields, schedule) });
    tell(`${moved.key} comes ${timingOf(moved)}.`);
    onDone();
  };
  return html`<${FormDialog} title=${`Other times for ${schedule.key}`} action="Reschedule" onSend=${send} onClose=${onClose}><${Timing} schedule=${schedule} /><//>`;
}

export function Schedules({ topic }) {
  const [open, setOpen] = useState(null);
  const live = useLive((signal) => get(route`/topics/${topic}/schedules`, {}, signal), [topic]);
  const close = () => setOpen(null);
  const done = () => {
    close();
    live.refresh();
  };
  const pause = async (one) => {
    await call("PATCH", pathOf(one), { body: { paused: !one.paused } });
    live.refresh();
  };
  const ran = (made) => `${made.key} is published at offset ${made.offset} of partition ${made.partition}.`;
  const remove = async () => {
    await call("DELETE", pathOf(open.remove));
    tell(`${open.remove.key} comes no more.`);
    done();
  };
  const actions = (one) => html`<div class="row">
    <${Act} class="small" label=${`${one.paused ? "Resume" : "Pause"} ${one.key}`} work=${() => pause(one)}
      done=${`${one.key} ${one.paused ? "goes on" : "is paused"}.`}>${one.paused ? "Resume" : "Pause"}<//>
    <${Act} class="small" label=${`Run ${one.key} now`} work=${() => post(`${pathOf(one)}/run`)} done=${ran}>Run now<//>
    <button class="small" aria-label=${`Move ${one.key}`} onClick=${() => setOpen({ move: one })}>Reschedule</button>
    <button class="small danger" aria-label=${`Delete ${one.key}`} onClick=${() => setOpen({ remove: one })}>Delete</button></div>`;
  const mayChange = may("create, change, run or delete schedules");
  return html`<${Loaded} live=${live}>${({ schedules }) => html`
    <${Panel} isFlush=${true} title=${plural(schedules.length, "schedule")} actions=${mayChange && html`<button onClick=${() => setOpen("create")}>Create schedule</button>`}>
      <${Table} title="Schedules" rows=${[...schedules].sort(byDue)} keyOf=${(one) => one.key} columns=${[
        { title: "Next", kind: "tight", cell: (one) => (one.paused ? html`<${Tag} kind="warning">paused<//>` : one.problem ? html`<${Tag} kind="bad">${one.problem}<//>` : html`<${Time} at=${one.next_due} />`) },
        { title: "Schedule", kind: "name", cell: (one) => one.key },
        { title: "When", cell: (one) => html`<code>${timingOf(one)}</code>` },
        { title: "Last", kind: "tight", cell: (one) => html`<${Time} at=${one.last_due} />` },
        { title: "Missed ones", cell: (one) => one.missed },
        { title: "Partition", kind: "number", cell: (one) => count(one.partition) },
        { title: "Value", cell: (one) => html`<${Preview} content=${one.value} />` },
        ...(mayChange ? [{ title: "Change", cell: actions }] : []),
      ]} empty=${html`<${Empty} title="No message comes again and again" text="A schedule publishes a message at times of a clock." command=${`penstock schedule create ${topic} nightly go --cron "0 3 * * *"`} />`} /><//>
    ${open === "create" && html`<${Create} topic=${topic} onClose=${close} onDone=${done} />`}
    ${open?.move && html`<${Move} schedule=${open.move} onClose=${close} onDone=${done} />`}
    ${open?.remove && html`<${ConfirmName} title="Delete a schedule" name=${open.remove.key} action="Delete schedule" onSend=${remove} onClose=${close}>
      Its message comes no more. What was published stays.<//>`}`}<//>`;
}
