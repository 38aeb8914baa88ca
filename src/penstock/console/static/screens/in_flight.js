// In flight: which consumer holds which message until when; release, extend, or make a dead letter.
import { get, getAll, post, route } from "../api.js";
import { count, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { Act, ConfirmName, Empty, Field, Heading, Loaded, Panel, Table, tell, Time } from "../parts.js";
import { may } from "../session.js";

const secondsLeft = (deadline) => (new Date(deadline).valueOf() - Date.now()) / 1000;

function outcome(answer, word) {
  const results = answer.results ?? [answer];
  const done = results.filter((one) => one.success).length;
  return `${done} of ${results.length} ${word}.`;
}

function Held({ group, held, isCut, onDone }) {
  const [chosen, setChosen] = useState(new Set());
  const [isBurying, setBurying] = useState(false);
  const here = held.filter((one) => chosen.has(one.receipt_handle));
  const receipts = { receipt_handles: here.map((one) => one.receipt_handle) };
  const toggle = (receipt) => {
    const next = new Set(chosen);
    if (!next.delete(receipt)) next.add(receipt);
    setChosen(next);
  };
  const act = async (path, body) => {
    const answer = await post(path, body);
    setChosen(new Set());
    onDone();
    return answer;
  };
  const bury = async () => {
    const answer = await post(route`/groups/${group}/inflight/dead-letter`, { ...receipts, reason: "by hand, in the console" });
    tell(outcome(answer, "are dead letters"));
    setBurying(false);
    setChosen(new Set());
    onDone();
  };
  const actions = html`
    <${Act} isOff=${!here.length} work=${() => act(route`/groups/${group}/inflight/release`, receipts)} done=${(answer) => outcome(answer, "released")}>Release<//>
    <${Act} isOff=${!here.length} work=${() => act(route`/groups/${group}/inflight/extend`, { ...receipts, timeout: "60s" })} done=${(answer) => outcome(answer, "extended")}>Extend by 60 s<//>
    <button class="danger" disabled=${!here.length} onClick=${() => setBurying(true)}>Dead-letter</button>`;
  const canAct = may("reset or delete a group");
  return html`<${Panel} title=${`Held by members of ${group}`} isFlush=${true} actions=${canAct && actions}>
    <${Table} title="Messages in flight" rows=${held} keyOf=${(one) => one.receipt_handle} columns=${[
      ...(canAct ? [{ title: "Choose", cell: (one) => html`<input type="checkbox" aria-label=${`Choose ${one.topic} ${one.partition} ${one.offset}`} checked=${chosen.has(one.receipt_handle)} onChange=${() => toggle(one.receipt_handle)} />` }] : []),
      { title: "Message", kind: "name", cell: (one) => html`<a href=${`#/messages/${encodeURIComponent(one.topic)}?partition=${one.partition}&offset=${one.offset}`}>${one.topic}/${one.partition}/${count(one.offset)}</a>` },
      { title: "Consumer", kind: "name", cell: (one) => one.consumer },
      { title: "Attempt", kind: "number", cell: (one) => one.delivery_count },
      { title: "Held since", cell: (one) => html`<${Time} at=${one.last_delivery} />` },
      { title: "Comes back in", kind: "number", cell: (one) => span(Math.max(0, secondsLeft(one.deadline))) },
    ]} empty=${html`<${Empty} title="No message is held now" text="What a consumer takes is held until it answers or its time is over." command=${`penstock consume orders --group ${group}`} />`} />
    ${isCut && html`<p class="more">These are the first ${count(held.length)}; there are more.</p>`}
    ${isBurying && html`<${ConfirmName} title="Make dead letters" name=${group} action="Dead-letter" onSend=${bury} onClose=${() => setBurying(false)}>
      ${count(here.length)} messages leave the queue of ${group} and are kept as dead letters.<//>`}<//>`;
}

export function InFlight({ name }) {
  const groups = useLive((signal) => getAll("/groups", "groups", { topics: true }, signal), [], 30_000);
  const live = useLive((signal) => (name ? get(route`/groups/${name}/inflight`, {}, signal) : null), [name], 3000);
  return html`
    <${Heading} title="In flight" lead="Messages that consumers hold and have not answered." />
    <${Loaded} live=${groups}>${(found) => (found.length || name
      ? html`<div class="row"><${Field} label="Group"><select onChange=${(event) => { location.hash = `#/in-flight/${encodeURIComponent(event.target.value)}`; }}>
          ${!name && html`<option value="">choose a group</option>`}
          ${found.map((one) => html`<option value=${one.group} selected=${one.group === name}>${one.group}</option>`)}</select><//></div>`
      : html`<${Panel}><${Empty} title="No groups yet" command="penstock consume orders --group billing" /><//>`)}<//>
    ${name && html`<${Loaded} live=${live}>${(found) => found && html`<${Held} group=${name} held=${found.in_flight} isCut=${Boolean(found.cursor)} onDone=${live.refresh} />`}<//>`}`;
}
