// What is shown is asked for again while it is looked at. A tab in the background asks for nothing.
import { useCallback, useEffect, useRef, useState } from "./html.js";

const EVERY_MS = 5000;

/**
 * Calls `load(signal)` now, when `deps` change, and again some seconds after each answer.
 * Returns `{data, error, refresh}`: the last good answer stays while a later one fails.
 */
export function useLive(load, deps, everyMs = EVERY_MS) {
  const [state, setState] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const refresh = useCallback(() => setTurn((before) => before + 1), []);

  useEffect(() => setState({ data: null, error: null }), deps);
  useEffect(() => {
    const control = new AbortController();
    let timer = null;
    const ask = async () => {
      timer = null;
      try {
        const data = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (control.signal.aborted) return;
        setState((before) => ({ data: before.data, error }));
      }
      if (!control.signal.aborted && everyMs && !document.hidden) timer = setTimeout(ask, everyMs);
    };
    const onShown = () => {
      if (!document.hidden && timer === null && everyMs) ask();
    };
    document.addEventListener("visibilitychange", onShown);
    ask();
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onShown);
    };
  }, [...deps, turn]);
  return { ...state, refresh };
}
