// What differs between two texts, line by line.
import { html, useMemo } from "./html.js";

// More lines are shown one behind the other: comparing takes the product of their numbers.
const LINES_MAX = 1000;
// Of lines that are the same, so many are shown before and behind a change.
const CONTEXT = 50;

function common(before, after) {
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let left = before.length - 1; left >= 0; left -= 1) {
    for (let right = after.length - 1; right >= 0; right -= 1) {
      lengths[left][right] = before[left] === after[right]
        ? lengths[left + 1][right + 1] + 1
        : Math.max(lengths[left + 1][right], lengths[left][right + 1]);
    }
  }
  return lengths;
}

const line = (kind) => (text) => ({ kind, text });

/** Lines as `{kind, text}`, kind being same, added or removed. */
export function differences(before, after) {
  const old = before.split("\n");
  const young = after.split("\n");
  const shorter = Math.min(old.length, young.length);
  let head = 0;
  let tail = 0;
  while (head < shorter && old[head] === young[head]) head += 1;
  while (tail < shorter - head && old.at(-1 - tail) === young.at(-1 - tail)) tail += 1;
  return [
    ...old.slice(Math.max(0, head - CONTEXT), head).map(line("same")),
    ...changes(old.slice(head, old.length - tail), young.slice(head, young.length - tail)),
    ...old.slice(old.length - tail).slice(0, CONTEXT).map(line("same")),
  ];
}

function changes(old, young) {
  if (old.length > LINES_MAX || young.length > LINES_MAX) return [...old.map(line("removed")), ...young.map(line("added"))];
  const lengths = common(old, young);
  const found = [];
  let left = 0;
  let right = 0;
  while (left < old.length || right < young.length) {
    if (left < old.length && right < young.length && old[left] === young[right]) {
      found.push(line("same")(old[left]));
      left += 1;
      right += 1;
    } else if (left < old.length && (right === young.length || lengths[left + 1][right] >= lengths[left][right + 1])) {
      found.push(line("removed")(old[left]));
      left += 1;
    } else {
      found.push(line("added")(young[right]));
      right += 1;
    }
  }
  return found;
}

const SIGNS = { same: " ", added: "+", removed: "-" };

export function Diff({ before, after }) {
  const lines = useMemo(() => differences(before, after), [before, after]);
  return html`<div class="diff" role="region" aria-label="Differences" tabindex="0">
    ${lines.map((one) => html`<div class=${one.kind}>${SIGNS[one.kind]} ${one.text}</div>`)}</div>`;
}
