"""Bytes of a server as replies. No I/O: a connection receives into `buffer` and says how much came."""

from struct import Struct

from ..errors import BadAnswer

# A poll is at most 16 MiB and one message more, a fetch 16 MiB and one batch more.
REPLY_BYTES_MAX = 64 << 20
# Replies up to this size are copied out of one buffer; a larger one is received into memory of its own.
_BUFFER_BYTES = 64 << 10
_LENGTH = Struct(">i")
_HEAD = Struct(">ii")
_CORRELATION_BYTES = 4

Replies = list[tuple[int, memoryview]]
"""The correlation and the body of each reply."""


class ReplyReader:
    """Splits what a server sends. BadAnswer if that cannot be replies; nothing can be read after it."""

    __slots__ = ("_address", "_buffer", "_end", "_large", "_large_end", "_view")

    def __init__(self, address: str) -> None:
        self._address = address
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        # How much of the buffer holds bytes of a reply that is not whole yet.
        self._end = 0
        # A large reply without its length, and how much of it is here.
        self._large: memoryview | None = None
        self._large_end = 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._view[self._end :]

    def received(self, size: int) -> Replies:
        """The replies that are whole with the `size` bytes that were written into `buffer`."""
        if self._large is not None:
            self._large_end += size
            if self._large_end < len(self._large):
                return []
            whole, self._large = self._large, None
            (correlation,) = _LENGTH.unpack_from(whole)
            return [(correlation, whole[_CORRELATION_BYTES:])]
        buffer, end, position = self._buffer, self._end + size, 0
        replies: Replies = []
        while end - position >= _HEAD.size:
            length, correlation = _HEAD.unpack_from(buffer, position)
            following = position + _LENGTH.size + length
            if not _CORRELATION_BYTES <= length <= REPLY_BYTES_MAX:
                raise BadAnswer(self._address, self._strange(position, end), is_sent=True)
            if following > end:
                if following - position > _BUFFER_BYTES:
                    self._begin_large(length, position + _LENGTH.size, end)
                    position = end
                break
            # The buffer is used again; the reply is kept.
            replies.append(
                (correlation, memoryview(bytes(self._view[position + _HEAD.size : following])))
            )
            position = following
        self._end = end - position
        if position and self._end:
            buffer[: self._end] = buffer[position:end]
        return replies

    def _begin_large(self, length: int, start: int, end: int) -> None:
        self._large = memoryview(bytearray(length))
        self._large_end = end - start
        self._large[: self._large_end] = self._view[start:end]

    def _strange(self, position: int, end: int) -> str:
        found = bytes(self._view[position : min(end, position + 40)])
        if found.startswith(b"HTTP"):
            return "it speaks HTTP; the client needs the address of the binary port"
        return f"no reply begins with {found!r}"
