"""A frame over the limit: read over and not kept, but for what its refusal has to name.

A client hears of a refusal only behind its request: Kafka's clients ignore a response to what they are still sending,
and a connection that is closed with bytes unread drops what was written to it. So the frame is read to its end. Of
Kafka's Produce the names of topics and partitions are kept, each of which is answered, and not the records. Of other
requests of Kafka the header is kept, where a response has an error code for all that was asked.
"""

from collections.abc import Callable, Generator
from struct import Struct

from ...api.frames import OWN_KEYS_FROM
from ...errors import TooLarge

_HEADER = Struct(">hhih")
_I16, _I32 = Struct(">h"), Struct(">i")
_NO_RECORDS, _NO_COMPACT_RECORDS = _I32.pack(-1), b"\0"
_PRODUCE, _PRODUCE_VERSIONS, _FLEXIBLE_FROM = 0, range(3, 13), 9
_ACKS_AND_TIMEOUT_BYTES, _INDEX_BYTES = 6, 4
# Names of some thousand partitions. Without a bound a frame could consist of nothing else.
_KEPT_BYTES_MAX = 32 << 10
_VARINT_BITS_MAX = 35

_Walk = Generator[int, bytes, None]
_Number = Generator[int, bytes, int]


class OversizedFrame:
    """Takes its bytes as they come. `kept` is the frame without records.

    It `is_over` with its last byte. One that is not `is_answerable` then, and one that `is_hopeless` before, can only
    be answered by the end of the connection.
    """

    __slots__ = (
        "_is_refusable",
        "_left",
        "_partial",
        "_skipped",
        "_walk",
        "_wanted",
        "error",
        "is_answerable",
        "kept",
    )

    def __init__(
        self, error: TooLarge, length: int, is_refusable: Callable[[int, int], bool]
    ) -> None:
        """`is_refusable`: whether a header is enough to answer a request of Kafka with an error; by key and version."""
        self.error, self.kept = error, bytearray()
        self._is_refusable = is_refusable
        self.is_answerable = False
        self._left, self._skipped, self._wanted = length, 0, 0
        self._partial = bytearray()
        self._walk: _Walk | None = self._steps()
        self._go_on(None)

    @property
    def is_over(self) -> bool:
        return self._left == 0

    @property
    def is_hopeless(self) -> bool:
        return self._walk is None and not self.is_answerable

    def feed(self, data: memoryview) -> memoryview:
        """Take what belongs to the frame. Returns what is behind it."""
        end, position = min(len(data), self._left), 0
        while position < end and self._walk is not None:
            if self._skipped:
                size = min(self._skipped, end - position)
                self._skipped -= size
                if not self._skipped:
                    self._go_on(b"")
            else:
                size = min(self._wanted - len(self._partial), end - position)
                self._partial += data[position : position + size]
                if len(self._partial) == self._wanted:
                    taken, self._partial = bytes(self._partial), bytearray()
                    self._go_on(taken)
            position += size
        self._left -= end
        return data[end:]

    def _go_on(self, taken: bytes | None) -> None:
        """Keep what was asked for, and ask for the next bytes: below zero, so many are skipped."""
        while self._walk is not None:
            if taken is not None:
                self.kept += taken
            try:
                wanted = next(self._walk) if taken is None else self._walk.send(taken)
            except StopIteration:
                self._walk = None
                return
            if wanted > _KEPT_BYTES_MAX - len(self.kept):
                self._walk = None
                return
            self._skipped, self._wanted = max(0, -wanted), max(0, wanted)
            if wanted:
                return
            taken = b""

    def _steps(self) -> _Walk:
        key, version, _, size = _HEADER.unpack((yield _HEADER.size))
        if key >= OWN_KEYS_FROM:
            self.is_answerable = True
            return
        if key != _PRODUCE:
            if self._is_refusable(key, version):
                yield max(0, size)
                self.is_answerable = True
            return
        if version not in _PRODUCE_VERSIONS:
            return
        yield max(0, size)
        is_flexible = version >= _FLEXIBLE_FROM
        yield from self._tags(is_flexible)
        yield from self._text(is_flexible)
        yield _ACKS_AND_TIMEOUT_BYTES
        for _ in range((yield from self._count(is_flexible))):
            yield from self._text(is_flexible)
            for _ in range((yield from self._count(is_flexible))):
                yield _INDEX_BYTES
                yield from self._records(is_flexible)
                yield from self._tags(is_flexible)
            yield from self._tags(is_flexible)
        yield from self._tags(is_flexible)
        self.is_answerable = True

    def _records(self, is_flexible: bool) -> _Walk:
        """Skip them, and keep that there are none."""
        start = len(self.kept)
        size = yield from self._count(is_flexible)
        del self.kept[start:]
        self.kept += _NO_COMPACT_RECORDS if is_flexible else _NO_RECORDS
        if size > 0:
            yield -size

    def _text(self, is_flexible: bool) -> _Walk:
        if is_flexible:
            size = yield from self._count(is_flexible)
        else:
            (size,) = _I16.unpack((yield _I16.size))
        yield max(0, size)

    def _tags(self, is_flexible: bool) -> _Walk:
        if is_flexible:
            for _ in range((yield from self._varint())):
                yield from self._varint()
                yield (yield from self._varint())

    def _count(self, is_flexible: bool) -> _Number:
        """How many there are; -1 for null."""
        if is_flexible:
            return (yield from self._varint()) - 1
        (count,) = _I32.unpack((yield _I32.size))
        return int(count)

    def _varint(self) -> _Number:
        found = shift = 0
        while True:
            (byte,) = yield 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift >= _VARINT_BITS_MAX:
                return found
