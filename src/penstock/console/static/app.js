// The console: a login where keys are on, then screens by the hash of the address.
import { get, keyring } from "./api.js";
import { html, render, useEffect, useState } from "./html.js";
import { Field, Notice, Toast } from "./parts.js";
import { loadSession, may, reachesAll } from "./session.js";
import { Audit } from "./screens/audit.js";
import { DeadLetters } from "./screens/dead_letters.js";
import { Delayed } from "./screens/delayed.js";
import { Group } from "./screens/group.js";
import { Groups } from "./screens/groups.js";
import { InFlight } from "./screens/in_flight.js";
import { Keys } from "./screens/keys.js";
import { Lanes } from "./screens/lanes.js";
import { Messages } from "./screens/messages.js";
import { Overview } from "./screens/overview.js";
import { Pipelines } from "./screens/pipelines.js";
import { Schemas } from "./screens/schemas.js";
import { Settings } from "./screens/settings.js";
import { Topic } from "./screens/topic.js";
import { Topics } from "./screens/topics.js";
import { Transactions } from "./screens/transactions.js";

// By the first word of the hash; `one` shows a thing that the second word names. `action` is what the user may do.
const SCREENS = [
  { word: "overview", title: "Overview", all: Overview, may: () => true },
  { word: "topics", title: "Topics", all: Topics, one: Topic, may: () => may("see topics") },
  { word: "messages", title: "Messages", all: Messages, one: Messages, may: () => may("read by offset") || may("publish") },
  { word: "groups", title: "Groups", all: Groups, one: Group, may: () => may("see groups") },
  { word: "in-flight", title: "In flight", all: InFlight, one: InFlight, may: () => may("see groups") },
  { word: "dead-letters", title: "Dead letters", all: DeadLetters, one: DeadLetters, may: () => may("see dead letters") },
  { word: "delayed", title: "Delayed", all: Delayed, one: Delayed, may: () => may("see delayed messages") },
  { word: "lanes", title: "Lanes", all: Lanes, one: Lanes, may: () => may("see stats") },
  { word: "transactions", title: "Transactions", all: Transactions, may: () => may("see transactions") && reachesAll() },
  { word: "schemas", title: "Schemas", all: Schemas, one: Schemas, may: () => may("see schemas") },
  { word: "pipelines", title: "Pipelines", all: Pipelines, may: () => may("see pipelines") },
  { word: "keys", title: "Keys", all: Keys, may: () => may("see keys") },
  { word: "audit", title: "Audit", all: Audit, may: () => may("see the audit log") && reachesAll() },
  { word: "settings", title: "Settings", all: Settings, may: () => may("see settings") && reachesAll() },
];

/** A word of an address; one that was cut in the middle of an escape stays as it is. */
function wordOf(written) {
  try {
    return decodeURIComponent(written);
  } catch {
    return written;
  }
}

/** The hash as words and a query: #/topics/orders?x=1. */
function placeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean).map(wordOf);
  return { words: words.length ? words : ["overview"], query: Object.fromEntries(new URLSearchParams(query)), address: hash };
}

function usePlace() {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const onChange = () => setPlace(placeOf(location.hash));
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return place;
}

const THEMES = ["auto", "light", "dark"];

