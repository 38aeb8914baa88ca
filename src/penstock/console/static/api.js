// The one way to the broker: every request of the console goes through `call`, with the user's own key.

const BASE = new URL("./", document.baseURI);
const KEY_NAME = "penstock.key";

/** What a route answered instead of a success. `code` is meant for programs, `message` for people. */
export class ApiError extends Error {
  constructor(status, content) {
    const said = content.message ?? `the broker answered ${status}`;
    // Of a node that does not lead the message names the port of clients; a browser needs the other one.
    super(content.http ? `${said}; its console is at ${content.http}` : said);
    this.status = status;
    this.code = content.error ?? content.error_code ?? "";
  }
}

const listeners = new Set();

/** The key of this tab: sessionStorage ends with it, and only a duplicate of the tab has it, too. */
export const keyring = {
  get: () => sessionStorage.getItem(KEY_NAME),
  set: (key) => sessionStorage.setItem(KEY_NAME, key),
  forget: () => sessionStorage.removeItem(KEY_NAME),
  /** Be told when the broker refuses the key that is in use. */
  onRefused(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/** A path of a route: route`/topics/${name}/dlq`. Names are encoded, whatever they contain. */
export function route(words, ...names) {
  return words.reduce((path, word, index) => path + encodeURIComponent(names[index - 1]) + word);
}

function address(path, query) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  return url;
}

/** The answer of the broker. ApiError if none comes: what was asked may have been done all the same. */
async function send(url, options) {
  try {
    return await fetch(url, options);
  } catch {
    const doubt = options.method === "GET" ? "" : ", so this may have been done or not";
    throw new ApiError(0, { message: `the broker does not answer${doubt}` });
  }
}

/** The JSON of an answer; null of one without content. Throws ApiError. */
export async function call(method, path, { query, body, signal } = {}) {
  const headers = {};
  const key = keyring.get();
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await send(address(path, query), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    credentials: "omit",
    cache: "no-store",
  });
  if (answer.status === 204) return null;
  const content = await answer.json().catch(() => null);
  if (answer.ok && content !== null) return content;
  const error = new ApiError(answer.status, content ?? (answer.ok ? { message: "the answer of the broker cannot be read" } : {}));
  // A late answer to another key says nothing of the one in use.
  if (answer.status === 401 && key === keyring.get()) listeners.forEach((tell) => tell(error));
  throw error;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body) => call("POST", path, { body });

/** Every page of a list, up to `most` items: `items` names the list in an answer. */
export async function getAll(path, items, query = {}, signal = undefined, most = 10_000) {
  const found = [];
  let cursor;
  do {
    const page = await get(path, { limit: 1000, ...query, cursor }, signal);
    found.push(...page[items]);
    cursor = page.cursor;
  } while (cursor && found.length < most);
  return found;
}
