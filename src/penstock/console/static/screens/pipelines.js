// Pipelines that reported lately: their lag, rate and last commit.
import { getAll } from "../api.js";
import { count, rate, span } from "../format.js";
import { html, useRef } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Heading, Loaded, Panel, Table, Tag, Time } from "../parts.js";
import { topicLink } from "./topics.js";

const KINDS = { running: "good", waiting: "good", starting: "warning", lost: "bad", failed: "bad" };

/** Messages a second between the last two reports, which come when the pipeline sends them; null of a pipeline that began anew. */
function rateOf(one, before) {
  if (!before || one.messages < before.messages) return null;
  if (one.reported_at === before.reported_at) return before.rate;
  return ((one.messages - before.messages) * 1000) / (new Date(one.reported_at) - new Date(before.reported_at));
}

export function Pipelines() {
  const before = useRef(new Map());
  const live = useLive(async (signal) => {
    const found = await getAll("/pipelines", "pipelines", {}, signal);
    const rows = found.map((one) => ({ ...one, rate: rateOf(one, before.current.get(one.name)) }));
    before.current = new Map(rows.map((one) => [one.name, one]));
    return rows;
  }, []);
  return html`
    <${Heading} title="Pipelines" lead="Archives, loads and Spark streams that report to this broker." />
    <${Loaded} live=${live}>${(pipelines) => html`<${Panel} isFlush=${true}><${Table} title="Pipelines" rows=${pipelines} columns=${[
      { title: "Pipeline", kind: "name", cell: (one) => one.name },
      { title: "Kind", cell: (one) => one.kind },
      { title: "State", cell: (one) => html`<${Tag} kind=${KINDS[one.state] ?? "plain"}>${one.state}<//>` },
      { title: "Topics", cell: (one) => one.topics.map((topic, index) => html`${index ? ", " : ""}${topicLink(topic)}`) },
      { title: "Target", kind: "name", cell: (one) => one.target },
      { title: "Messages", kind: "number", cell: (one) => count(one.messages) },
      { title: "Per second", kind: "number", cell: (one) => rate(one.rate) },
      { title: "Commits", kind: "number", cell: (one) => count(one.commits) },
      { title: "Last commit", kind: "tight", cell: (one) => html`<${Time} at=${one.committed_at} />` },
      { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
      { title: "Reported", kind: "number", cell: (one) => `${span(one.seconds_ago)} ago` },
      { title: "Error", cell: (one) => one.error },
    ]} empty=${html`<${Empty} title="No pipeline has reported since the broker started" text="A pipeline brings topics into a lake, or files into a topic." command="penstock pipeline run lake.yaml" />`} /><//>`}<//>`;
}
