"""Idempotency keys of one partition: a repeat within the window gets the first result."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

# A longer key is kept as a digest, so that the memory for the keys is bounded by their number.
_KEY_BYTES_MAX = 64


class Kept(NamedTuple):
    """The first message with a key. An offset below zero is a place in the delay log: see `position`."""

    offset: int
    append_time: int

    @property
    def is_delayed(self) -> bool:
        return self.offset < 0

    @property
    def position(self) -> int:
        """The offset in the log that it went to."""
        return ~self.offset if self.offset < 0 else self.offset


class Dedup:
    """The last keys, oldest first. Filled from the batches themselves, so a restart loses nothing.

    An empty key is none: it is neither kept nor found.
    """

    def __init__(self, *, window_ns: int, keys_max: int) -> None:
        self.window_ns, self.keys_max = window_ns, keys_max
        self.kept: OrderedDict[bytes, Kept] = OrderedDict()

    def find(self, key: bytes, now_ns: int) -> Kept | None:
        kept = self.kept.get(_short(key))
        if kept is None or now_ns - kept.append_time > self.window_ns:
            return None
        return kept

    def add(self, keys: Sequence[bytes | None], offsets: Sequence[int], append_time: int) -> None:
        """Take note of the keys of a batch."""
        for key, offset in zip(keys, offsets, strict=True):
            if key:
                short = _short(key)
                self.kept[short] = Kept(offset, append_time)
                self.kept.move_to_end(short)
        self.forget_expired(append_time)
        while len(self.kept) > self.keys_max:
            self.kept.popitem(last=False)

    def forget_expired(self, now_ns: int) -> None:
        """Drop the keys whose window is over; each goes once, so this costs no more than adding them did."""
        while self.kept:
            key, kept = next(iter(self.kept.items()))
            if now_ns - kept.append_time <= self.window_ns:
                return
            del self.kept[key]

    def sort(self) -> None:
        """Bring keys that were taken from two logs, one after the other, into the order of time."""
        self.kept = OrderedDict(sorted(self.kept.items(), key=lambda item: item[1].append_time))

    def items(self) -> Iterator[tuple[bytes, int, int]]:
        return ((key, kept.offset, kept.append_time) for key, kept in self.kept.items())

    def restore(self, items: Iterable[tuple[bytes, int, int]]) -> None:
        for key, offset, append_time in items:
            if key:
                self.kept[key] = Kept(offset, append_time)


def _short(key: bytes) -> bytes:
    """The key, or one byte more than the longest key that is kept as it is: the two never meet."""
    if len(key) <= _KEY_BYTES_MAX:
        return bytes(key)
    return b"#" + blake2b(key).digest()