function ThemeButton() {
  const [theme, setTheme] = useState(localStorage.getItem("penstock.theme") ?? "auto");
  useEffect(() => {
    localStorage.setItem("penstock.theme", theme);
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button class="small" onClick=${() => setTheme(next)}>Theme: ${theme}</button>`;
}

function Side({ word, who, onLeave }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [word]);
  return html`<header class="side" data-open=${String(isOpen)}>
    <a class="brand" href="#/overview"><img src="console/icon.svg" alt="" />Penstock</a>
    <button class="menu" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>Menu</button>
    <nav aria-label="Screens"><ul>${SCREENS.filter((one) => one.may()).map((one) => html`
      <li><a href=${`#/${one.word}`} aria-current=${one.word === word ? "page" : undefined}>${one.title}</a></li>`)}</ul></nav>
    <div class="who">
      ${who.has_key
        ? html`<span><b>${who.name}</b>, ${who.role}${who.prefixes.length ? `, topics ${who.prefixes.join(", ")}…` : ""}</span>`
        : html`<span>Keys are off: every client of this machine is an administrator.</span>`}
      <div class="row"><${ThemeButton} />
        ${who.has_key && html`<button class="small" onClick=${onLeave}>Log out</button>`}</div>
      <span class="row"><a href="docs">Routes</a>${!who.has_key && html` <a href="metrics">Metrics</a>`}</span>
    </div>
  </header>`;
}

function Shell({ who, onLeave }) {
  const { words, query, address } = usePlace();
  const screen = SCREENS.find((one) => one.word === words[0] && one.may());
  const Screen = screen && (words.length > 1 ? screen.one : screen.all);
  const skip = (event) => {
    event.preventDefault();
    document.querySelector("main h1")?.focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>To the content</a>
    <div class="shell">
      <${Side} word=${words[0]} who=${who} onLeave=${onLeave} />
      <main id="main">${Screen
        ? html`<${Screen} key=${address} name=${words[1]} words=${words.slice(1)} query=${query} />`
        : html`<h1>There is no such screen</h1><p><a href="#/overview">To the overview</a></p>`}</main>
    </div>
    <${Toast} />`;
}

function Login({ problem, onKey }) {
  const send = (event) => {
    event.preventDefault();
    onKey(new FormData(event.target).get("key").trim());
  };
  useEffect(() => {
    document.title = "Log in · Penstock";
  }, []);
  return html`<main class="login"><form class="panel stack" onSubmit=${send}>
    <h1>Penstock</h1>
    <p class="lead">This broker asks for a key. It is kept for this tab only.</p>
    <${Field} label="Key" hint="penstock keys create NAME --role readonly">
      <input name="key" type="password" required autocomplete="off" autofocus placeholder="pk-….…" /><//>
    ${problem && html`<${Notice} kind="bad"><span role="alert">${problem}</span><//>`}
    <div class="row"><button class="main">Log in</button></div>
  </form></main>`;
}

function Console() {
  // starting, login, or the user that /whoami names.
  const [state, setState] = useState({ is: "starting" });
  const enter = async () => {
    try {
      // Health is open to all: without a key nothing else is asked, so opening the page is no refused request.
      const needsKey = !keyring.get() && (await get("/readyz", { verbose: "yes" })).checks.auth.message === "on";
      setState(needsKey ? { is: "login" } : { is: "ready", who: await loadSession() });
    } catch (error) {
      if (error.status !== 401) setState({ is: "failed", problem: error.message });
    }
  };
  const leave = (problem = null) => {
    keyring.forget();
    setState({ is: "login", problem });
  };
  useEffect(() => keyring.onRefused((error) => leave(error.message)), []);
  useEffect(() => void enter(), []);
  const useKey = (key) => {
    // What came along from where it was copied, and can be no header.
    if (/[^\x21-\x7e]/.test(key)) return setState({ is: "login", problem: "That is no key: it has a space, or a character that no key has." });
    keyring.set(key);
    setState({ is: "starting" });
    return enter();
  };
  if (state.is === "ready") return html`<${Shell} who=${state.who} onLeave=${() => leave()} />`;
  if (state.is === "login") return html`<${Login} problem=${state.problem} onKey=${useKey} />`;
  if (state.is === "failed") {
    return html`<main class="login"><div class="panel"><h1>The console cannot begin</h1><p>${state.problem}</p>
      <div class="row"><button class="main" onClick=${enter}>Try again</button>
        ${keyring.get() && html`<button onClick=${() => leave()}>Use another key</button>`}</div></div></main>`;
  }
  return html`<main class="login"><h1 class="hidden-label">Penstock</h1><p role="status">Loading…</p></main>`;
}

render(html`<${Console} />`, document.getElementById("console"));
