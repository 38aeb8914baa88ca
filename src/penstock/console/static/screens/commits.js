// Named commits: what writers stage under a name, and the last commit of each.
import { getAll, post, route } from "../api.js";
import { bytes, count, plural, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Empty, Loaded, Panel, Table, Tag, tell } from "../parts.js";
import { may } from "../session.js";

const placesOf = (one) => one.offsets.map((place) => `${place.topic}/${place.partition}: ${plural(place.count, "message")} at ${count(place.offset)}`).join("; ");

export function Commits() {
  const [forgetting, setForgetting] = useState(null);
  const live = useLive((signal) => getAll("/commits", "commits", {}, signal), []);
  const forget = async () => {
    await post(route`/commits/${forgetting.name}/reset`);
    tell(`${forgetting.name} is forgotten: any writer may begin anew.`);
    setForgetting(null);
    live.refresh();
  };
  return html`
    <${Loaded} live=${live}>${(commits) => html`<${Panel} title="Named commits" isFlush=${true}><${Table} title="Named commits" rows=${commits} keyOf=${(one) => one.name} columns=${[
      { title: "Name", kind: "name", cell: (one) => one.name },
      { title: "Owner", cell: (one) => one.owner },
      { title: "Last sequence", kind: "number", cell: (one) => count(one.sequence) },
      { title: "Writer", kind: "name", cell: (one) => one.writer ?? "" },
      { title: "Committed", kind: "number", cell: (one) => (one.age_ms === null ? "never" : `${span(one.age_ms / 1000)} ago`) },
      { title: "State", cell: (one) => (one.sequence === null ? html`<${Tag}>staged<//>` : one.complete ? html`<${Tag} kind="good">complete<//>` : html`<${Tag} kind="warning">a partition has to catch up<//>`) },
      { title: "Messages", cell: placesOf },
      { title: "Staged for the next", cell: (one) => (one.staging_count ? `${plural(one.staged_messages, "message")}, ${bytes(one.staged_bytes)}, in ${plural(one.staging_count, "staging")}` : "") },
      ...(may("abort transactions of others")
        ? [{ title: "Change", cell: (one) => html`<button class="small danger" aria-label=${`Forget ${one.name}`} onClick=${() => setForgetting(one)}>Forget</button>` }]
        : []),
    ]} empty=${html`<${Empty} title="No named commits yet" text="A batch job stages messages under a name, and its commit publishes each sequence once: the sink of Spark does." command="penstock commits list" />`} /><//>`}<//>
    ${forgetting && html`<${ConfirmName} title="Forget a name of commits" name=${forgetting.name} action="Forget" onSend=${forget} onClose=${() => setForgetting(null)}>
      What is staged for it is dropped, and a sequence that was committed can be committed again.<//>`}`;
}
