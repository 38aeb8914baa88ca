// Preact with htm: templates are tagged strings, and what is put into them becomes text nodes, never markup.
import htm from "./libraries/htm.js";
import { h } from "./libraries/preact.js";

export const html = htm.bind(h);
export { render } from "./libraries/preact.js";
export { useCallback, useEffect, useMemo, useRef, useState } from "./libraries/hooks.js";
