// The overview: rates, lag, the oldest message that waits, the disk, the standbys, and what the last start found.
import { get } from "../api.js";
import { Curve } from "../curve.js";
import { bytes, count, plural, rate, span } from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Heading, Loaded, Notice, Panel, Table } from "../parts.js";
import { may } from "../session.js";

const RATES = [["published", "Published"], ["delivered", "Delivered"], ["acked", "Acked"], ["failed", "Failed"]];
const GROUPS_SHOWN = 5;
const LAGS_SHOWN = 10;
// The broker takes a row of the last hour as often.
const EVERY_MS = 10_000;
// To tell the lag of now the broker looks at every partition, so all consoles are told what it found a moment ago.
const LAGS_AGE = "5s";
const perSecond = (number) => `${rate(number)}/s`;

const Card = ({ title, value, note }) => html`<div class="card"><dt>${title}</dt><dd>${value}<small>${note ?? ""}</small></dd></div>`;

function Cards({ lags, recent, cluster }) {
  const last = (values) => values?.at(-1);
  return html`<dl class="cards">
    ${recent && RATES.map(([name, title]) => html`<${Card} title=${title} value=${perSecond(last(recent.rates[name]) ?? 0)} note="last 10 s" />`)}
    ${lags && html`
      <${Card} title="Lag" value=${count(lags.total)} note=${`messages, ${plural(lags.groups, "group")}`} />
      <${Card} title="Oldest unfinished" value=${lags.lag_seconds ? span(lags.lag_seconds) : "none"} note="its age" />
      <${Card} title="In flight" value=${count(lags.in_flight)} note="held by consumers" />`}
    ${recent && html`<${Card} title="Stored" value=${bytes(last(recent.stored_bytes))} note=${plural(last(recent.topics) ?? 0, "topic")} />
      <${Card} title="Disk free" value=${bytes(last(recent.disk_free_bytes))} note="where the data is" />`}
    ${cluster && html`<${Card} title="Machines in sync" value=${count(cluster.in_sync)} note=${`${cluster.min_isr} needed`} />`}
    ${cluster?.standbys?.map((one) => html`<${Card} title=${`Standby ${one.node}`} value=${one.is_in_sync ? "in sync" : "catching up"}
      note=${`${bytes(one.lag_bytes)}, ${span(one.lag_s)} behind`} />`)}
  </dl>`;
}

function Findings({ health }) {
  const { recovery = [], faulty = [], damaged = [], checks } = health;
  const place = (one) => (one.topic ? `${one.topic}/${one.partition}` : one.path);
  return html`
    ${health.status !== "pass" && html`<${Notice} kind="bad"><b>The broker needs a look.</b>
      <ul>${Object.entries(checks).filter(([, check]) => check.status !== "pass").map(([name, check]) => html`<li>${name}: ${check.message}</li>`)}</ul><//>`}
    ${faulty.length > 0 && html`<${Notice} kind="bad"><b>${plural(faulty.length, "faulty partition")}</b>: they refuse everything, the others serve.
      <ul>${faulty.map((one) => html`<li><code>${place(one)}</code> ${one.reason}</li>`)}</ul>
      <pre class="command" tabindex="0">penstock log verify ./data</pre><//>`}
    ${damaged.length > 0 && html`<${Notice} kind="bad"><b>${plural(damaged.length, "damaged batch")}</b>
      <ul>${damaged.map((one) => html`<li><code>${one.path}</code> at ${count(one.position)}: ${one.reason}</li>`)}</ul><//>`}
    ${recovery.length > 0 && html`<${Notice} kind="warning"><b>The last start put ${plural(recovery.length, "thing")} right</b>
      <ul>${recovery.slice(0, 20).map((one) => html`<li>${one.kind.replaceAll("_", " ")}: <code>${place(one)}</code> ${one.reason}</li>`)}</ul><//>`}`;
}

function Curves({ recent }) {
  const groups = Object.entries(recent.groups).slice(0, GROUPS_SHOWN);
  const lags = groups.length ? groups.map(([name, values]) => ({ name, values })) : [{ name: "all groups", values: recent.lag }];
  return html`<div class="columns">
    <${Panel} title="Messages per second, last hour"><${Curve} title="Messages per second" times=${recent.times} write=${perSecond}
      series=${RATES.map(([name, title]) => ({ name: title, values: recent.rates[name] }))} /><//>
    <${Panel} title="Lag, last hour"><${Curve} title="Lag in messages" times=${recent.times} write=${count} series=${lags} /><//>
  </div>`;
}

function Behind({ lags }) {
  return html`<${Panel} title="Groups, the furthest behind first" isFlush=${true}>
    <${Table} title="Groups by lag" rows=${lags.lags} columns=${[
      { title: "Group", kind: "name", cell: (one) => html`<a href=${`#/groups/${encodeURIComponent(one.group)}`}>${one.group}</a>` },
      { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
      { title: "Oldest", kind: "number", cell: (one) => span(one.lag_seconds) },
      { title: "In flight", kind: "number", cell: (one) => count(one.in_flight) },
      { title: "Retrying", kind: "number", cell: (one) => count(one.waiting) },
      { title: "Given up", kind: "number", cell: (one) => count(one.dead) },
    ]} empty=${html`<${Empty} title="No group reads anything yet" text="A group begins with its first consumer." command="penstock consume orders --group billing" />`} /><//>`;
}

export function Overview() {
  const health = useLive((signal) => get("/readyz", { verbose: "yes" }, signal), [], EVERY_MS);
  const lags = useLive((signal) => (may("see groups") ? get("/stats/lag", { limit: LAGS_SHOWN, max_age: LAGS_AGE }, signal) : null), [], EVERY_MS);
  const recent = useLive((signal) => (may("see stats") ? get("/stats/recent", {}, signal) : null), [], EVERY_MS);
  // A broker that has no standby has no role, and no such page.
  const role = health.data?.role ?? null;
  const cluster = useLive((signal) => (role && may("see stats") ? get("/cluster", {}, signal) : null), [role], EVERY_MS);
  return html`
    <${Heading} title="Overview" lead=${health.data && `Broker ${health.data.broker.node_id}, version ${health.data.broker.version}, up for ${span(parseFloat(health.data.uptime))}.`} />
    <${Loaded} live=${health}>${(data) => html`<${Findings} health=${data} />`}<//>
    ${[lags, recent, cluster].map((one) => one.error && html`<${Notice} kind="bad">${one.error.message}<//>`)}
    <${Cards} lags=${lags.data} recent=${recent.data} cluster=${cluster.data} />
    ${recent.data && html`<${Curves} recent=${recent.data} />`}
    ${lags.data && html`<${Behind} lags=${lags.data} />`}`;
}
