"""The listener of the binary port: opened with the broker, drained and closed with it."""

import asyncio
import socket
import ssl

from ..settings import Settings
from ..tls import load_certificate, server_context
from .commands import Commands
from .connection import Connection
from .service import BinaryService

_LOOK_S = 0.01


class BinaryServer:
    """Serves connections of a socket that listens."""

    def __init__(self, service: BinaryService, listener: socket.socket) -> None:
        self.service, self._listener = service, listener
        self._context: ssl.SSLContext | None = None
        if service.settings.tls.is_on:
            self._context = server_context(service.settings.tls)
        host, port = listener.getsockname()[:2]
        scheme = "penstock" if self._context is None else "penstocks"
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        """Take connections from now on."""
        service, commands = self.service, Commands(self.service)
        is_tls = self._context is not None
        handshake_s = service.settings.http.header_timeout_ms / 1000 if is_tls else None
        self._server = await service.loop.create_server(
            lambda: Connection(service, commands),
            sock=self._listener,
            ssl=self._context,
            ssl_handshake_timeout=handshake_s,
        )

    def load_certificate(self, settings: Settings) -> None:
        """New connections get the certificate of these settings."""
        if self._context is not None:
            load_certificate(self._context, settings.tls)

    def drain(self) -> None:
        """Take no new connections, and refuse new commands; what is under way goes on."""
        self._server.close()
        self.service.drain()

    async def stop(self) -> None:
        """Close all connections, once what is under way is answered or took too long."""
        self.drain()
        deadline = self.service.loop.time() + self.service.settings.http.drain_timeout_ms / 1000
        while self.service.under_way and self.service.loop.time() < deadline:  # noqa: ASYNC110 - a number, not an event
            await asyncio.sleep(_LOOK_S)
        self.service.close()
        # Let what was replied reach the sockets.
        await asyncio.sleep(0)
