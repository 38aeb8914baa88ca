// Pipelines that reported lately: their lag, rate and last commit.
import { getAll } from "../api.js";
import { count, span } from "../format.js";
import { html, useRef } from "../html.js";
import { useLive } from "../live.js";
import { Empty, Heading, Loaded, Panel, Table, Tag, Time } from "../parts.js";
import { topicLink } from "./topics.js";

const KINDS = { running: "good", waiting: "good", starting: "warning", lost: "bad", failed: "bad" };

export function Pipelines() {
  const before = useRef(new Map());
  const live = useLive(async (signal) => {
    const found = await getAll("/pipelines", "pipelines", {}, signal);
    const now = performance.now();
    const rows = found.map((one) => {
      const last = before.current.get(one.name);
      const rate = last ? ((one.messages - last.messages) * 1000) / (now - last.at) : null;
      return { ...one, rate };
    });
    before.current = new Map(found.map((one) => [one.name, { messages: one.messages, at: now }]));
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
      { title: "Per second", kind: "number", cell: (one) => (one.rate === null ? "–" : count(one.rate)) },
      { title: "Commits", kind: "number", cell: (one) => count(one.commits) },
      { title: "Last commit", kind: "tight", cell: (one) => html`<${Time} at=${one.committed_at} />` },
      { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
      { title: "Reported", kind: "number", cell: (one) => `${span(one.seconds_ago)} ago` },
      { title: "Error", cell: (one) => one.error },
    ]} empty=${html`<${Empty} title="No pipeline has reported since the broker started" text="A pipeline brings topics into a lake, or files into a topic." command="penstock pipeline run lake.yaml" />`} /><//>`}<//>`;
}
