"""The connections of a client, and the tries that a command has."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...api.command import Command
from ...api.contents import LIMITS
from ...api.fetch import Fetch
from ...api.frames import COMMAND, HelloReply
from ...api.publish import Acks
from ...api.wire import Reply, decode_reply
from ...errors import BadAnswer, BadRequest, NotLeader, PenstockError, Refused, Unreachable
from ..address import Address, checked_key
from ..calls import WAIT_S_MAX, Call, limits_of
from ..commands import is_error_reply
from ..forks import note_made
from ..retry import Breaker, RetryPolicy, chance
from ..settings import ClientSettings
from .connection import Connection, Pending
from .io import Lock, running_loop, sleep

R = TypeVar("R")


class Sent(NamedTuple):
    """A call that was sent, and where its reply will be."""

    call: Call
    pending: Pending


class AsyncConnector:
    """One connection for commands, and one for bulk reads, which would hold up the others; made when needed.

    Of several addresses, those of a broker and its standby, the one that led last is asked first.
    """

    def __init__(
        self, addresses: Sequence[Address], key: str | None, settings: ClientSettings
    ) -> None:
        self.settings = settings
        self._addresses = [*addresses]
        self.name = ",".join(map(str, addresses))
        self.breaker = Breaker(self.name)
        self.key = checked_key(key)
        self.retry = settings.retry or RetryPolicy()
        # Of messages: ours, or those of the server where they are lower.
        self.limits = LIMITS
        self._tls = settings.tls_context() if addresses[0].is_tls else None
        # By whether it is the one for bulk reads.
        self._connections: dict[bool, Connection] = {}
        self._locks = {False: Lock(), True: Lock()}
        self._loop: object = None
        self._is_closed = False
        # Why this process may not use it: it was forked.
        self._refusal: str | None = None
        note_made(self)

    def leave_to_parent(self, reason: str) -> None:
        """After a fork: the parent goes on with the connections, and this process refuses."""
        self._refusal = reason
        self._locks = {False: Lock(), True: Lock()}  # Threads of the parent may hold those before.
        while self._connections:
            self._connections.popitem()[1].leave_to_parent()

    async def execute(
        self,
        command: Command[R],
        *,
        acks: Acks | None = Acks.LEADER,
        wait_s: float = 0.0,
        may_repeat: bool | None = None,
        on_failure: Callable[[PenstockError], None] | None = None,
    ) -> Reply[Any]:
        """The reply to a command, after as many tries as the policy allows. `on_failure` gets the error of each try.

        `may_repeat`: whether it may be carried out twice; None: as commands of its kind may.
        """
        call, tries = Call(command, acks, wait_s), 0
        until_s = self.until_s(wait_s)
        while True:
            tries += 1
            try:
                return await self.end(await self.begin(call))
            except PenstockError as error:
                if on_failure is not None:
                    on_failure(error)
                repeats = command.may_be_repeated() if may_repeat is None else may_repeat
                if not await self.pause(error, tries, until_s, is_repeatable=repeats):
                    raise

    def until_s(self, wait_s: float) -> float:
        """Up to when a call that begins now waits for an open breaker: as long as for an answer."""
        return time.monotonic() + self.settings.timeout_s + wait_s

    async def pause(
        self, error: PenstockError, tries: int, until_s: float, *, is_repeatable: bool
    ) -> bool:
        """Wait until the next try; False, at once, if there is to be none."""
        left_s = until_s - time.monotonic()
        pause_s = self.retry.wait_s(
            error, tries, chance(), is_repeatable=is_repeatable, left_s=left_s
        )
        if pause_s is not None:
            await sleep(pause_s)
        return pause_s is not None

    async def begin(self, call: Call) -> Sent:
        """Send a command; `end` or `Pending.cancel` has to follow."""
        connection = await self._connection(isinstance(call.command, Fetch))
        body = call.encoded(connection.server)
        try:
            return Sent(call, await connection.post(COMMAND, body))
        except Unreachable:
            self.breaker.failed(now_s := time.monotonic(), now_s)
            raise

    async def _connection(self, is_bulk: bool) -> Connection:
        if self._refusal is not None:
            raise Refused(self._refusal)
        if self._is_closed:
            raise Refused("the client was closed")
        if self.breaker.failures:
            self.breaker.admit(time.monotonic())
        found = self._connections.get(is_bulk)
        if found is not None and found.is_orphan:
            del self._connections[is_bulk]
            found = None
        if found is not None and found.is_usable:
            return found
        if (loop := running_loop()) is not self._loop:
            # A lock is of the loop in which tasks have waited for it, and a program may run one after the other.
            self._loop, self._locks = loop, {False: Lock(), True: Lock()}
        async with self._locks[is_bulk]:
            found = self._connections.get(is_bulk)
            if found is not None and found.is_usable:
                return found
            try:
                made = self._connections[is_bulk] = await self._open()
            except Unreachable:
                self.breaker.failed(now_s := time.monotonic(), now_s)
                raise
            self.limits = limits_of(made.server.limits)
            if self.settings.retry is None:
                self.retry = RetryPolicy.of_server(made.server.defaults)
        if self._is_closed:
            made.close()
            raise Refused("the client was closed")
        return made

    async def _open(self) -> Connection:
        """A connection with the node that leads: each address is tried once. The error is that of the last."""
        for left in range(len(self._addresses) - 1, -1, -1):
            address = self._addresses[0]
            try:
                return await Connection.open(address, self._tls, self.key, self.settings)
            except (NotLeader, Unreachable) as error:
                self._turn(error)
                if not left:
                    raise
        raise AssertionError("there is an address")

    def _turn(self, error: PenstockError) -> None:
        """Ask the leader next that an error names, if it is one of the addresses; otherwise the next one."""
        named = str(error.fields.get("leader", ""))
        index = next((at for at, one in enumerate(self._addresses) if str(one) == named), 1)
        if index < len(self._addresses):
            self._addresses = [*self._addresses[index:], *self._addresses[:index]]

    def _leave(self, error: NotLeader) -> None:
        """The node leads no longer: connections with it are of no use."""
        self._turn(error)
        while self._connections:
            self._connections.popitem()[1].close()

    async def end(self, sent: Sent, *, is_early: bool = False) -> Reply[Any]:
        """The reply to a command that `begin` sent. Its time began then, or begins now if it `is_early`."""
        start_s = time.monotonic() if is_early else sent.pending.sent_at_s
        until_s = start_s + self.settings.timeout_s + min(sent.call.wait_s, WAIT_S_MAX)
        try:
            body = await sent.pending.body(until_s)
        except Unreachable:
            self.breaker.failed(time.monotonic(), sent.pending.sent_at_s)
            raise
        if self.breaker.failures:
            self.breaker.succeeded()
        try:
            return decode_reply(type(sent.call.command), body)
        except NotLeader as error:
            self._leave(error)
            raise
        except BadRequest as error:
            if is_error_reply(body):
                raise
            raise BadAnswer(self.name, str(error)[:200], is_sent=True) from None

    async def hello(self) -> HelloReply:
        """What the server says of itself. Connects, if there is no connection."""
        return (await self._connection(False)).server

    async def close(self) -> None:
        """Close the connections, and with them what is under way."""
        self._is_closed = True
        while self._connections:
            self._connections.popitem()[1].close()
