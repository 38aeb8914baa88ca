"""Plain values of all threads on their way into one batch: each gets its place, in one step and without a lock.

A running generator cannot be entered a second time, which makes it a lock that costs nothing: whoever comes while
another thread is inside gets ValueError and tries again with patience (docs/decisions/0007). It lives as long as the
batch takes values. When it has ended, because the batch is full, or somebody ended it, or a Ctrl-C came inside, whoever
comes gets StopIteration, and what is in the list is all there is.
"""

import sys
from collections.abc import Callable, Generator
from threading import RLock
from time import sleep
from types import FrameType
from typing import Any, NamedTuple

from ..errors import Refused

UNEVEN = -1


class BatchLimits(NamedTuple):
    """What goes into a batch. The first value always does: a large one goes alone."""

    bytes_max: int
    messages_max: int
    # Of one value; who sends a larger one hears of it.
    value_bytes_max: int

    def count_of(self, size: int) -> int:
        """How many values of one size."""
        count = (self.bytes_max - 1) // size if size else self.messages_max
        return max(1, min(count, self.messages_max))


class ValueAppender:
    """Takes values into a list. `size` is that of each of them, or UNEVEN: then nobody has to ask each for its own."""

    __slots__ = ("_lock", "_taking", "append", "size", "values")

    def __init__(self, room: BatchLimits, made: Callable[[Any, int], Any], batch: object) -> None:
        """Whoever gives a value gets `made(batch, its place)`."""
        self.values: list[bytes | None] = []
        self.size = UNEVEN
        self._lock = RLock()
        self._taking = self._begun(room, made, batch)
        next(self._taking)
        is_lock = _is_one_thread_at_a_time()
        self.append: Callable[[bytes], Any] = self._taking.send if is_lock else self._append_locked

    def append_waiting(self, value: bytes) -> Any | None:
        """The same for whoever found another thread inside. None: it has ended."""
        while True:
            try:
                return self.append(value)
            except StopIteration:
                return None
            except ValueError:
                self._wait()

    def end(self) -> None:
        """Take no more."""
        while True:
            try:
                with self._lock:
                    return self._taking.close()
            except ValueError:
                self._wait()

    def _begun(
        self, room: BatchLimits, made: Callable[[Any, int], Any], batch: object
    ) -> Generator[Any, bytes, None]:
        values, append = self.values, self.values.append
        value = yield None
        # Most are of one size, of which it is known beforehand how many fit.
        size = self.size = len(value)
        for index in range(room.count_of(size)):
            if len(value) != size:
                break
            append(value)
            value = yield made(batch, index)
        else:
            return
        self.size = UNEVEN
        left, largest = room.bytes_max - size * len(values), room.value_bytes_max
        for index in range(len(values), room.messages_max):
            size = len(value)
            left -= size
            if left <= 0 or size > largest:
                return
            append(value)
            value = yield made(batch, index)

    def _append_locked(self, value: bytes) -> Any:
        """For interpreters that run threads side by side: there only a lock is a lock."""
        with self._lock:
            return self._taking.send(value)

    def _wait(self) -> None:
        """Let another thread go on that is inside. Refused if it is this one: then a signal came in between."""
        inside: FrameType = self._taking.gi_frame  # type: ignore[attr-defined]  # All generators have one.
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame is inside:
                raise Refused("send was called by a signal handler in the middle of another send")
            frame = frame.f_back
        sleep(0)


def _is_one_thread_at_a_time() -> bool:
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
