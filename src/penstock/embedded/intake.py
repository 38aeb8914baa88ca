"""What was put and is not in the log yet: kept in the process for at most a few milliseconds.

Every message gets its id here, so the order of the ids is the order of the list. Taking one in has to be one step for
all threads, and a lock costs more than everything else in a `put` together. A running generator cannot be entered a
second time, which makes it a lock that costs nothing: whoever comes while another thread is inside gets ValueError and
tries again. A Ctrl-C inside ends the generator; then a new one goes on from what is really in the list.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from threading import Lock
from time import sleep
from typing import Any, NamedTuple

from ..codec.blobs import Blobs, Joined
from ..model import Message

Content = bytes | Message
"""A bare value, or a message with more to it than a value."""


class Pack(NamedTuple):
    """Small values that came together, and their bytes, joined: nothing else of them is looked at later."""

    values: list[Any]
    blobs: Blobs


class Entries(NamedTuple):
    """Messages that were looked at already. Bare objects are a caller's: of those only small bytes are taken."""

    messages: list[Message]


Contents = bytes | Pack | Entries
NOT_TAKEN = 0


class Intake:
    """Values and messages in the order of their ids. `last_out` is the id of the last one that left."""

    def __init__(self, last_id: int, lock: Lock, bytes_max: int) -> None:
        """`lock` is held by whoever calls `take_out`. Bare values have at most so many bytes."""
        self.last_out, self._bytes_max = last_id, bytes_max
        self.waiting: list[Content] = []
        # Those of `waiting` that came as packs, each with the id of its last value.
        self._packs: deque[tuple[int, Pack]] = deque()
        # Not all of `waiting` are small bare values. Set before they come in, and only under the lock.
        self.is_mixed = False
        self._lock = lock
        self._stopped: Callable[[Contents], int] | None = None
        self.take_in: Callable[[Contents], int] = self._begin()

    def _begin(self) -> Callable[[Contents], int]:
        """A function that takes in a small value, or several messages, and returns the id of the last; or NOT_TAKEN."""
        last_id = self.last_out + len(self.waiting)
        self._numbers = generator = _counting(self.waiting, self._packs, last_id, self._bytes_max)
        next(generator)
        return generator.send if _is_one_thread_at_a_time() else _locked(generator)

    def take_in_patiently(self, contents: Contents) -> int:
        """The same after a failed try: another thread was inside, or a Ctrl-C had ended the generator."""
        while True:
            take_in = self.take_in
            try:
                return take_in(contents)
            except ValueError:
                sleep(0)
            except StopIteration:
                with self._lock:
                    self._begin_again(take_in)

    def take_in_under_lock(self, contents: Contents) -> int:
        """The same for whoever holds the lock."""
        while True:
            take_in = self.take_in
            try:
                return take_in(contents)
            except ValueError:
                sleep(0)
            except StopIteration:
                self._begin_again(take_in)

    def _begin_again(self, ended: Callable[[Contents], int]) -> None:
        # Somebody else may have been quicker.
        if self.take_in is ended:
            self.take_in = self._begin()

    def refuse(self, refusal: Callable[[Contents], int]) -> None:
        """Take in nothing more: `refusal` raises the reason. Under the lock."""
        self.take_in = refusal

    def accept(self) -> None:
        """Take in again. Under the lock."""
        self.take_in = self._begin()

    def stop(self) -> None:
        """Give out no id until `go_on`: who comes finds the generator ended, and waits for the lock. Under it."""
        self._stopped = self.take_in
        while True:
            try:
                return self._numbers.close()
            except ValueError:
                sleep(0)  # Somebody is inside.

    def go_on(self, last_id: int) -> None:
        """Give ids again, after one that somebody else has given if nothing is left in here. Under the lock."""
        if not self.waiting:
            self.last_out = last_id
        if self.take_in is self._stopped:
            self.take_in = self._begin()

    def take_out(self, last_id: int) -> None:
        """Forget everything up to an id: it is in the log. Under the lock."""
        count = last_id - self.last_out
        # No call and no loop in these two lines, so neither a thread nor a Ctrl-C gets in between.
        del self.waiting[:count]
        self.last_out = last_id
        if not self.waiting:
            self.is_mixed = False
        while self._packs and self._packs[0][0] <= last_id:
            self._packs.popleft()

    def first(self, count: int) -> Sequence[Content]:
        """The first so many of `waiting`, or as many as there are. Under the lock."""
        count = min(count, len(self.waiting))
        last_id = self.last_out + count
        packs = [one for one in self._packs_now() if one[0] - len(one[1].values) < last_id]
        parts = [(pack.blobs, len(pack.values)) for _, pack in packs]
        if not self.is_mixed and self._is_all_of(packs, count):
            return Joined(parts)
        contents = self.waiting[:count]
        for (pack_id, _), (blobs, size) in zip(packs, parts, strict=True):
            # Somebody may have changed a buffer since; and the first and the last may be here in part.
            start = pack_id - size - self.last_out
            values = blobs.cut(size)[max(0, -start) : count - start]
            contents[max(0, start) : start + size] = values
        return contents

    def _is_all_of(self, packs: list[tuple[int, Pack]], count: int) -> bool:
        """Whether packs are just the first so many of `waiting`: from the first one on, to the last, and no gap."""
        if not packs or packs[-1][0] != self.last_out + count:
            return False
        sizes = [len(pack.values) for _, pack in packs]
        # Of the first one a part may be out already, and as many others may stand between two packs.
        return packs[0][0] - sizes[0] == self.last_out and sum(sizes) == count

    def _packs_now(self) -> list[tuple[int, Pack]]:
        """Whoever takes in adds to them at any time."""
        return [self._packs[index] for index in range(len(self._packs))]


def _counting(
    waiting: list[Content], packs: deque[tuple[int, Pack]], last_id: int, bytes_max: int
) -> Generator[int, Any, None]:
    append, extend = waiting.append, waiting.extend
    answer = last_id
    while True:
        contents = yield answer
        # Here and nowhere before: to look twice would cost as much as to take it in.
        if type(contents) is bytes and len(contents) <= bytes_max:
            append(contents)
            answer = last_id = last_id + 1
        elif type(contents) is Pack:
            extend(contents.values)
            answer = last_id = last_id + len(contents.values)
            packs.append((last_id, contents))
        elif type(contents) is Entries:
            extend(contents.messages)
            answer = last_id = last_id + len(contents.messages)
        else:
            answer = NOT_TAKEN


def _locked(numbers: Generator[int, Any, None]) -> Callable[[Any], int]:
    """For interpreters that run threads side by side: there only a lock is a lock."""
    lock = Lock()

    def take_in(contents: Any) -> int:
        with lock:
            return numbers.send(contents)

    return take_in


def _is_one_thread_at_a_time() -> bool:
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
