"""What was put and is not in the log yet: kept in the process for at most a few milliseconds.

Every message gets its id here, so the order of the ids is the order of the list. Taking one in has to be one step for
all threads, and a lock costs more than everything else in a `put` together. A running generator cannot be entered a
second time, which makes it a lock that costs nothing: whoever comes while another thread is inside gets ValueError and
tries again. A Ctrl-C inside ends the generator; then a new one goes on from what is really in the list.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from operator import countOf
from threading import Lock
from time import sleep
from typing import Any, NamedTuple

import msgspec

from ..codec.blobs import Blobs, Joined, without_nulls
from ..codec.numbers import Numbers
from ..model import Buffer, Message

Content = bytes | Message
"""A bare value, or a message with more to it than a value."""


NOT_TAKEN = 0
UNEVEN = -1
# So many are encoded as quickly without their common size.
_FEW = 16


class Pack(msgspec.Struct, frozen=True):
    """Small values that came together, and their bytes, joined: nothing else of them is looked at later."""

    values: list[Any]
    blob: Buffer
    # Of each of them, or UNEVEN; then `lengths` knows.
    size: int
    lengths: Numbers | None = None

    def blobs(self) -> Blobs:
        return Blobs(self.size if self.lengths is None else self.lengths, None, self.blob)


def pack_of(values: list[Any], bytes_max: int) -> Pack:
    """At least one value, of at most so many bytes each. TypeError or PenstockError: one of them is something else."""
    blob = b"".join(values)
    size = len(values[0])
    # Most are of one size, and to count those is quicker than to keep all sizes. Wider numbers than bytes are more
    # bytes than numbers, so the total has to agree as well.
    is_even = size * len(values) == len(blob) and countOf(map(len, values), size) == len(values)
    if is_even and size <= bytes_max:
        return Pack(values, blob, size)
    lengths, _, blob_again = without_nulls(values, "value", bytes_max)
    return Pack(values, blob_again, UNEVEN, lengths)


class Entries(NamedTuple):
    """Messages that were looked at already. Bare objects are a caller's: of those only small bytes are taken."""

    messages: list[Message]


Contents = bytes | Pack | Entries


class Intake:
    """Values and messages in the order of their ids. `last_out` is the id of the last one that left."""

    def __init__(self, last_id: int, lock: Lock, bytes_max: int) -> None:
        """`lock` is held by whoever calls `take_out`. Bare values have at most so many bytes."""
        self.last_out, self._bytes_max = last_id, bytes_max
        self.waiting: list[Content] = []
        # If these are bare values of one size and nothing else, that size: then nobody has to ask each of them for its
        # own. It changes before they do, and back to a size only while there are none.
        self._size = UNEVEN
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
        self._numbers = generator = self._counting(last_id)
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
        if self._size != UNEVEN and not self.is_mixed:
            contents = self.waiting[:count]
            # Once more, since another may have come before they were taken; who comes later does no harm.
            size = self._size
            return contents if size == UNEVEN else _joined(contents, size)
        count = min(count, len(self.waiting))
        last_id = self.last_out + count
        # A copy, which is one step: whoever takes in adds to them at any time.
        packs = [one for one in self._packs.copy() if one[0] - len(one[1].values) < last_id]
        if not self.is_mixed and self._is_all_of(packs, count):
            return _joined_packs([pack for _, pack in packs], count)
        contents = self.waiting[:count]
        for pack_id, pack in packs:
            # Somebody may have changed a buffer since; and the first and the last may be here in part.
            size = len(pack.values)
            start = pack_id - size - self.last_out
            values = pack.blobs().cut(size)[max(0, -start) : count - start]
            contents[max(0, start) : start + size] = values
        return contents

    def _is_all_of(self, packs: list[tuple[int, Pack]], count: int) -> bool:
        """Whether packs are just the first so many of `waiting`: from the first one on, to the last, and no gap."""
        if not packs or packs[-1][0] != self.last_out + count:
            return False
        sizes = [len(pack.values) for _, pack in packs]
        # Of the first one a part may be out already, and as many others may stand between two packs.
        return packs[0][0] - sizes[0] == self.last_out and sum(sizes) == count

    def _counting(self, last_id: int) -> Generator[int, Any, None]:
        """Values are looked at here and nowhere before: to look twice would cost as much as to take them in."""
        waiting, bytes_max, size = self.waiting, self._bytes_max, self._size
        contents = yield last_id
        while True:
            while type(contents) is bytes and len(contents) == size:
                waiting.append(contents)
                last_id += 1
                contents = yield last_id
            if type(contents) is not bytes or len(contents) > bytes_max:
                count = self._take_several(contents, last_id)
                size, last_id = self._size, last_id + count
                contents = yield last_id if count else NOT_TAKEN
            elif waiting:
                size = self._size = UNEVEN
                while waiting and type(contents) is bytes and len(contents) <= bytes_max:
                    waiting.append(contents)
                    last_id += 1
                    contents = yield last_id
            else:
                size = self._size = len(contents)

    def _take_several(self, contents: object, last_id: int) -> int:
        """How many were taken: none of what is a bare object, and neither small nor bytes."""
        if type(contents) is Pack:
            self._size = UNEVEN
            self.waiting.extend(contents.values)
            self._packs.append((last_id + len(contents.values), contents))
            return len(contents.values)
        if type(contents) is Entries:
            self._size = UNEVEN
            self.waiting.extend(contents.messages)
            return len(contents.messages)
        return 0


def _joined(values: list[Any], size: int) -> Sequence[bytes]:
    """Bare values of one size, at least one. A few are not worth a second look."""
    if len(values) < _FEW:
        return values
    return Joined([(Blobs(size, None, b"".join(values)), len(values))])


def _joined_packs(packs: list[Pack], count: int) -> Joined:
    sizes = {pack.size for pack in packs}
    size = sizes.pop()
    if sizes or size == UNEVEN:
        return Joined([(pack.blobs(), len(pack.values)) for pack in packs])
    return Joined([(Blobs(size, None, b"".join([pack.blob for pack in packs])), count)])


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
