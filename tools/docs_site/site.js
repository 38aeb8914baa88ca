// Search, light or dark, and a button that copies code. Without it the pages are all there, and light or dark as the system is.
"use strict";

const root = document.documentElement;
const up = root.dataset.up;
const query = document.getElementById("query");
const found = document.getElementById("found");

// ---- light or dark

const remembered = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (remembered) root.dataset.theme = remembered;
document.getElementById("theme").addEventListener("click", () => {
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* Pages of a file may have no storage. */ }
});

// ---- search: every word has to begin a word of the section; words in titles and headings weigh more

// A script, not a fetch: browsers refuse to fetch for pages that are opened as files.
const index = (() => {
  let loading;
  return () => loading ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = up + "search.js";
    script.onload = () => resolve(window.searchIndex.map(([page, title, anchor, heading, text]) => ({
      page, title, anchor, heading, text,
      title_: words(title), heading_: words(heading), text_: words(text),
    })));
    script.onerror = reject;
    document.head.append(script);
  });
})();

const words = (text) => " " + text.toLowerCase().replace(/[^\p{L}\p{N}_]+/gu, " ");

function score(section, wanted) {
  let sum = 0;
  for (const word of wanted) {
    const at = section.text_.indexOf(word);
    const one = (section.title_.includes(word) ? 8 : 0) + (section.heading_.includes(word) ? 12 : 0) + (at >= 0 ? 2 + 2 / (1 + at / 500) : 0);
    if (!one) return 0;
    sum += one;
  }
  const whole = wanted.join("").trim();
  if (section.heading_.trim() === whole || (!section.anchor && section.title_.trim() === whole)) sum += 20;
  return sum;
}

function excerpt(section, wanted) {
  const at = Math.max(0, section.text.toLowerCase().indexOf(wanted[0].trim()));
  const part = document.createElement("small");
  part.append(section.text.slice(Math.max(0, at - 40), at + 120));
  return part;
}

function line(section, wanted) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = up + section.page + (section.anchor ? "#" + section.anchor : "");
  link.append(section.title + (section.anchor ? " › " + section.heading : ""), excerpt(section, wanted));
  item.append(link);
  return item;
}

async function search() {
  const wanted = words(query.value).trim().split(" ").filter(Boolean).map((word) => " " + word);
  if (!wanted.length) { found.hidden = true; return; }
  const asked = query.value;
  const sections = await index();
  if (asked !== query.value) return;
  const best = sections.map((section) => [score(section, wanted), section]).filter(([one]) => one).sort((a, b) => b[0] - a[0]).slice(0, 12);
  found.replaceChildren(...best.map(([, section]) => line(section, wanted)));
  if (!best.length) {
    const none = document.createElement("p");
    none.append("Nothing has all of these words.");
    found.append(none);
  }
  found.hidden = false;
}

function choose(step) {
  const links = [...found.querySelectorAll("a")];
  const now = links.findIndex((link) => link.getAttribute("aria-selected"));
  links[now]?.removeAttribute("aria-selected");
  const next = links[(now + step + links.length) % links.length];
  next?.setAttribute("aria-selected", "true");
  next?.scrollIntoView({ block: "nearest" });
}

query.addEventListener("input", search);
query.addEventListener("focus", search);
query.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { choose(event.key === "ArrowDown" ? 1 : -1); event.preventDefault(); }
  if (event.key === "Enter") (found.querySelector("[aria-selected]") || found.querySelector("a"))?.click();
  if (event.key === "Escape") { found.hidden = true; query.blur(); }
});
found.addEventListener("click", (event) => { if (event.target.closest("a")) found.hidden = true; });
document.addEventListener("click", (event) => { if (!event.target.closest(".search")) found.hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { query.focus(); event.preventDefault(); }
});

// ---- copy code

if (navigator.clipboard) {
  for (const block of document.querySelectorAll("main pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "copied";
    });
    block.append(button);
  }
}
