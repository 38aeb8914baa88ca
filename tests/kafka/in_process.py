"""A Kafka client of a broker in this process, without sockets."""

from typing import Any

from penstock.api.frames import RequestHeader
from penstock.api.principals import LOCAL, Principal
from penstock.server.binary.commands import Commands
from penstock.server.binary.connection import Connection
from penstock.server.binary.service import BinaryService
from penstock.server.kafka.port import KafkaServer
from penstock.server.kafka.schema import REQUESTS
from tests.kafka.client_wire import decode_response, encode_request
from tests.server.binary.services import service_of
from tests.server.binary.transports import Wire


class KafkaRig:
    """Kafka's port of a broker of `tests.server.rigs.in_process`."""

    def __init__(self, broker: Any) -> None:
        self.service: BinaryService = service_of(broker)
        self.server = self.service.kafka = KafkaServer(self.service)

    def client(self, principal: Principal = LOCAL) -> "KafkaClient":
        connection = Connection(self.service, Commands(self.service))
        connection.principal, connection.transport = principal, Wire()
        return KafkaClient(self.server, connection)


class KafkaClient:
    """One connection, on which a principal has shown its key."""

    def __init__(self, server: KafkaServer, connection: Connection) -> None:
        self._server, self._connection = server, connection

    async def ask(self, key: int, version: int, **values: Any) -> dict[str, Any]:
        is_flexible = version >= REQUESTS[key].flexible
        body = (b"\0" if is_flexible else b"") + encode_request(key, version, values)
        header = RequestHeader(key, version, 7, "test")
        pieces = await self._server.answer(header, memoryview(body), self._connection)
        assert pieces is not None
        answer = b"".join(bytes(one) for one in pieces)  # type: ignore[arg-type]  # No part of a file.
        return decode_response(key, version, answer[1:] if is_flexible else answer)

    def leave(self) -> None:
        """The connection has ended."""
        self._connection.connection_lost(None)

    def authenticate(self, principal: Principal) -> None:
        """Show another key."""
        self._connection.principal = principal
