"""Appends plain values of several threads to one batch: each value gets its index in one step, without a lock.

A generator that runs cannot be entered a second time, which makes it a lock that costs nothing: a thread that comes
while another is inside gets ValueError and waits (docs/decisions/0007). The generator lives as long as the batch takes
values. When it has ended, because the batch is full or sealed, or because a Ctrl-C came inside, a thread gets
StopIteration, and the list has all the values that there will be.
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
    """The size of a batch. Its first value always fits: a large one goes alone."""

    bytes_max: int
    messages_max: int
    # Larger values are refused.
    value_bytes_max: int


class ValueAppender:
    """Appends values to a list. `size` is that of every value if they are all of one size, otherwise UNEVEN."""

    __slots__ = ("_generator", "_lock", "append", "size", "values")

    def __init__(
        self, limits: BatchLimits, delivery_of: Callable[[Any, int], Any], batch: object
    ) -> None:
        """`append` returns `delivery_of(batch, index)`."""
        self.values: list[bytes | None] = []
        self.size = UNEVEN
        self._lock = RLock()
        self._generator = self._appending(limits, delivery_of, batch)
        next(self._generator)
        is_lock = _is_one_thread_at_a_time()
        self.append: Callable[[bytes], Any] = (
            self._generator.send if is_lock else self._append_locked
        )

    def append_waiting(self, value: bytes) -> Any | None:
        """Append, waiting for other threads. Returns None if the value does not fit, or after `end`."""
        while True:
            try:
                return self.append(value)
            except StopIteration:
                return None
            except ValueError:
                self._wait()

    def end(self) -> None:
        """Take no more values."""
        while True:
            try:
                with self._lock:
                    return self._generator.close()
            except ValueError:
                self._wait()

    def _appending(
        self, limits: BatchLimits, delivery_of: Callable[[Any, int], Any], batch: object
    ) -> Generator[Any, bytes, None]:
        values, append = self.values, self.values.append
        value = yield None
        # Mostly all values are of one size, and it is known beforehand how many fit.
        size = self.size = len(value)
        fitting = (limits.bytes_max - 1) // size if size else limits.messages_max
        for index in range(max(1, min(fitting, limits.messages_max))):
            if len(value) != size:
                break
            append(value)
            value = yield delivery_of(batch, index)
        else:
            return
        self.size = UNEVEN
        left, largest = limits.bytes_max - size * len(values), limits.value_bytes_max
        for index in range(len(values), limits.messages_max):
            size = len(value)
            left -= size
            if left <= 0 or size > largest:
                return
            append(value)
            value = yield delivery_of(batch, index)

    def _append_locked(self, value: bytes) -> Any:
        """Append in an interpreter that runs threads in parallel, where a generator is no lock."""
        with self._lock:
            return self._generator.send(value)

    def _wait(self) -> None:
        """Let the thread that is inside go on. Refused if it is this one: then a signal handler called `send`."""
        inside: FrameType = self._generator.gi_frame  # type: ignore[attr-defined]  # All generators have one.
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame is inside:
                raise Refused("send was called by a signal handler in the middle of another send")
            frame = frame.f_back
        sleep(0)


def _is_one_thread_at_a_time() -> bool:
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
