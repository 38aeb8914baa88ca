"""What the ports for clients answer while the data is opened: that the process lives, and how far it is.

A start reads what lies behind snapshots, of thousands of partitions or after a crash for seconds. No key can be checked
meanwhile, so nothing is told that is not open to all.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from importlib.metadata import version

from ..broker.progress import OpeningProgress
from ..errors import PenstockError, Unavailable
from .http.responses import Response, json_response
from .http.statuses import error_response
from .settings import Settings
from .standby.promotion import Peer
from .standby.refusing_ports import METRICS_TYPE, ClientPorts
from .standby.turns import addresses

_BACKLOG = 2048


def itself(
    settings: Settings, listener: socket.socket, binary_listener: socket.socket | None
) -> Peer:
    """This node, as Kafka's clients are told of it: they ask it again."""
    host = settings.broker.host
    http, binary = (
        text.replace("{host}", host) for text in addresses(settings, listener, binary_listener)
    )
    return Peer(settings.broker.node_id, "leading", 0, http, binary, 1, False, "", "")


class OpeningPorts(ClientPorts):
    """The connections of both ports until the data is open."""

    def __init__(self, settings: Settings, progress: OpeningProgress, leader: Peer | None) -> None:
        super().__init__(settings)
        self._progress, self._leader = progress, leader
        self._servers: list[asyncio.Server] = []

    async def listen(
        self,
        listener: socket.socket,
        binary_listener: socket.socket | None,
        context: ssl.SSLContext | None,
    ) -> None:
        """Answer on copies of these sockets: what connects meanwhile and later meets the same address."""
        loop = asyncio.get_running_loop()
        ways: list[tuple[Callable[[], asyncio.Protocol], socket.socket | None]] = [
            (self.http, listener),
            (self.binary, binary_listener),
        ]
        for protocol, one in ways:
            if one is not None:
                self._servers.append(
                    await loop.create_server(
                        protocol, sock=one.dup(), backlog=_BACKLOG, ssl=context
                    )
                )

    def close(self) -> None:
        for server in self._servers:
            server.close()
        super().close()

    @property
    def leader(self) -> Peer | None:
        return self._leader

    def refusal(self) -> PenstockError:
        done, total = self._progress.opened, self._progress.partitions
        return Unavailable(
            f"the data is being opened, {done:,} of {total:,} partitions; try again in a moment"
        )

    def answer(self, method: str, path: str) -> Response:
        progress = {"opened": self._progress.opened, "partitions": self._progress.partitions}
        if method not in {"GET", "HEAD"}:
            return error_response(self.refusal())
        match path:
            case "/livez":
                return json_response({"status": "pass", "opening": progress})
            case "/version":
                return json_response({"version": version("penstock")})
            case "/health" | "/healthz" | "/readyz":
                return json_response({"status": "fail", "opening": progress}, status=503)
            case "/leader":
                told = {"is_leader": False, "is_writable": False, "opening": progress}
                return json_response(told, status=503)
            case "/metrics":
                return Response(self._metrics(), 200, METRICS_TYPE)
        return error_response(self.refusal())

    def _metrics(self) -> bytes:
        return (
            "# TYPE penstock_opening_partitions gauge\n"
            f"penstock_opening_partitions {self._progress.partitions}\n"
            "# TYPE penstock_opening_partitions_opened gauge\n"
            f"penstock_opening_partitions_opened {self._progress.opened}\n"
        ).encode()
