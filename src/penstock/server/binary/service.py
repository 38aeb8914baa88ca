"""What all connections of the binary port share."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...api.fetch import FileRange
from ...api.frames import RequestHeader
from ...api.keys import Credential
from ...api.principals import LOCAL, Principal
from ...errors import PenstockError, TooManyRequests
from ...model import Buffer
from ...runtime.asynchronous import AsyncDriver
from ..audit import AuditLog
from ..body_memory import BodyMemory
from ..settings import Settings
from ..traffic import BinaryTraffic
from .shared_groups import Registry

if TYPE_CHECKING:
    from .connection import Connection

Piece = Buffer | FileRange
Pieces = list[Piece]
"""Bytes that follow each other; the last piece may be of a file, and is sent from there."""

_RETRY_MS = 1000


class KafkaPort(Protocol):
    """What answers api keys below 10,000. Requests of one connection are carried out and answered in their order."""

    async def answer(
        self,
        header: RequestHeader,
        body: memoryview,
        connection: "Connection",
        refusal: PenstockError | None = None,
    ) -> Pieces | None:
        """The body of the reply behind its correlation, or None for no reply. Raises only to end the connection.

        A Produce with a `refusal` came without its records, and another request without its body: it is answered with
        that.
        """
        ...

    def is_refusable(self, key: int, version: int) -> bool:
        """Whether a request without its body can be answered with a `refusal`."""
        ...

    def forget(self, connection: "Connection") -> None:
        """A connection has ended."""
        ...


class _Ends(Protocol):
    def watch(self, credential: Credential | None, end: Callable[[], None]) -> None: ...
    def unwatch(self, credential: Credential | None, end: Callable[[], None]) -> None: ...
    def require(self, credential: Credential | None) -> None: ...
    def look(self) -> None: ...


class _Refusals(Protocol):
    def note(self, who: str, what: str, where: str, client: str) -> None: ...


class Auth(Protocol):
    """Keys, as HTTP has them: one object serves both ports."""

    is_on: bool
    audit: AuditLog

    @property
    def ends(self) -> _Ends: ...
    @property
    def refusals(self) -> _Refusals: ...
    def authenticate(self, sent: str, client: str, where: str) -> tuple[Principal, Credential]:
        """Whose key this is. Unauthenticated; TooManyRequests for an address that failed too often."""
        ...

    def admit_line(self, principal: Principal) -> None:
        """TooManyRequests: a command that gets a line of the audit log is over the share of its key, or of all."""
        ...

    def note_use(self, credential: Credential) -> None: ...
    def note_failure(self, client: str, where: str) -> None:
        """TooManyRequests for an address that failed too often."""
        ...


class _Rate(Protocol):
    limit: int

    def admit(self, name: str) -> None: ...


class _SendBudget(Protocol):
    def begin(self, connection: Any) -> None: ...
    def end(self, connection: Any) -> None: ...
    def require_room(self) -> None: ...


class BinaryService:
    """Belongs to one event loop. `http_port` is the port of the other listener, 0 if there is none."""

    def __init__(
        self,
        driver: AsyncDriver,
        settings: Settings,
        auth: Auth,
        *,
        rate: _Rate,
        budget: _SendBudget,
        memory: BodyMemory,
        shared: Registry,
        traffic: BinaryTraffic,
        logger: logging.Logger,
    ) -> None:
        self.driver, self.settings, self.auth = driver, settings, auth
        self.rate, self.budget, self.logger = rate, budget, logger
        self.shared, self.traffic, self.loop = shared, traffic, driver.loop
        # Of frames whose end has not come yet, and of bodies of HTTP.
        self.memory = memory
        self.kafka: KafkaPort | None = None
        self.http_port = 0
        self.connections: set[Connection] = set()
        # Requests that wait for the disk or for a thread; those that wait for messages are not among them.
        self.under_way, self.requests_max = 0, settings.binary.requests_max
        self.is_draining = False
        self.started_at_ns = driver.driver.clock.now_ns()

    @property
    def first_principal(self) -> Principal | None:
        """On whose behalf a connection acts before it has shown a key; None: not at all."""
        return None if self.auth.is_on else LOCAL

    def is_refusable(self, key: int, version: int) -> bool:
        """Whether a request of Kafka of which there is no more than its header can be answered with an error."""
        return self.kafka is not None and self.kafka.is_refusable(key, version)

    def http_address(self, local_host: str) -> str:
        """Where HTTP is served, for a client that came to this host."""
        if not self.http_port:
            return ""
        host = self.settings.broker.advertise or local_host
        scheme = "https" if self.settings.tls.is_on else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.http_port}"

    def overload(self) -> TooManyRequests:
        """What a request is refused with while too many are under way."""
        return TooManyRequests(
            "requests at once", limit=self.requests_max, retry_after_ms=_RETRY_MS
        )

    def configure(self, settings: Settings) -> None:
        """Take over what a running process can."""
        self.settings = settings

    def sweep(self) -> None:
        """Every second: end connections that are idle, late with a frame, or do not read."""
        now = time.monotonic()
        for connection in [*self.connections]:
            connection.sweep(now)

    def drain(self) -> None:
        """Refuse new commands. The driver's own drain lets those go that wait for messages."""
        self.is_draining = True

    def close(self) -> None:
        """End all connections."""
        for connection in [*self.connections]:
            connection.close()
