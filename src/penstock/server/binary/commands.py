"""Our own api key for commands, and the one that ends those that wait."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...api.command import Command
from ...api.consume import Poll
from ...api.dead_letters import DiscardDeadLetters, RedriveDeadLetters
from ...api.fetch import Fetch, FetchReply, Read, ReadReply
from ...api.keys import RevokeKey, RotateKey
from ...api.leased import LeasedMessages
from ...api.members import DescribeMember, JoinGroup, MemberCommand, PollMember, Standing
from ...api.principals import Principal
from ...api.publish import BUFFERED, Acks, Safety
from ...api.start import Start
from ...api.wire import (
    CALLS,
    CommandRequest,
    decode_command,
    encode_fetch_reply,
    encode_leased_reply,
    encode_reply,
    encode_value,
)
from ...broker.authorise import authorise_command
from ...errors import (
    BadRequest,
    Cancelled,
    Draining,
    Forbidden,
    Internal,
    PenstockError,
    Unauthenticated,
)
from ...runtime.asynchronous import ParkedPoll
from ...runtime.steps import Steps
from ...runtime.tickets import Ticket
from ..admission import admitted, visible
from ..leased_parts import fitting, leased_parts
from ..refusals import topics_of
from .coroutines import RunningCoroutine
from .service import BinaryService
from .shared_groups import SharedGroups, SharedMember, is_shared_join, standing_of
from .waits import EndedWait, ParkedRead

if TYPE_CHECKING:
    from .connection import Connection

_MS_NS = 1_000_000
_CORRELATION = Struct(">i")
Way = Callable[["Connection", int, CommandRequest, Principal], None]
"""Carries out a command of a connection, with this correlation, for a principal."""


class Commands:
    """Carries out requests of connections. A request that waits takes no task."""

    def __init__(self, service: BinaryService) -> None:
        self._service, self._driver, self._loop = service, service.driver, service.loop
        self._shared = SharedGroups(service.driver.driver, service.shared)
        # What to do when a sync is over, by the ticket that it settles: one wake-up for all of them.
        self._unsynced: dict[Ticket, list[Callable[[Ticket], None]]] = {}
        self._ways = {call.kind: self._way_of(call.kind) for call in CALLS.values()}

    def cancel(self, connection: "Connection", correlation: int, body: memoryview) -> None:
        """End a request that waits. The reply says whether it did wait; the request itself gets an error."""
        if len(body) != _CORRELATION.size:
            connection.fail(correlation, BadRequest("cancel names the correlation of a request"))
            return
        (cancelled,) = _CORRELATION.unpack(body)
        waiting = connection.parked.pop(cancelled, None)
        if waiting is not None:
            waiting.cancel()
            connection.fail(cancelled, Cancelled())
        connection.reply(correlation, encode_value(waiting is not None))

    def begin(self, connection: "Connection", correlation: int, body: memoryview) -> None:
        """Carry out a command, or begin to; its reply follows now or later."""
        service, principal = self._service, connection.principal
        if service.under_way >= service.requests_max:
            service.traffic.refuse("requests")
            connection.fail(correlation, service.overload())
            return
        command: Command[Any] | None = None
        try:
            if principal is None:
                raise Unauthenticated("say hello with a key first: ID.SECRET")
            if connection.credential is not None:
                service.auth.ends.require(connection.credential)
            if service.is_draining:
                raise Draining
            if service.rate.limit > 0:
                service.rate.admit(principal.name if service.auth.is_on else connection.client)
            asked = decode_command(body)
            command = admitted(asked.command, principal, service.settings, connection.is_tls)
            kind = type(command)
            if kind is Poll or kind is JoinGroup:
                command = replace(command, host=connection.client)
            if command is not asked.command:
                asked = CommandRequest(command, asked.acks, asked.wait_ms)
            self._ways[kind](connection, correlation, asked, principal)
        except Exception as error:
            self._fail(connection, correlation, command, error)

    def _finish(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any],
        answer: Callable[[], None],
    ) -> None:
        """Answer a request that waited. Whatever goes wrong with that is its answer: no request is left without one."""
        try:
            answer()
        except Exception as error:
            self._fail(connection, correlation, command, error)

    def _fail(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any] | None,
        error: Exception,
    ) -> None:
        """Answer with an error; one that is not ours is a mistake of the server, and logged with its traceback."""
        name = "unknown" if command is None else type(command).__name__
        if not isinstance(error, PenstockError):
            self._service.logger.error("%s failed", name, exc_info=error)
            error = Internal()
        self._service.traffic.count(name, error.code)
        principal = connection.principal
        if isinstance(error, Forbidden) and command is not None and principal is not None:
            self._service.auth.refusals.note(
                principal.name, command.action.value, topics_of(command, error), connection.client
            )
        connection.fail(correlation, error)

    def _way_of(self, kind: type[Command[Any]]) -> Way:
        """How commands of a kind are carried out."""
        if kind is Poll:
            return self._poll_topic
        if kind in {Fetch, Read}:
            return self._read
        if issubclass(kind, MemberCommand):
            return partial(self._of_member, self._poll_member if kind is PollMember else None)
        return self._usual_way_of(kind)

    def _usual_way_of(self, kind: type[Command[Any]]) -> Way:
        if kind.takes_steps and not kind.audit_line:
            return self._in_steps
        if kind.is_long or kind.is_structural or kind.audit_line:
            return self._in_thread
        if kind.is_walk:
            return self._walk
        return self._query if kind.is_query else self._change

    def _query(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        reply = self._driver.driver.execute(asked.command, by)
        self._reply(connection, correlation, asked.command, reply)

    def _walk(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        """A command that walks, or has many pieces; one that takes a single slice is answered at once."""
        connection.check_parking(correlation)
        command = asked.command
        is_synced = asked.acks is Acks.ALL and not command.is_query
        is_waiting = False

        def done(reply: Any, error: Exception | None) -> None:
            if is_waiting:
                connection.unpark(correlation)
                connection.end_request()
            if error is not None:
                self._fail(connection, correlation, command, error)
                return
            safety = self._driver.safety(is_synced=is_synced)
            answer = partial(self._reply, connection, correlation, command, reply, safety)
            self._finish(connection, correlation, command, answer)

        walking = self._driver.execute(
            command, by, is_synced=is_synced, credential=connection.credential
        )
        running = RunningCoroutine(self._loop, walking, done)
        running.begin()
        if not running.is_done:
            is_waiting = True
            connection.begin_request()
            connection.park(correlation, EndedWait(running, connection.end_request))

    def _of_member(
        self,
        way: Way | None,
        connection: "Connection",
        correlation: int,
        asked: CommandRequest,
        by: Principal,
    ) -> None:
        """A command of a member: of a shared group, which the server keeps, or of an assigned one."""
        command = asked.command
        if is_shared_join(command):
            self._join_shared(connection, correlation, command, by)
        elif (member := self._shared.member_of(command, by)) is not None:
            self._answer_shared(connection, correlation, asked, member)
        else:
            way = way or self._usual_way_of(type(command))
            way(connection, correlation, asked, by)

    def _change(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        command = asked.command
        if (command.may_be_large and command.is_large()) or (
            command.is_divisible and len(command.pieces()) > 1
        ):
            self._walk(connection, correlation, asked, by)
            return
        acks = Acks.ALL if command.is_durable else asked.acks
        writers = 1 if acks is Acks.ALL and not command.is_volatile else 0
        reply, ticket = self._driver.driver.start(command, by, writers=writers)
        if ticket is None or acks is Acks.NONE:
            safety = self._driver.safety(is_synced=False)
            self._reply(connection, correlation, command, reply, safety)
        else:
            send = partial(self._reply_synced, connection, correlation, command, reply)
            self._when_synced(connection, ticket, send)

    def _in_steps(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        """A command that takes several syncs; its reply leaves when it is complete."""
        command, driver = asked.command, self._driver.driver

        def finish(steps: Steps[Any]) -> None:
            connection.end_request()
            try:
                reply = driver.finish_steps(steps)
                self._reply(connection, correlation, command, reply)
            except PenstockError as error:
                self._fail(connection, correlation, command, error)

        def on_done(steps: Steps[Any]) -> None:
            self._driver.call_soon(partial(finish, steps))

        driver.begin_steps(command, by, on_done)
        connection.begin_request()

    def _when_synced(
        self, connection: "Connection", ticket: Ticket, send: Callable[[Ticket], None]
    ) -> None:
        connection.begin_request()
        waiting = self._unsynced.get(ticket)
        if waiting is not None:
            waiting.append(send)
            return
        self._unsynced[ticket] = [send]
        ticket.notify(partial(self._driver.call_soon, partial(self._synced, ticket)))

    def _reply_synced(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any],
        reply: Any,
        ticket: Ticket,
    ) -> None:
        connection.end_request()

        def answer() -> None:
            ticket.check()
            pieces = encode_reply(type(command), reply, self._driver.safety(is_synced=True))
            self._succeed(connection, correlation, command, pieces)

        self._finish(connection, correlation, command, answer)

    def _synced(self, ticket: Ticket) -> None:
        for send in self._unsynced.pop(ticket):
            send(ticket)

    def _in_thread(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        """For what opens, removes or walks through files, and what is noted in the audit log."""
        work = partial(self._carry_out, asked, by, connection.client)
        self._run(connection, correlation, asked.command, work, lambda reply: reply)

    def _join_shared(
        self, connection: "Connection", correlation: int, command: Any, principal: Principal
    ) -> None:
        # A name that is taken takes that member's place.
        self._shared.member_of(command, principal)
        work = partial(self._shared.join, command, principal)
        joined = partial(self._shared.joined, command, principal)
        self._run(connection, correlation, command, work, joined)

    def _run(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any],
        work: Callable[[], Any],
        reply_of: Callable[[Any], Any],
    ) -> None:
        """Have a thread do some work; then the loop makes the reply of what came of it."""
        connection.begin_request()
        ends_keys = isinstance(command, RotateKey | RevokeKey)
        if ends_keys:
            connection.unwatch_key()  # It may be the client's own, and then the reply goes first.
        future = self._loop.run_in_executor(None, work)

        def done(future: "asyncio.Future[Any]") -> None:
            connection.end_request()
            # Not raised: this frame would keep the future, the future its error, and the error this frame.
            error = future.exception()
            if error is None:
                self._finish(connection, correlation, command, partial(answer, future.result()))
            elif isinstance(error, Exception):
                self._fail(connection, correlation, command, error)
            if ends_keys:
                connection.watch_key()
                self._service.auth.ends.look()

        def answer(reply: Any) -> None:
            self._reply(connection, correlation, command, reply_of(reply))

        future.add_done_callback(done)

    def _carry_out(self, asked: CommandRequest, principal: Principal, client: str) -> Any:
        command, driver, audit = asked.command, self._driver.driver, self._service.auth.audit
        is_synced = asked.acks is Acks.ALL and not command.is_query
        execute = partial(self._driver.perform, command, principal, is_synced=is_synced)
        if is_audited := command.is_audited():
            # What is refused costs no line, and no sync.
            authorise_command(principal, command)
            self._service.auth.admit_line(principal)
        if isinstance(command, RedriveDeadLetters | DiscardDeadLetters):
            # Letters that were on their way before have arrived, and so have these afterwards.
            driver.settle()
        if not is_audited:
            return execute()
        what = command.action.value
        if command.is_audited_first:
            with audit.noted(principal.name, what, command.audit_text(), client=client):
                return execute()
        reply = execute()
        audit.write(principal.name, what, command.audit_text(reply), client=client)
        if isinstance(command, RedriveDeadLetters):
            driver.settle()
        return reply

    def _reply(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any],
        reply: Any,
        safety: Safety = BUFFERED,
    ) -> None:
        principal = connection.principal
        if principal is not None and principal.prefixes:
            reply = visible(reply, command, principal)
        pieces = encode_reply(type(command), reply, safety)
        self._succeed(connection, correlation, command, pieces)

    def _succeed(
        self, connection: "Connection", correlation: int, command: Command[Any], pieces: Any
    ) -> None:
        self._service.traffic.count(type(command).__name__)
        connection.reply(correlation, pieces)

    def _poll_topic(
        self, connection: "Connection", correlation: int, asked: CommandRequest, _by: Principal
    ) -> None:
        assert isinstance(asked.command, Poll), "the table says so"
        self._poll(connection, correlation, asked.command, asked.wait_ms)

    def _poll_member(
        self, connection: "Connection", correlation: int, asked: CommandRequest, _by: Principal
    ) -> None:
        assert isinstance(asked.command, PollMember), "the table says so"
        self._poll(connection, correlation, asked.command, asked.wait_ms)

    def _poll(
        self,
        connection: "Connection",
        correlation: int,
        command: Poll | PollMember,
        wait_ms: int,
        *,
        member: SharedMember | None = None,
    ) -> None:
        """Lease messages, or park until there are some. For a `member` of a shared group this is a sign of life."""
        principal = connection.principal
        assert principal is not None, "it was asked for"
        self._service.budget.require_room()
        if wait_ms:
            connection.check_parking(correlation)

        # It is given the poll: if it held the poll by itself, that ring would keep the messages for the collector.
        def done(poll: ParkedPoll) -> None:
            if connection.is_leaving:
                # The loop tells of the end after what it has to do for the publisher.
                poll.give_back()
                return
            connection.unpark(correlation)
            answer = partial(self._polled, connection, correlation, command, poll, member)
            self._finish(connection, correlation, command, answer)

        longest_ms = self._service.settings.consumer.poll_timeout_ms_max
        timeout_ns = min(wait_ms, longest_ms) * _MS_NS
        poll = self._driver.park(command, principal, timeout_ns, done)
        if not poll.is_parked:
            self._polled(connection, correlation, command, poll, member)
        elif member is None:
            connection.park(correlation, poll)
        else:
            member.polls += 1
            end = partial(self._shared.end_poll, member)
            connection.park(correlation, EndedWait(poll, end))

    def _polled(
        self,
        connection: "Connection",
        correlation: int,
        command: Poll | PollMember,
        poll: ParkedPoll,
        member: SharedMember | None,
    ) -> None:
        standing = None
        if member is not None:
            standing = standing_of(member)
            if poll.was_parked:
                self._shared.end_poll(member)
        messages = poll.outcome()
        if isinstance(command, PollMember):
            asked = DescribeMember(command.group, command.member)
            standing = self._driver.driver.execute(asked)
        self._deliver(connection, correlation, command, messages, standing)

    def _deliver(
        self,
        connection: "Connection",
        correlation: int,
        command: Command[Any],
        messages: LeasedMessages,
        standing: Standing | None,
    ) -> None:
        """Send as many as fit into one reply, and at least one. The others go back as if they had never left."""
        messages, others = fitting(messages)
        if others:
            with suppress(PenstockError):
                self._driver.driver.start(others.release())
        pieces = encode_leased_reply(leased_parts(messages), standing)
        self._succeed(connection, correlation, command, pieces)

    def _answer_shared(
        self,
        connection: "Connection",
        correlation: int,
        asked: CommandRequest,
        member: SharedMember,
    ) -> None:
        command = asked.command
        if not isinstance(command, PollMember):
            reply = self._shared.answer(command, member)
            self._reply(connection, correlation, command, reply)
            return
        polls = self._shared.polls(command, member)
        if len(polls) == 1:
            self._poll(connection, correlation, polls[0], asked.wait_ms, member=member)
            return
        self._service.budget.require_room()
        connection.check_parking(correlation)
        principal = connection.principal
        assert principal is not None, "it was asked for"

        def done(messages: LeasedMessages | None, error: Exception | None) -> None:
            connection.unpark(correlation)
            if error is not None or messages is None:
                self._fail(connection, correlation, command, error or Internal())
                return
            standing = standing_of(member)
            answer = partial(self._deliver, connection, correlation, command, messages, standing)
            self._finish(connection, correlation, command, answer)

        waiting = self._poll_topics(polls, principal, asked.wait_ms, member)
        running = RunningCoroutine(self._loop, waiting, done)
        running.begin()
        if not running.is_done:
            connection.park(correlation, running)

    async def _poll_topics(
        self, polls: Sequence[Poll], principal: Principal, wait_ms: int, member: SharedMember
    ) -> LeasedMessages:
        """A poll of several topics, which are waited for together. An open poll is a sign of life."""
        longest_ms = self._service.settings.consumer.poll_timeout_ms_max
        member.polls += 1
        try:
            return await self._driver.poll(polls, principal, min(wait_ms, longest_ms) * _MS_NS)
        finally:
            self._shared.end_poll(member)

    def _read(
        self, connection: "Connection", correlation: int, asked: CommandRequest, by: Principal
    ) -> None:
        command, wait_ms = asked.command, asked.wait_ms
        assert isinstance(command, Fetch | Read), "the table says so"
        self._service.budget.require_room()
        found: FetchReply | ReadReply = self._driver.driver.execute(asked.command, by)
        awaited = found.wake_at
        if awaited is None or not wait_ms or self._driver.is_draining:
            self._succeed(connection, correlation, command, _read_reply(command, found))
            return
        connection.check_parking(correlation)
        longest_ms = self._service.settings.consumer.poll_timeout_ms_max

        def done() -> None:
            connection.unpark(correlation)
            self._finish(connection, correlation, command, answer)

        def answer() -> None:
            # All requests that waited are answered together.
            self._service.budget.require_room()
            again: Command[Any] = replace(command, start=Start.at_offset(awaited))
            found = self._driver.driver.execute(again, by)
            self._succeed(connection, correlation, command, _read_reply(command, found))

        place = (command.topic, command.partition, awaited)
        parked = ParkedRead(self._driver, place, done)
        connection.park(correlation, parked)
        parked.begin(min(wait_ms, longest_ms) / 1000)


def _read_reply(command: Fetch | Read, found: FetchReply | ReadReply) -> Any:
    if isinstance(found, FetchReply):
        pieces: list[Any] = [*encode_fetch_reply(found)]
        if found.file_range is not None:
            pieces.append(found.file_range)
        return pieces
    return encode_reply(type(command), found)
