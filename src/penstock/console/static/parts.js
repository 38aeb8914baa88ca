// What the screens are made of: headings, tables, empty states, dialogs, notices.
import { html, useEffect, useRef, useState } from "./html.js";
import { count, time } from "./format.js";

const ROWS_AT_ONCE = 100;
// Long enough to be read slowly; it can be closed before.
const SAID_MS = 30_000;

export const Time = ({ at }) => html`<time datetime=${at ?? ""} title=${at ?? ""}>${time(at)}</time>`;
export const Tag = ({ kind = "plain", children }) => html`<span class=${`tag ${kind}`}>${children}</span>`;

/** The heading of a screen, which gets the focus when the screen changes, and its actions. */
export function Heading({ title, lead, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Penstock`;
    heading.current.focus();
  }, [title]);
  return html`
    <div class="head"><h1 tabindex="-1" ref=${heading}>${title}</h1><div class="row">${children}</div></div>
    ${lead && html`<p class="lead">${lead}</p>`}`;
}

/** What is shown of something live: the error, that it is on its way, or `children(data)`. */
export function Loaded({ live, children }) {
  const { data, error } = live;
  return html`
    ${error && html`<${Notice} kind="bad"><span role="alert">${data === null ? "" : "Not up to date: "}${error.message}</span><//>`}
    ${data === null && !error && html`<p class="hint" role="status">Loading…</p>`}
    ${data !== null && children(data)}`;
}

/** Text of the reference: `words` in backticks are code, and of a link its text stays. */
export function Prose({ text }) {
  const plain = text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
  return html`<span>${plain.split("`").map((piece, index) => (index % 2 ? html`<code>${piece}</code>` : piece))}</span>`;
}

export const Notice = ({ kind = "", children }) => html`<div class=${`notice ${kind}`}>${children}</div>`;

/** Nothing is there yet: says so, and which command changes that. */
export function Empty({ title, text, command }) {
  return html`<div class="empty"><b>${title}</b>${text && html`<span>${text}</span>`}
    ${command && html`<pre class="command" tabindex="0">${command}</pre>`}</div>`;
}

export function Panel({ title, actions, children, isFlush = false }) {
  return html`<section class=${`panel ${isFlush ? "flush" : ""}`}>
    ${title && html`<div class="head"><h2>${title}</h2>${actions && html`<div class="row">${actions}</div>`}</div>`}
    ${children}</section>`;
}

/**
 * A table; `columns` are `{title, cell(row), kind}`, kind being number, name or tight. Of many rows the first hundred
 * are laid out, and more when asked for. With `keyOf(row)` the focus stays with its row when others come and go.
 */
export function Table({ title, columns, rows, empty, keyOf }) {
  const [most, setMost] = useState(ROWS_AT_ONCE);
  if (!rows.length) return empty;
  const left = rows.length - most;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${title}>
      <table><caption class="hidden-label">${title}</caption>
        <thead><tr>${columns.map((one) => html`<th scope="col" class=${one.kind ?? ""}>${one.title}</th>`)}</tr></thead>
        <tbody>${rows.slice(0, most).map((row) => html`
          <tr key=${keyOf?.(row)}>${columns.map((one) => html`<td class=${one.kind ?? ""}>${one.cell(row)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
    ${left > 0 && html`<div class="more">
      <button onClick=${() => setMost(most + 10 * ROWS_AT_ONCE)}>Show more</button>${count(left)} more</div>`}`;
}

/** A list that can be narrowed by what the user types. */
export function Filter({ label, value, onChange }) {
  return html`<label><span class="hidden-label">${label}</span>
    <input type="search" placeholder=${label} value=${value} onInput=${(event) => onChange(event.target.value)} /></label>`;
}

/** Its input begins with `defaultValue`: a `value` that no `onInput` follows would be put back with each refresh of the screen. */
export function Field({ label, hint, children }) {
  return html`<label class="field">${label}${children}${hint && html`<span class="hint">${hint}</span>`}</label>`;
}

export function Dialog({ title, onClose, isWide = false, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    // It is taken away and not closed, so the focus goes back by hand.
    return () => queueMicrotask(() => opener.isConnected && opener.focus());
  }, []);
  return html`<dialog ref=${dialog} class=${isWide ? "wide" : ""} aria-label=${title} onClose=${onClose}>
    <div class="head"><h2>${title}</h2><button type="button" class="small" onClick=${onClose}>Close</button></div>
    ${children}</dialog>`;
}

/** A form in a dialog. `onSend(fields)` may throw: what went wrong is shown, and the dialog stays. */
export function FormDialog({ title, action, isDanger, isWide, isReady = true, onSend, onClose, children }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    setError(null);
    try {
      await onSend(fields);
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  return html`<${Dialog} title=${title} onClose=${onClose} isWide=${isWide}>
    <form class="stack" onSubmit=${send}>
      ${children}
      ${error && html`<${Notice} kind="bad"><span role="alert">${error.message}</span><//>`}
      <div class="row"><button class=${`main ${isDanger ? "danger" : ""}`} disabled=${isBusy || !isReady}>${action}</button></div>
    </form><//>`;
}

/** What destroys asks for the name of what is destroyed. */
export function ConfirmName({ title, name, action, onSend, onClose, children }) {
  const [typed, setTyped] = useState("");
  return html`<${FormDialog} title=${title} action=${action} isDanger=${true} isReady=${typed === name} onSend=${onSend} onClose=${onClose}>
    <div>${children}</div>
    <${Field} label=${html`<span>Type <code>${name}</code> to confirm</span>`}>
      <input name="confirmed" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /><//>
  <//>`;
}

const toasts = new Set();

/** Say what was done, at the foot of the page and to screen readers. */
export const tell = (text, kind = "good") => toasts.forEach((show) => show({ text, kind }));

export function Toast() {
  const [said, setSaid] = useState(null);
  useEffect(() => {
    toasts.add(setSaid);
    return () => toasts.delete(setSaid);
  }, []);
  useEffect(() => {
    if (said === null) return undefined;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return html`<div role="status" aria-live="polite">
    ${said && html`<div class=${`notice toast ${said.kind}`}>${said.text}
      <button class="small" aria-label="Close the note" onClick=${() => setSaid(null)}>×</button></div>`}</div>`;
}

/** Do something that may fail, and say what came of it. */
export async function attempt(work, done) {
  try {
    const found = await work();
    tell(typeof done === "function" ? done(found) : done);
    return true;
  } catch (error) {
    tell(error.message, "bad");
    return false;
  }
}

/** A button that does something at once. A double click does it once, and so do clicks while it is under way. */
export function Act({ label, isOff = false, work, done, children, ...rest }) {
  const isBusy = useRef(false);
  const act = async (event) => {
    if (isBusy.current || event.detail > 1) return;
    isBusy.current = true;
    await attempt(work, done);
    isBusy.current = false;
  };
  return html`<button ...${rest} aria-label=${label} disabled=${isOff} onClick=${act}>${children}</button>`;
}
