// Keys, values and headers: bytes that a stranger sent. They become text nodes, never markup, and only their
// beginning is laid out, so that neither their content nor their size can do the page any harm.
import { html, useMemo, useState } from "./html.js";
import { bytes as sizeText } from "./format.js";

const SHOWN_CHARACTERS = 16_384;
const SHOWN_BYTES = 4096;
const JSON_CHARACTERS_MAX = 1 << 20;
const PREVIEW_CHARACTERS = 160;

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

/** The first line or so, for a row of a table. Control characters are shown as dots. */
export function preview(content) {
  if (content === null || content === undefined) return "null";
  if (isBase64(content)) return `binary, ${sizeText(sizeOf(content))}`;
  if (content === "") return "(empty)";
  const start = content.slice(0, PREVIEW_CHARACTERS).replace(/[\u0000-\u001f\u007f-\u009f]+/g, "·");
  return content.length > PREVIEW_CHARACTERS ? `${start}…` : start;
}

export const Preview = ({ content }) => html`<span class="preview">${preview(content)}</span>`;

function hexOf(content) {
  const found = bytesOf(content);
  const lines = [];
  for (let start = 0; start < Math.min(found.length, SHOWN_BYTES); start += 16) {
    const some = [...found.slice(start, start + 16)];
    const hex = some.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = some.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return { text: lines.join("\n"), isCut: found.length > SHOWN_BYTES };
}

function jsonOf(content) {
  if (typeof content !== "string" || content.length > JSON_CHARACTERS_MAX) return null;
  try {
    return JSON.stringify(JSON.parse(content), null, 2);
  } catch {
    return null;
  }
}

const cut = (text) => ({ text: text.slice(0, SHOWN_CHARACTERS), isCut: text.length > SHOWN_CHARACTERS });

/** A value as JSON, text or hex; what it is not cannot be chosen. */
export function Payload({ content, label }) {
  const json = useMemo(() => jsonOf(content), [content]);
  const isText = typeof content === "string";
  const usual = json !== null ? "JSON" : isText ? "Text" : "Hex";
  const [chosen, choose] = useState(null);
  const kinds = [...(json !== null ? ["JSON"] : []), ...(isText ? ["Text"] : []), "Hex"];
  const kind = kinds.includes(chosen) ? chosen : usual;
  const shown = useMemo(() => {
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
    <pre class=${`payload ${kind === "Hex" ? "hex" : ""}`} tabindex="0" role="region" aria-label=${label}>${shown.text || "(empty)"}</pre>`;
}

export function Headers({ headers }) {
  if (!headers.length) return html`<p class="hint">No headers.</p>`;
  return html`<dl class="facts">${headers.map(([name, value]) => html`
    <dt class="mono">${name || "(empty)"}</dt><dd class="mono">${preview(value)}</dd>`)}</dl>`;
}
