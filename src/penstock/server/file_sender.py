"""Bytes of a file on their way to a client: the system sends them, and nothing of them is copied to us and back."""

import asyncio
import errno
import os
import struct
from collections.abc import Callable
from fcntl import ioctl
from termios import TIOCOUTQ

from ..api.fetch import FileRange

_INT = struct.Struct("@i")
# Not every file system lets its files be sent.
_CANNOT_SEND = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_COPIED_BYTES = 256 << 10


class FileSender:
    """Sends a head and then bytes of a file, while the transport of the socket has nothing to send itself.

    `on_done` is called by the loop, once, unless `begin` returns True; its argument says whether all was sent. The
    descriptor of the socket is one of our own: the loop does not let us wait for that of a transport.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: int,
        head: bytes,
        body: FileRange,
        on_done: Callable[[bool], None],
    ) -> None:
        self._loop, self._socket, self._on_done = loop, os.dup(socket), on_done
        self._head = memoryview(head)
        self._file, self._position, self._left = body
        self._is_waiting = False

    def begin(self) -> bool:
        """Send what the socket takes now; whether that was all. OSError: the client left, or the file is shorter."""
        try:
            is_done = self._send()
        except OSError:
            self.end()
            raise
        if is_done:
            self.end()
        else:
            self._is_waiting = True
            self._loop.add_writer(self._socket, self._go_on)
        return is_done

    def _go_on(self) -> None:
        try:
            is_done = self._send()
        except OSError:
            self.end()
            self._on_done(False)
            return
        if is_done:
            self.end()
            self._on_done(True)

    def _send(self) -> bool:
        try:
            while self._head:
                self._head = self._head[os.write(self._socket, self._head) :]
            while self._left:
                sent = self._send_some()
                if sent == 0:
                    raise OSError(errno.EIO, "a file is shorter than it was")
                self._position, self._left = self._position + sent, self._left - sent
        except BlockingIOError:
            return False
        return True

    def _send_some(self) -> int:
        """Send what the socket takes. Returns how many bytes that were; 0 if the file ends here."""
        try:
            return os.sendfile(self._socket, self._file.number, self._position, self._left)
        except OSError as error:
            if error.errno not in _CANNOT_SEND:
                raise
        piece = os.pread(self._file.number, min(self._left, _COPIED_BYTES), self._position)
        return os.write(self._socket, piece)

    def unsent_bytes(self) -> int:
        """What the client has not taken yet, with what the system still has of it."""
        queued = ioctl(self._socket, TIOCOUTQ, bytes(_INT.size))
        return len(self._head) + self._left + int(_INT.unpack(queued)[0])

    def end(self) -> None:
        """Send nothing more. Calling it again does nothing."""
        if self._socket < 0:
            return
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
        os.close(self._socket)
        self._socket = -1


def read_range(found: FileRange) -> bytes:
    """The bytes themselves, for a connection that cannot send from files. OSError: the file is shorter."""
    pieces, position, left = [], found.position, found.size
    while left:
        piece = os.pread(found.file.number, left, position)
        if not piece:
            raise OSError(errno.EIO, "a file is shorter than it was")
        pieces.append(piece)
        position, left = position + len(piece), left - len(piece)
    return b"".join(pieces)
