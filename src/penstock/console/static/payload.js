// Keys, values and headers: bytes that a stranger sent. They become text nodes, never markup, and only their
// beginning is laid out, so that neither their content nor their size can do the page any harm.
import { post } from "./api.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { may } from "./session.js";
import { bytes as sizeText } from "./format.js";

const SHOWN_CHARACTERS = 16_384;
const SHOWN_BYTES = 4096;
const JSON_CHARACTERS_MAX = 1 << 20;
const JSON_DEPTH_MAX = 100;
const PREVIEW_CHARACTERS = 160;
// Confluent's wire format: a zero byte and the id of a schema in four, or a byte of value one and its guid in sixteen.
const SCHEMA_HEAD_BYTES = { 0: 5, 1: 17 };

const isBase64 = (content) => content !== null && typeof content === "object";

/** The bytes of a key or value as the routes write them: text, {base64} or null. */
export function bytesOf(content) {
  if (content === null || content === undefined) return new Uint8Array();
  if (!isBase64(content)) return new TextEncoder().encode(content);
  return Uint8Array.from(atob(content.base64), (letter) => letter.charCodeAt(0));
}

const sizeOf = (content) => {
  if (content === null || content === undefined) return 0;
  return isBase64(content) ? Math.floor((content.base64.length * 3) / 4) : new Blob([content]).size;
};

const withoutControls = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, "·");

/** The first line or so, for a row of a table. Control characters are shown as dots. */
export function preview(content) {
  if (content === null || content === undefined) return "(null)";
  if (isBase64(content)) return `binary, ${sizeText(sizeOf(content))}`;
  if (content === "") return "(empty)";
  const start = withoutControls(content.slice(0, PREVIEW_CHARACTERS));
  return content.length > PREVIEW_CHARACTERS ? `${start}…` : start;
}

/** A key or the value of a header on one line, with as much of it as is laid out of a value. Bytes are in hex. */
export function inFull(content) {
  const { text, isCut } = isBase64(content) ? { text: hexLine(content), isCut: bytesOf(content).length > SHOWN_BYTES } : cut(content || "");
  return text ? `${withoutControls(text)}${isCut ? "…" : ""}` : preview(content);
}

export const Preview = ({ content }) => html`<span class="preview">${preview(content)}</span>`;

const hexDigits = (some) => Array.from(some, (one) => one.toString(16).padStart(2, "0")).join(" ");
const hexLine = (content) => hexDigits(bytesOf(content).slice(0, SHOWN_BYTES));

function hexOf(content) {
  const found = bytesOf(content);
  const lines = [];
  for (let start = 0; start < Math.min(found.length, SHOWN_BYTES); start += 16) {
    const some = [...found.slice(start, start + 16)];
    const hex = hexDigits(some).padEnd(47);
    const text = some.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return { text: lines.join("\n"), isCut: found.length > SHOWN_BYTES };
}

/**
 * JSON on many lines, or null if it is none. Numbers stay as they were written: JSON.parse would round large ones. Only
 * as much is laid out as can be shown, or all of it for who compares.
 */
export function prettyJson(text, most = SHOWN_CHARACTERS) {
  if (typeof text !== "string" || text.length > JSON_CHARACTERS_MAX) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let found = "";
  let depth = 0;
  let before = "";
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEnd = token === "}" || token === "]";
    depth -= isEnd ? 1 : 0;
    const isNewLine = isEnd ? before !== "{" && before !== "[" : before === "{" || before === "[" || before === ",";
    found += `${isNewLine ? `\n${"  ".repeat(depth)}` : ""}${token}${token === ":" ? " " : ""}`;
    depth += token === "{" || token === "[" ? 1 : 0;
    if (depth > JSON_DEPTH_MAX) return null;
    if (found.length > most) return found;
    before = token;
  }
  return found;
}

const cut = (text) => ({ text: text.slice(0, SHOWN_CHARACTERS), isCut: text.length > SHOWN_CHARACTERS });

/** The bytes of a key or value with what a header says of its schema before them; null if they name no schema. */
function withSchema(content, headers, label) {
  if (content === null || content === undefined || !may("see schemas")) return null;
  const header = headers.find(([name]) => name === `__${label}_schema_id`);
  const found = new Uint8Array([...(header ? bytesOf(header[1]) : []), ...bytesOf(content)]);
  return found.length >= (SCHEMA_HEAD_BYTES[found[0]] ?? Infinity) ? found : null;
}

const base64Of = (found) => btoa(Array.from(found, (one) => String.fromCharCode(one)).join(""));

/** What the registry makes of a content that names its schema. */
function Decoded({ found, label }) {
  const [state, setState] = useState({});
  useEffect(() => {
    let isShown = true;
    const keep = (next) => isShown && setState(next);
    post("/schemas/decode", { content: { base64: base64Of(found) } }).then((decoded) => keep({ decoded }), (error) => keep({ error }));
    return () => {
      isShown = false;
    };
  }, [found]);
  const { decoded, error } = state;
  if (error) return html`<pre class="payload" tabindex="0" role="region" aria-label=${label}>${error.message}</pre>`;
  if (!decoded) return html`<pre class="payload" role="status">Loading…</pre>`;
  const { text, isCut } = cut(prettyJson(decoded.json) ?? decoded.json);
  return html`<p class="hint">Schema ${decoded.schemaId}, ${decoded.schemaType}${isCut ? ", only its beginning is shown" : ""}</p>
    <pre class="payload" tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
}

/** A value as JSON, text, hex, or what its schema makes of it; what it is not cannot be chosen. */
export function Payload({ content, label, headers = [] }) {
  const json = useMemo(() => prettyJson(content), [content]);
  const named = useMemo(() => (sizeOf(content) < JSON_CHARACTERS_MAX ? withSchema(content, headers, label) : null), [content]);
  const isText = typeof content === "string";
  const usual = json !== null ? "JSON" : isText ? "Text" : "Hex";
  const [chosen, choose] = useState(null);
  const kinds = [...(json !== null ? ["JSON"] : []), ...(isText ? ["Text"] : []), "Hex", ...(named ? ["Schema"] : [])];
  const kind = kinds.includes(chosen) ? chosen : usual;
  const shown = useMemo(() => {
    if (kind === "Schema") return { text: "", isCut: false };
    if (kind === "Hex") return hexOf(content);
    return cut(kind === "JSON" ? json : content);
  }, [content, kind]);
  if (content === null || content === undefined) {
    return html`<p class="hint">null: a tombstone, or no value</p>`;
  }
  return html`
    <div class="row">
      <span class="tabs" role="group" aria-label=${`Show ${label} as`}>
        ${kinds.map((one) => html`
          <button type="button" aria-pressed=${one === kind} onClick=${() => choose(one)}>${one}</button>`)}
      </span>
      <span class="hint">${sizeText(sizeOf(content))}${shown.isCut ? ", only its beginning is shown" : ""}</span>
    </div>
    ${kind === "Schema"
      ? html`<${Decoded} found=${named} label=${label} />`
      : html`<pre class=${`payload ${kind === "Hex" ? "hex" : ""}`} tabindex="0" role="region" aria-label=${label}>${shown.text || "(empty)"}</pre>`}`;
}

export function Headers({ headers }) {
  if (!headers.length) return html`<p class="hint">No headers.</p>`;
  return html`<dl class="facts">${headers.map(([name, value]) => html`
    <dt class="mono">${name || "(empty)"}</dt><dd class="mono">${inFull(value)}</dd>`)}</dl>`;
}
