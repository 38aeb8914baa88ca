"""What the ports for clients answer while this node does not lead: which node does, and how this one is.

No data is open meanwhile and no key can be checked, so nothing is told that is not open to all.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version

from ...api.frames import (
    OWN_KEYS_FROM,
    FrameSplitter,
    RequestHeader,
    key_and_correlation,
    read_header,
    reply_head,
)
from ...api.health import PASS, WARN, Check, health_word
from ...api.wire import encode_error
from ...errors import BadRequest, PenstockError
from ..http.framing import BadFraming, Framing, RequestHead
from ..http.responses import Response, json_response
from ..http.statuses import error_response
from ..settings import Settings
from .first_start import IN_NO_CLUSTER
from .kafka_answers import kafka_answer
from .membership import Membership
from .promotion import Peer

_HEALTH = frozenset({"/health", "/healthz", "/readyz"})
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# A request is answered at once; what takes longer than this to send one is cut off.
_IDLE_S = 60.0


class ClientPorts(ABC):
    """The connections of both ports, for as long as no data is open."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connections: set[_Connection] = set()

    def http(self) -> asyncio.Protocol:
        return _HttpConnection(self)

    def binary(self) -> asyncio.Protocol:
        return _BinaryConnection(self)

    def close(self) -> None:
        """End all connections: clients come back to a node that leads, or to one that follows another."""
        for one in [*self.connections]:
            one.transport.close()

    @abstractmethod
    def answer(self, method: str, path: str) -> Response:
        """The whole answer to a request over HTTP."""

    @abstractmethod
    def refusal(self) -> PenstockError:
        """Why a request of the binary port is refused."""

    @property
    @abstractmethod
    def leader(self) -> Peer | None:
        """Where Kafka's clients are sent."""


class RefusingPorts(ClientPorts):
    """Those of a node that does not lead."""

    def __init__(self, settings: Settings, membership: Membership, logger: logging.Logger) -> None:
        super().__init__(settings)
        self.membership, self.logger = membership, logger
        # The text of the metrics of replication.
        self.metrics: Callable[[], bytes] = lambda: b""

    def refusal(self) -> PenstockError:
        return self.membership.refusal()

    @property
    def leader(self) -> Peer | None:
        return self.membership.leader

    def answer(self, method: str, path: str) -> Response:
        membership = self.membership
        if method in {"GET", "HEAD"}:
            if path in _HEALTH:
                check = self._check()
                word = health_word(check.status) if path == "/health" else check.status
                found = {"status": word, "checks": {"replication": check}}
                return json_response({**found, **self._who(), **membership.status()})
            if path == "/livez":
                return json_response({"status": "pass", **self._who()})
            if path == "/version":
                return json_response({"version": version("penstock"), **self._who()})
            if path == "/leader":
                refusal = membership.refusal()
                return json_response(
                    {
                        "is_leader": False,
                        "is_writable": False,
                        "leader": refusal.fields["leader"],
                        "http": refusal.fields["http"],
                        "epoch": refusal.fields["epoch"],
                    },
                    status=503,
                )
            if path == "/metrics":
                return Response(self.metrics(), 200, METRICS_TYPE)
        return error_response(membership.refusal())

    def _check(self) -> Check:
        """How this node is as a standby. Paths of logs are names of topics, which are not told to all."""
        membership = self.membership
        if membership.problem is not None:
            code = membership.problem.code
            return Check(
                WARN, f"this node cannot copy the leader: {code}; see penstock standby status"
            )
        if membership.begins:
            return Check(WARN, IN_NO_CLUSTER)
        return Check(PASS, membership.role.value)

    def _who(self) -> dict[str, object]:
        membership = self.membership
        return {
            "role": membership.role.value,
            "epoch": membership.epoch,
            "broker": {"node_id": self.settings.broker.id, "version": version("penstock")},
        }


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, ports: ClientPorts) -> None:
        self._ports = ports
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # Streams have both directions.
        connections = self._ports.connections
        connections.add(self)
        if len(connections) > self._ports.settings.http.connections_max:
            self.transport.abort()
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_S, self.transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        self._ports.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """The client does not read: nothing that is told here is worth a wait."""
        self.transport.abort()


class _HttpConnection(_Connection):
    """Answers every request with what is open to all, or with NOT_LEADER. Bodies are read over."""

    def __init__(self, ports: ClientPorts) -> None:
        super().__init__(ports)
        self._framing = Framing(ports.settings.http.header_bytes_max)
        self._head: RequestHead | None = None

    def data_received(self, data: bytes) -> None:
        self._wait()
        self._framing.receive(data)
        try:
            while not self.transport.is_closing() and (taken := self._framing.take()) is not None:
                if isinstance(taken, RequestHead):
                    self._head = taken
                    if taken.expects_continue:
                        taken.is_kept_alive = False
                        self._answer(taken)
                elif not taken and self._head is not None:
                    self._answer(self._head)
        except BadFraming as error:
            found = {"error": error.code, "message": str(error), "status": error.status}
            self._send(json_response(found, status=error.status), is_last=True, is_head=False)

    def _answer(self, head: RequestHead) -> None:
        self._head = None
        path = head.path.decode("latin-1").rstrip("/") or "/"
        response = self._ports.answer(head.method, path)
        self._send(response, is_last=not head.is_kept_alive, is_head=head.method == "HEAD")

    def _send(self, response: Response, *, is_last: bool, is_head: bool) -> None:
        status = HTTPStatus(response.status)
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        end = b"connection: close\r\n\r\n" if is_last else b"\r\n"
        body = b"" if is_head else bytes(response.body)
        self.transport.write(b"".join((line, response.fields(b"standby"), end, body)))
        if is_last:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._framing.close()
        super().connection_lost(error)


class _BinaryConnection(_Connection):
    """Answers our own requests with NOT_LEADER, and Kafka's with the name of the leader."""

    def __init__(self, ports: ClientPorts) -> None:
        super().__init__(ports)
        self._splitter = FrameSplitter(ports.settings.binary.frame_bytes_max)

    def data_received(self, data: bytes) -> None:
        self._wait()
        for frame in self._splitter.feed(data):
            if self.transport.is_closing():
                return
            self._answer(frame)
        if self._splitter.error is not None:
            self.transport.close()

    def _answer(self, frame: memoryview) -> None:
        refusal = self._ports.refusal()
        try:
            header, body = read_header(frame)
        except BadRequest:
            self.transport.close()
            return
        if header.api_key >= OWN_KEYS_FROM:
            _, correlation = key_and_correlation(frame)
            self._reply(correlation, encode_error(refusal))
        else:
            self._answer_kafka(header, body, refusal)

    def _answer_kafka(
        self, header: RequestHeader, body: memoryview, refusal: PenstockError
    ) -> None:
        settings, leader = self._ports.settings, self._ports.leader
        try:
            answer = None
            if not settings.auth.enabled:
                answer = kafka_answer(header, body, refusal, leader)
        except BadRequest:
            answer = None
        if answer is None:
            # A client that cannot be told goes on to the next address that it has.
            self.transport.close()
        else:
            self._reply(header.correlation, answer)

    def _reply(self, correlation: int, body: bytes) -> None:
        self.transport.write(reply_head(correlation, len(body)) + body)
