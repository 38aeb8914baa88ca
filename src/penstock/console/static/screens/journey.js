// The journey of a message: everything that happened to it, for every group.
import { get, route } from "../api.js";
import { count, span } from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Loaded, Notice, Tag, Time } from "../parts.js";

const FAILURES = /failed|nacked|rejected|expired|dlq|timeout/;
const KINDS = { completed: "good", failed: "bad", expired: "bad", retrying: "warning", delayed: "warning" };

function Event({ span: one }) {
  return html`<li class=${FAILURES.test(one.event_type) ? "bad" : ""}>
    <b>${one.event_type}</b> <span class="hint"><${Time} at=${one.timestamp} />${one.duration_ns > 0 ? `, after ${span(one.duration_ns / 1e9)}` : ""}</span>
    <div>${[one.consumer_group && `group ${one.consumer_group}`, one.consumer_id && `consumer ${one.consumer_id}`,
      `${one.topic}/${one.partition}/${count(one.offset)}`].filter(Boolean).join(", ")}</div>
    ${one.error && html`<div class="mono">${one.error}</div>`}</li>`;
}

export function Journey({ topic, partition, offset }) {
  const live = useLive((signal) => get(route`/topics/${topic}/partitions/${partition}/messages/${offset}/journey`, {}, signal), [topic, partition, offset]);
  return html`<${Loaded} live=${live}>${(found) => html`
    <div class="row"><${Tag} kind=${KINDS[found.status] ?? "plain"}>${found.status}<//>
      ${found.groups.map((one) => html`<span>${one.group}: <b>${one.status}</b>, ${one.attempts} attempts</span>`)}</div>
    ${found.gaps.map((gap) => html`<${Notice} kind="warning">${gap}<//>`)}
    <ol class="journey">${found.spans.map((one) => html`<${Event} key=${one.span_id} span=${one} />`)}</ol>`}<//>`;
}
