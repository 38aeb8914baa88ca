"""One connection of a Kafka client: on whose behalf it asks, and how its commands are carried out."""

from asyncio import wrap_future
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ...api.command import Command
from ...api.consume import Poll
from ...api.leased import LeasedMessages
from ...api.principals import Principal
from ...config import LimitsConfig
from ...errors import Draining, Forbidden, Unauthenticated
from ...runtime.asynchronous import AsyncDriver
from ..admission import admitted
from ..binary.sasl import SaslExchange
from ..binary.service import BinaryService
from ..refusals import topics_of
from .converted import ConvertedBatches
from .fetch_sessions import FetchSession, FetchSessions
from .members import KafkaMember, KafkaMembers

if TYPE_CHECKING:
    from ..binary.connection import Connection
    from .transactions import ProducerConnections

R = TypeVar("R")


class KafkaState(NamedTuple):
    """What all connections of one service share."""

    converted: ConvertedBatches
    members: KafkaMembers
    producers: "ProducerConnections"
    fetch_sessions: FetchSessions


class KafkaSession:
    """What a handler asks of the connection that a request came on."""

    __slots__ = (
        "client_id",
        "connection",
        "converted",
        "exchange",
        "fetch_session",
        "fetch_sessions",
        "members",
        "number",
        "producers",
        "service",
    )

    def __init__(
        self,
        service: BinaryService,
        connection: "Connection",
        state: KafkaState,
    ) -> None:
        self.service, self.connection = service, connection
        self.converted, self.members, self.producers, self.fetch_sessions = state
        # Connections are numbered in their order.
        self.number = self.producers.next_number()
        # What the client calls itself; empty before it has said so.
        self.client_id = ""
        # What the client fetches.
        self.fetch_session: FetchSession | None = None
        # Of the SASL mechanism that it chose.
        self.exchange: SaslExchange | None = None

    @property
    def driver(self) -> AsyncDriver:
        return self.service.driver

    @property
    def node_id(self) -> int:
        return self.service.settings.broker.node_id

    @property
    def address(self) -> tuple[str, int]:
        """Where the client is told to find the broker: where it came to, unless the settings say another name."""
        host, port = self.connection.transport.get_extra_info("sockname")[:2]
        return self.service.settings.broker.advertise or host, port

    @property
    def principal(self) -> Principal:
        principal = self.connection.principal
        assert principal is not None, "asked for before any handler was called"
        return principal

    def find_member(self, group: str, name: str) -> KafkaMember | None:
        """What is known of a member that acts for the same principal, on this connection or another."""
        return self.members.find(self.principal, group, name)

    def keep_member(self, group: str, name: str) -> KafkaMember:
        """A member to remember, known or new. ShareFull."""
        return self.members.keep(self.principal, group, name, self.limits)

    def forget_member(self, group: str, name: str) -> None:
        self.members.forget(self.principal, group, name)

    @property
    def limits(self) -> LimitsConfig:
        return self.service.settings.limits.limits_config()

    def require_key(self) -> None:
        """Unauthenticated: the client has not shown a key, and one is needed."""
        if self.connection.principal is None:
            raise Unauthenticated("this broker asks for keys: use SASL")

    async def execute(self, command: Command[R], *, is_synced: bool = False) -> R:
        """The reply to a command, or raises why it was refused. `is_synced`: it waits for the disk."""
        service, connection, principal = self.service, self.connection, self.principal
        if connection.credential is not None:
            service.auth.ends.require(connection.credential)
        if service.is_draining:
            raise Draining
        if service.under_way >= service.requests_max:
            raise service.overload()
        command = admitted(command, principal, service.settings, connection.is_tls)
        service.under_way += 1
        try:
            if command.is_audited():
                service.auth.admit_line(principal)
            reply = await self.driver.execute(
                command, principal, is_synced=is_synced, credential=connection.credential
            )
            if command.is_audited():
                line = service.auth.audit.submit(
                    principal.name,
                    command.action.value,
                    command.audit_text(reply),
                    client=connection.client,
                )
                await wrap_future(line)
        except Forbidden as error:
            service.auth.refusals.note(
                principal.name, command.action.value, topics_of(command, error), connection.client
            )
            raise
        finally:
            service.under_way -= 1
        return reply

    async def poll(self, polls: Sequence[Poll], timeout_ns: int) -> LeasedMessages:
        """Messages leased by any of these polls, which are of one member, waiting if there are none."""
        service, connection, principal = self.service, self.connection, self.principal
        if service.is_draining:
            raise Draining
        asked = [admitted(one, principal, service.settings, connection.is_tls) for one in polls]
        return await self.driver.poll(
            [one for one in asked if isinstance(one, Poll)], principal, timeout_ns
        )

    def admit(self) -> None:
        """TooManyRequests: the client is over its rate."""
        service = self.service
        if service.rate.limit > 0:
            name = self.principal.name if service.auth.is_on else self.connection.client
            service.rate.admit(name)
