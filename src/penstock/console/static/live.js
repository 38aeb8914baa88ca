// What is shown is asked for again while it is looked at. A tab in the background asks for nothing.
import { useCallback, useEffect, useRef, useState } from "./html.js";

const EVERY_MS = 5000;
// What is shown is as old as the last answer: when the next one takes longer, the user is told.
const LATE_MS = 10_000;

/**
 * Calls `load(signal)` now, when `deps` change, and again some seconds after each answer.
 * Returns `{data, error, refresh}`: the last good answer stays while a later one fails, or does not come.
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
    let isAsking = false;
    const fail = (error) => control.signal.aborted || setState((before) => ({ data: before.data, error }));
    const ask = async () => {
      isAsking = true;
      const late = setTimeout(() => fail(new Error(`the broker has not answered for ${LATE_MS / 1000} s`)), LATE_MS);
      try {
        const data = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ data, error: null });
      } catch (error) {
        fail(error);
      }
      clearTimeout(late);
      isAsking = false;
      if (!control.signal.aborted && everyMs) timer = setTimeout(again, everyMs);
    };
    const again = () => {
      timer = null;
      if (!document.hidden) ask();
    };
    const onShown = () => {
      if (!document.hidden && timer === null && !isAsking && everyMs) ask();
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
