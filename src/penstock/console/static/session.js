// Who uses the console, and what they may do: what is not allowed is not offered.
import { get } from "./api.js";

const session = { who: null, actions: new Set() };

export async function loadSession() {
  session.who = await get("/whoami");
  session.actions = new Set(session.who.actions);
  return session.who;
}

/** Whether the user's role has an action, under the name that /openapi.json gives it as x-penstock-command. */
export const may = (action) => session.actions.has(action);

/** Whether the user's key reaches all topics. */
export const reachesAll = () => session.who !== null && session.who.prefixes.length === 0;
