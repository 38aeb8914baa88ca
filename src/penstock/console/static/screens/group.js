// One group: its members, its lag by partition and over time, and a reset that says first what it would do.
import { call, get, post, route } from "../api.js";
import { Curve } from "../curve.js";
import { count, moment, plural, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Empty, Field, FormDialog, Heading, Loaded, Notice, Panel, Table, Tag, tell, Time } from "../parts.js";
import { may } from "../session.js";
import { topicLink } from "./topics.js";

function Members({ members, modes }) {
  const isShared = Object.values(modes).includes("shared");
  return html`<${Panel} title="Members" isFlush=${true}><${Table} title="Members" rows=${members} columns=${[
    { title: "Member", kind: "name", cell: (one) => one.member_id },
    { title: "Client", cell: (one) => one.client_id },
    { title: "Host", cell: (one) => one.host },
    { title: "Last poll", kind: "tight", cell: (one) => html`<${Time} at=${one.last_poll} />` },
    { title: "State", cell: (one) => (one.in_flight ? html`<${Tag} kind="good">busy<//>` : html`<${Tag}>idle<//>`) },
    { title: "In flight", kind: "number", cell: (one) => count(one.in_flight) },
    { title: "Partitions", cell: (one) => one.assigned_partitions.join(", ") || (isShared ? "any (shared)" : "none") },
    { title: "To release", cell: (one) => one.partitions_to_revoke.join(", ") },
  ]} empty=${html`<${Empty} title="No member now" text=${isShared ? "Of a shared group those are known that hold messages, or asked for some in the last minutes." : "Its progress is kept until one comes."} />`} /><//>`;
}

/** The state is that of assigned members; shared ones need none. */
const stateOf = ({ state, members }) => (state === "empty" && members.length ? "" : html`<${Tag}>${state}<//>`);

function Lag({ partitions }) {
  return html`<${Panel} title="Partitions" isFlush=${true}><${Table} title="Lag by partition" rows=${partitions} columns=${[
    { title: "Topic", kind: "name", cell: (one) => topicLink(one.topic) },
    { title: "Partition", kind: "number", cell: (one) => one.partition },
    { title: "Finished below", kind: "number", cell: (one) => count(one.floor) },
    { title: "End", kind: "number", cell: (one) => count(one.end) },
    { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
    { title: "Oldest", kind: "number", cell: (one) => span(one.lag_seconds) },
    { title: "In flight", kind: "number", cell: (one) => count(one.in_flight) },
    { title: "Finished above", kind: "number", cell: (one) => count(one.finished_above) },
  ]} /><//>`;
}

const STARTS = { earliest: "the earliest message", latest: "the end: only what comes from now on", offset: "an offset", time: "a time" };

function Reset({ group, topics, onClose, onDone }) {
  const [to, setTo] = useState("earliest");
  const [plan, setPlan] = useState(null);
  const bodyOf = (fields) => {
    const places = { offset: () => Number(fields.offset), time: () => moment(fields.time) };
    const body = { to: places[to] ? places[to]() : to };
    if (fields.topic) body.topic = fields.topic;
    return body;
  };
  const send = async (fields) => {
    if (plan === null) {
      const body = bodyOf(fields);
      const found = await post(route`/groups/${group}/offsets/reset`, { ...body, dry_run: true });
      setPlan({ body, partitions: found.partitions });
      return;
    }
    await post(route`/groups/${group}/offsets/reset`, { ...plan.body, force: fields.force === "on" });
    tell(`Group ${group} begins again.`);
    onDone();
  };
  const choice = html`
    <${Field} label="Begin again at"><select value=${to} onChange=${(event) => setTo(event.target.value)}>${Object.entries(STARTS).map(([word, title]) => html`<option value=${word} selected=${word === to}>${title}</option>`)}</select><//>
    ${to === "offset" && html`<${Field} label="Offset"><input name="offset" type="number" min="0" required /><//>`}
    ${to === "time" && html`<${Field} label="Time"><input name="time" type="datetime-local" step="1" required /><//>`}
    <${Field} label="Topic"><select name="topic"><option value="">all its topics</option>${topics.map((one) => html`<option>${one}</option>`)}</select><//>`;
  const outcome = plan && html`
    <p>This is what would happen. Receipts and attempts of messages in flight become void.</p>
    <${Table} title="What the reset would do" rows=${plan.partitions} columns=${[
      { title: "Topic", cell: (one) => one.topic },
      ...Object.keys(plan.partitions[0] ?? {}).filter((name) => name !== "topic").map((name) => ({ title: name.replaceAll("_", " "), kind: "number", cell: (one) => count(one[name]) })),
    ]} empty=${html`<${Empty} title="No partition would change" />`} />
    <label><input type="checkbox" name="force" /> also if members are in the group now</label>`;
  return html`<${FormDialog} title=${`Reset ${group}`} isWide=${plan !== null} isDanger=${plan !== null} action=${plan === null ? "What would happen?" : "Reset the group"} onSend=${send} onClose=${onClose}>
    ${plan === null ? choice : outcome}<//>`;
}

export function Group({ name }) {
  const [open, setOpen] = useState(null);
  const live = useLive(async (signal) => {
    const [group, lag] = await Promise.all([get(route`/groups/${name}`, {}, signal), get(route`/groups/${name}/lag`, {}, signal)]);
    return { group, lag };
  }, [name]);
  const recent = useLive((signal) => (may("see stats") ? get("/stats/recent", {}, signal) : null), [], 10_000);
  const remove = async () => {
    await call("DELETE", route`/groups/${name}`);
    tell(`Group ${name} is forgotten.`);
    location.hash = "#/groups";
  };
  const curve = recent.data && Object.hasOwn(recent.data.groups, name) && recent.data.groups[name];
  const done = () => {
    setOpen(null);
    live.refresh();
  };
  return html`
    <${Heading} title=${name}>
      <a class="button" href=${`#/in-flight/${encodeURIComponent(name)}`}>In flight</a>
      ${may("reset or delete a group") && html`<button onClick=${() => setOpen("reset")}>Reset</button>
        <button class="danger" onClick=${() => setOpen("delete")}>Delete</button>`}<//>
    <${Loaded} live=${live}>${({ group, lag }) => html`
      <p class="lead">${plural(lag.total, "message")} behind. ${stateOf(group)} ${Object.entries(group.modes).map(([topic, mode]) => `${topic}: ${mode}`).join("; ")}</p>
      ${(lag.faulty ?? []).length > 0 && html`<${Notice} kind="bad">${plural(lag.faulty.length, "partition")} cannot be used and are not counted.<//>`}
      ${curve && html`<${Panel} title="Lag, last hour"><${Curve} title="Lag in messages" times=${recent.data.times} write=${count} series=${[{ name, values: curve }]} /><//>`}
      <${Members} members=${group.members} modes=${group.modes} />
      <${Lag} partitions=${lag.partitions} />
      ${open === "reset" && html`<${Reset} group=${name} topics=${group.topics} onClose=${() => setOpen(null)} onDone=${done} />`}`}<//>
    ${open === "delete" && html`<${ConfirmName} title="Delete the group" name=${name} action="Delete group" onSend=${remove} onClose=${() => setOpen(null)}>
      Its progress, leases and attempts are forgotten. Messages stay.<//>`}`;
}
