"""Bytes of a file on their way to a client. The system sends them: nothing of them is copied to us and back."""

import asyncio
import errno
import os
import struct
from fcntl import ioctl
from termios import TIOCOUTQ

from ...api.fetch import FileRange

_INT = struct.Struct("@i")
_PIECE_BYTES = 64 * 1024
# Not every file system lets its files be sent.
_CANNOT_SEND = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class FileTransfer:
    """The head of an answer, and then its body, which lies in a file. `end` has to follow, whatever happens.

    The descriptor of the socket is one of our own: the loop does not let us wait for that of a transport.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: int, head: bytes, body: FileRange
    ) -> None:
        self._loop, self._socket = loop, os.dup(socket)
        self._head = memoryview(head)
        self._file, self._position, self._left = body
        self._sent: asyncio.Future[None] = loop.create_future()
        self._is_waiting = False
        # What the client had not read yet at the last look.
        self._untaken = 0

    @property
    def is_done(self) -> bool:
        return not self._left

    def send_some(self) -> None:
        """Hand over as much as there is room for. OSError if the client left, or the file has become shorter."""
        try:
            while self._head:
                self._head = self._head[os.write(self._socket, self._head) :]
            while self._left:
                sent = self._send_piece()
                if sent == 0:
                    raise OSError(errno.EIO, "a file is shorter than it was")
                self._position, self._left = self._position + sent, self._left - sent
        except BlockingIOError:
            return

    def _send_piece(self) -> int:
        """Send as much as there is room for; how many bytes that was, 0 at the end of the file."""
        try:
            return os.sendfile(self._socket, self._file.number, self._position, self._left)
        except OSError as error:
            if error.errno not in _CANNOT_SEND:
                raise
        piece = os.pread(self._file.number, min(self._left, _PIECE_BYTES), self._position)
        return os.write(self._socket, piece)

    async def send_rest(self) -> None:
        """Send what is left, whenever there is room for some. OSError as `send_some`, CancelledError after `end`."""
        self._is_waiting, self._untaken = True, self._now_untaken()
        self._loop.add_writer(self._socket, self._when_free)
        await self._sent

    def _when_free(self) -> None:
        if self._sent.done():
            return
        try:
            self.send_some()
        except OSError as error:
            self._sent.set_exception(error)
        else:
            if self.is_done:
                self._sent.set_result(None)

    def has_moved(self) -> bool:
        """Whether the client has taken some since it was asked last, or since the wait began."""
        before, self._untaken = self._untaken, self._now_untaken()
        return self._untaken < before

    def _now_untaken(self) -> int:
        """With what the system still has: it takes more of the file only when a third of its room is free again."""
        queued = ioctl(self._socket, TIOCOUTQ, bytes(_INT.size))
        return len(self._head) + self._left + int(_INT.unpack(queued)[0])

    def end(self) -> None:
        """Send nothing more. A task that waits in `send_rest` is cancelled."""
        if self._socket < 0:
            return
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
        os.close(self._socket)
        self._socket = -1
        self._sent.cancel()
