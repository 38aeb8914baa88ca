"""SIGTERM and Ctrl-C end every worker and stream of the main thread with one signal, in threads and in asyncio."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_USUAL = (signal.SIG_DFL, signal.default_int_handler)

# By signal: what has to stop, and the handler that was there before the first of them. Only the main thread uses them.
_stops: dict[signal.Signals, list[Callable[[], object]]] = {}
_before: dict[signal.Signals, Any] = {}


@contextmanager
def calling_on_signals(stop: Callable[[], object], *, is_polite: bool) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or Ctrl-C; a second one has its usual effect. In the main thread only.

    A signal handler calls it, so it must not take a lock. `is_polite`: not for a signal that the program handles
    itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in _SIGNALS:
        known = _before[number] if number in _stops else signal.getsignal(number)
        if is_polite and known not in _USUAL:
            continue
        if number not in _stops:
            _stops[number], _before[number] = [], known
            signal.signal(number, _on_signal)
        _stops[number].append(stop)
    try:
        yield
    finally:
        _forget(stop)


def _on_signal(number: int, _frame: object) -> None:
    for stop in [*_stops.get(signal.Signals(number), ())]:
        _forget(stop)
        stop()


def _forget(stop: Callable[[], object]) -> None:
    """The program has a signal back when nothing is left that waits for it."""
    for number, stops in [*_stops.items()]:
        if stop in stops:
            stops.remove(stop)
        if not stops:
            del _stops[number]
            known = _before.pop(number)
            # Unless the program has taken the signal meanwhile.
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, known)
