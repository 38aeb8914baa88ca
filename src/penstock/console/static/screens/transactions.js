// Transactions: the open or last one of every producer; an open one can be aborted.
import { get, getAll, post, route } from "../api.js";
import { bytes, count, plural, span } from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Empty, Heading, Loaded, Panel, Table, Tag, tell } from "../parts.js";
import { may } from "../session.js";
import { Commits } from "./commits.js";

const KINDS = { committed: "good", aborted: "plain", open: "warning" };
const isOpen = (one) => one.open_ms !== null;

function placesOf(one) {
  const staged = one.participants.map((place) => `${place.topic}/${place.partition}: ${plural(place.messages, "message")} staged`);
  const stored = one.offsets.map((place) => `${place.topic}/${place.partition}: ${plural(place.count, "message")} at ${count(place.offset)}`);
  return [...staged, ...stored].join("; ");
}

export function Transactions() {
  const [aborting, setAborting] = useState(null);
  const live = useLive(async (signal) => {
    const [transactions, stats] = await Promise.all([getAll("/transactions", "transactions", {}, signal), get("/transactions/stats", {}, signal)]);
    return { transactions, stats };
  }, []);
  const abort = async () => {
    await post(route`/transactions/${aborting.transaction_id}/force-abort`);
    tell("Aborted: nothing of it will be seen.");
    setAborting(null);
    live.refresh();
  };
  return html`
    <${Heading} title="Transactions" lead="What a transaction stages is seen by no reader before its commit." />
    <${Loaded} live=${live}>${({ transactions, stats }) => html`
      <p class="lead">${plural(stats.staged_messages, "message")} staged, ${bytes(stats.staged_bytes)}${stats.oldest_open_ms === null ? "" : `; the oldest is open for ${span(stats.oldest_open_ms / 1000)}`}.</p>
      <${Panel} title="Transactions of producers" isFlush=${true}><${Table} title="Transactions" rows=${transactions} keyOf=${(one) => one.producer_id} columns=${[
        { title: "Producer", kind: "name", cell: (one) => one.transactional_id || String(one.producer_id) },
        { title: "Transaction", cell: (one) => html`<code>${one.transaction_id}</code>` },
        { title: "State", cell: (one) => html`<${Tag} kind=${KINDS[one.state.toLowerCase()] ?? "plain"}>${one.state}<//>` },
        { title: "Open for", kind: "number", cell: (one) => (isOpen(one) ? span(one.open_ms / 1000) : "") },
        { title: "Messages", cell: placesOf },
        { title: "Reason", cell: (one) => one.reason },
        ...(may("abort transactions of others")
          ? [{ title: "Change", cell: (one) => isOpen(one) && html`<button class="small danger" aria-label=${`Abort ${one.transaction_id}`} onClick=${() => setAborting(one)}>Abort</button>` }]
          : []),
      ]} empty=${html`<${Empty} title="No transactions yet" text="A producer with a transactional id stores messages of many topics together, or none of them." command="penstock transactions list" />`} /><//>`}<//>
    <${Commits} />
    ${aborting && html`<${ConfirmName} title="Abort a transaction" name=${aborting.transactional_id || aborting.transaction_id} action="Abort" onSend=${abort} onClose=${() => setAborting(null)}>
      Its producer is told with its next request; nothing that it staged is ever seen.<//>`}`;
}
