"""TLS on a socket that one thread reads from while others write: OpenSSL itself lets only one of them in at a time."""

import socket
import ssl
from collections.abc import Iterable
from threading import Lock
from typing import Any

from ...model import Buffer

_PIECE_BYTES = 256 << 10


class TlsStream:
    """A socket with TLS. The lock is held while bytes are encrypted or decrypted, and never while the network waits."""

    def __init__(self, stream: socket.socket, tls: ssl.SSLContext, host: str) -> None:
        """Does the handshake. OSError if that fails, or takes longer than the socket's timeout for one step."""
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._guard, self._writing = Lock(), Lock()
        try:
            self._shake_hands()
        except BaseException:
            stream.close()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            else:
                self._flush()
                return

    def _flush(self) -> None:
        """Send what is encrypted, in its order."""
        with self._writing:
            with self._guard:
                data = self._outgoing.read()
            if data:
                self._stream.sendall(data)

    def _receive(self) -> None:
        data = self._stream.recv(_PIECE_BYTES)
        with self._guard:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def sendmsg(self, pieces: Iterable[Buffer]) -> int:
        """Send a part of the first piece; returns how much."""
        with self._guard:
            sent = self._tls.write(memoryview(next(iter(pieces)))[:_PIECE_BYTES])
        self._flush()
        return sent

    def recv_into(self, buffer: memoryview) -> int:
        """Some bytes; 0 at the end."""
        while True:
            try:
                with self._guard:
                    size: Any = self._tls.read(len(buffer), buffer)
                    return int(size)
            except ssl.SSLWantReadError:
                self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def fileno(self) -> int:
        return self._stream.fileno()

    def setblocking(self, is_blocking: bool) -> None:
        self._stream.setblocking(is_blocking)

    def setsockopt(self, *option: Any) -> None:
        self._stream.setsockopt(*option)

    def shutdown(self, how: int) -> None:
        self._stream.shutdown(how)

    def close(self) -> None:
        self._stream.close()
