"""One connection, as by uvicorn, but for shorter ways, word of clients that left, and what a full server says."""

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ...api.fetch import FileRange
from .following import Follower
from .framing import BadFraming, RequestHead
from .known_head import Known, KnownHead, KnownRead
from .outflow import Outflow
from .prompt import Work, begun
from .receiving_connection import ReceivingConnection
from .responses import COPIED_BYTES_MAX
from .straight import Outcome, Straight

if TYPE_CHECKING:
    from .door import TurnedAway

_SAFE = frozenset({"GET", "HEAD"})
_TOO_LARGE = 431


async def _never_asked() -> None:
    raise AssertionError("a body that is here is not received")


class Connection(ReceivingConnection):
    """Made by `serving`, which sets the limits for all connections of a process."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # What serves the request that is under way, once it has to wait for something.
        self._task: asyncio.Task[None] | None = None
        # A request that came with what is being received now, and is begun when all of that was read.
        self._fresh: RequestResponseCycle | None = None
        # The head of the last request that was of the usual kind.
        self._known: KnownHead | None = None
        self._straight: Straight | None = None
        # The same for the last one that reads from an offset on, and the offset that it asked for.
        self._known_read: KnownRead | None = None
        self._follower: Follower | None = None
        self._offset = b""
        # The headers that all answers have, as they were sent last.
        self._default_headers: object = None
        self._usual_lines = b""
        # The turn of the loop in which the last request was begun.
        self._turn = -1
        # The answer to a request that was refused, until it is sent.
        self._turning_away: TurnedAway | None = None
        # An answer that is being sent from a file.
        self._outflow: Outflow | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.unread.behind.discard(self)
        if self._outflow is not None:
            self._outflow.end()
        if self.door.known is self._known:
            # There may be a key in it, which goes with whoever sent it.
            self.door.known = None
        if self._follower is not None:
            self._follower.leave()
        super().connection_lost(exc)
        self._let_go()

    def _let_go(self) -> None:
        """Of everything that refers back to this: the collector looks seldom, and a body may be large."""
        self._known = self._straight = self._known_read = self._follower = self._under_way = None
        self._fresh = self._large_body = None
        self._framing.close()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            return
        # Nobody receives it any more.
        cycle.body = bytearray()
        if cycle.response_complete:
            self.cycle = self.scope = None  # type: ignore[assignment]  # As before the first request.

    def data_received(self, data: bytes) -> None:
        if self._follower is not None and self._follow(data, self._follower):
            return
        is_first = self._framing.is_between
        if is_first and self.door.is_full and self._is_full():
            if self._refuses_known(data):
                return
        elif is_first and (known := self._known_request(data)) is not None:
            if not self._answer_straight(known):
                self._receive_known(known)
            return
        self._unset_keepalive_if_required()
        self._framing.receive(data)
        self._read(data if is_first else None)

    def _read(self, alone: bytes | None = None) -> None:
        """Take requests out of what was received, up to one that has to be answered before the next is looked at.

        `alone` is what was received, if there was nothing before it.
        """
        framing = self._framing
        try:
            while self._reads_on() and (taken := framing.take()) is not None:
                if isinstance(taken, RequestHead):
                    self._take_head(taken)
                elif taken:
                    self._take_piece(taken)
                else:
                    self._take_end()
        except BadFraming as error:
            self._refuse_framing(error)
            return
        if self._turning_away is not None:
            self._turn_away(self._turning_away)
            return
        if self._fresh is not None:
            if alone is not None and framing.is_between:
                self._remember(alone)
            self._begin_fresh()
        self._await_rest()

    def _reads_on(self) -> bool:
        is_next = self._framing.is_in_body or (self._turning_away is None and self._is_answered)
        return is_next and not self.transport.is_closing()

    def _refuse_framing(self, error: BadFraming) -> None:
        has_answer = self._framing.is_in_body and self._turning_away is None and self._is_answered
        self._fresh = self._turning_away = None
        if has_answer:
            # The request whose body this is has heard something else.
            self.transport.close()
        else:
            code = "TOO_LARGE" if error.status == _TOO_LARGE else "MALFORMED_REQUEST"
            self._refuse(error.status, code, str(error))

    def _await_rest(self) -> None:
        """Bound the time of what has begun to come, and leave in the socket what comes behind it."""
        framing = self._framing
        if self.transport.is_closing():
            return
        if not framing.is_empty:
            self.flow.pause_reading()
            self.door.unread.behind.add(self)
        elif framing.is_in_body:
            self.door.arrivals.begin(self)
        elif framing.is_in_head and self._header_timer is None:
            # Mostly headers come in one piece, and no timer is ever needed.
            self._expect_headers()

    def _take_head(self, head: RequestHead) -> None:
        self._headers_done()
        is_safe = head.method in _SAFE
        if not is_safe and self._is_full() and _can_be_turned_away(head):
            self._expect_body(is_dropped=True)
            self._turning_away = self.door.turn_away(head.headers)
            return
        self._expect_body(is_dropped=is_safe)
        path = head.path.decode("ascii")
        scope: Any = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": head.version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "headers": head.headers,
            "method": head.method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "penstock.connection": self,
        }
        self._fresh = cycle = self._new_cycle(scope, head)
        if head.content is not None:
            cycle.body, cycle.more_body = head.content, False  # type: ignore[assignment]  # Nothing is added to it.

    def _new_cycle(self, scope: Any, head: RequestHead | None = None) -> RequestResponseCycle:
        """What uvicorn keeps of a request; without a head, of one that is of the usual kind."""
        scope["state"] = self.app_state.copy()
        self.scope, self.headers = scope, scope["headers"]
        self.cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=head is not None and head.expects_continue,
            keep_alive=head is None or head.is_kept_alive,
            on_response=self.on_response_complete,
        )
        return self.cycle

    def _begin_fresh(self) -> None:
        """Begin what was just received; at once if it is whole and nothing came behind it, which would have to wait."""
        assert self._fresh is not None, "the caller looked"
        cycle, self._fresh = self._fresh, None
        self._under_way = cycle
        if cycle.scope["method"] not in _SAFE and not cycle.more_body:
            # It counts from here on; the door gives the place back. What still comes has no place yet.
            self.door.room.coming += 1
            cycle.scope["penstock.place"] = True  # type: ignore[typeddict-unknown-key]  # ASGI lets servers add to it.
        work: Work = cycle.run_asgi(self.app)
        if cycle.more_body or not self._framing.is_empty or self.transport.is_closing():
            self._serve(work)
            return
        self._turn = self.door.inlet.turn
        left = begun(work)
        if left is not None and not self.door.inlet.resumes(left, self._serve):
            self._serve(left)

    def _serve(self, work: Work) -> None:
        self._task = task = self.loop.create_task(work)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def cancel_request(self) -> None:
        """End the wait of the request that is under way."""
        if self._task is not None:
            self._task.cancel()

    def _known_request(self, data: bytes) -> Known | None:
        """What came, if it is whole, with a head that was seen before, and nothing speaks against serving it now."""
        head = self._known
        if head is None or not self.cycle.response_complete:
            return None
        known = head.read(data)
        if known is None or len(data) - len(known[1]) > self.header_bytes_max:
            return None
        return known

    def _refuses_known(self, data: bytes) -> bool:
        """Refuse a whole request with a head that was seen before, here or elsewhere: that takes no parser."""
        cycle: RequestResponseCycle | None = self.cycle
        is_free = cycle is None or cycle.response_complete
        if not is_free or self.transport.is_closing():
            return False
        for head in (self._known, self.door.known):
            if head is not None and head.is_of(data) and head.scope["method"] not in _SAFE:
                self._headers_done()
                self._turn_away(self.door.turn_away(head.headers))
                return True
        return False

    def _remember(self, data: bytes) -> None:
        """Keep the head of a request that was parsed, if it is of a usual kind."""
        scope: Any = self.scope
        if (head := KnownHead.of(data, scope)) is not None:
            self._known = self.door.known = head
            self._straight = Straight.of(self.door, scope, _never_asked)
        elif (read := KnownRead.of(data, scope)) is not None:
            self._known_read = read
            self._follower = Follower.of(self.door, scope, _never_asked)

    @property
    def _is_free(self) -> bool:
        """Whether what comes now can be answered at once."""
        is_waiting = not self._framing.is_between or not self.cycle.response_complete
        return not (is_waiting or self.flow.write_paused or self.transport.is_closing())

    def _answer_straight(self, known: Known) -> bool:
        """Whether a request could be carried out, and was answered or soon will be."""
        # As `_is_free` has it, of which the rest was looked at before.
        is_held_up = self.flow.write_paused or self.transport.is_closing()
        if self._straight is None or is_held_up:
            return False
        self._turn = self.door.inlet.turn
        outcome = self._straight.serve(known[1], self._send_yes)
        if isinstance(outcome, bool):
            return outcome
        self._receive_known(known, outcome)
        return True

    def _follow(self, data: bytes, follower: Follower) -> bool:
        """Whether this is a follower's request, who is answered when there is something to say."""
        assert self._known_read is not None, "they come together"
        if follower.is_waiting:
            # Whoever sends more before the answer goes the usual way, with all of it.
            follower.leave()
            self._begin_known(self._known_read.scope_of(self._offset), b"")
            return False
        offset = self._known_read.read(data) if self._is_free and follower.is_current else None
        if offset is None or len(data) > self.header_bytes_max:
            return False
        self._offset = offset
        self._unset_keepalive_if_required()
        follower.begin(int(offset), self._send_yes, self._tell_follower)
        return True

    def _tell_follower(self, outcome: Outcome) -> None:
        assert self._known_read is not None, "a follower asked"
        self._begin_known(self._known_read.scope_of(self._offset), b"", outcome)

    def _send_yes(self, head: bytes, body: bytes | memoryview) -> None:
        start = (STATUS_LINE[200], self._usual(), head, b"\r\n")
        if len(body) <= COPIED_BYTES_MAX:
            self.transport.write(b"".join((*start, body)))
        else:
            self.transport.write(b"".join(start))
            self.transport.write(body)
        self.on_response_complete()

    def _receive_known(self, known: Known, outcome: Outcome | None = None) -> None:
        assert self._known is not None, "its head is this one"
        headers = self._known.headers_of(known)
        self._begin_known({**self._known.scope, "headers": headers}, known[1], outcome)

    def _begin_known(self, scope: Any, body: bytes, outcome: Outcome | None = None) -> None:
        """Begin a request whose head was known. With an outcome, that is all there is to tell."""
        self._unset_keepalive_if_required()
        if outcome is not None:
            scope["penstock.outcome"] = outcome
        self._fresh = cycle = self._new_cycle(scope)
        cycle.body, cycle.more_body = body, False  # type: ignore[assignment]  # Nothing is added to it.
        self._begin_fresh()

    def _is_full(self) -> bool:
        if not self.door.is_full:
            return False
        if self._turn == self.door.inlet.turn:
            # It was served in this turn and is here again: the loop has looked for news without ending the turn.
            self.door.inlet.begin_turn()
        return self.door.is_full

    def _turn_away(self, answer: "TurnedAway") -> None:
        """A client that sends many at once, and would be refused as often, is sent away with all of them."""
        self._turning_away = None
        is_sent_away = not self._framing.is_empty
        end = b"connection: close\r\n\r\n" if is_sent_away else b"\r\n"
        self.transport.write(
            b"".join((STATUS_LINE[429], self._usual(), answer.head, end, answer.body))
        )
        if is_sent_away:
            self.transport.close()
        else:
            self.door.unread.hold(self, answer.wait_s)

    def on_response_complete(self) -> None:
        """As uvicorn has it; but the timer that ends idle connections runs on, and looks when its time is up."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._framing.is_empty:
            self._rest()
            return
        self.door.unread.behind.discard(self)
        if self.is_heard():
            self._read()

    def answer_at_once(self, scope: object, status: int, head: bytes, body: bytes) -> bool:
        """Send a whole answer in one write, which is half of what two cost. False: not now, send it the usual way."""
        cycle = self.cycle
        # The newest request may be another one, waiting behind the one that is being answered.
        is_current = cycle.scope is scope and not cycle.response_started
        if not is_current or cycle.disconnected or self.flow.write_paused or not cycle.keep_alive:
            return False
        if cycle.scope["method"] == "HEAD":
            return False  # It gets no body, which the usual way knows.
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join((STATUS_LINE[status], self._usual(), head, b"\r\n", body)))
        cycle.message_event.set()
        cycle.on_response()
        return True

    async def answer_from_file(self, scope: object, head: bytes, body: FileRange) -> bool:
        """Have the system send a whole answer. False: not now, send it the usual way."""
        cycle, transport = self.cycle, self.transport
        is_current = cycle.scope is scope and not cycle.response_started and not cycle.disconnected
        # What is still with the transport comes first.
        is_clear = not self.flow.write_paused and not transport.get_write_buffer_size()
        if not (is_current and is_clear and cycle.keep_alive) or cycle.scope["method"] == "HEAD":
            return False
        number = transport.get_extra_info("socket").fileno()
        start = b"".join((STATUS_LINE[200], self._usual(), head, b"\r\n"))
        try:
            outflow = Outflow(self.loop, number, start, body)
        except OSError:
            return False  # No descriptor is left.
        self._outflow = outflow
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        try:
            outflow.go_on()
            if not outflow.is_done:
                await self._rest_of(outflow)
        except OSError:
            pass  # The client left, or the file is not what it was.
        finally:
            self._outflow = None
            outflow.end()
            if not outflow.is_done:
                # Nobody should wait for the rest.
                transport.abort()
        self._end_cycle(cycle)
        return True

    async def _rest_of(self, outflow: Outflow) -> None:
        """As for what waits in a transport there is a limit of time; and whatever else comes, waits."""
        self.flow.pause_reading()
        self.pause_writing()
        try:
            await outflow.rest()
        finally:
            self.resume_writing()

    def _writing_stuck(self) -> None:
        """A transport tells when a client has read some of what waits. Of a file we look how much has gone."""
        if self._outflow is not None and self._outflow.has_moved():
            self._watch_writing()
        else:
            super()._writing_stuck()

    def _refuse(self, status: int, code: str, text: str) -> None:
        if self._outflow is not None or self.is_answering:
            # What is said now would stand in the middle of an answer.
            self.cut_off()
        else:
            self._disconnect()
            super()._refuse(status, code, text)

    def _end_cycle(self, cycle: RequestResponseCycle) -> None:
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _usual(self) -> bytes:
        headers = self.server_state.default_headers
        # There are new ones each second, for the date.
        if self._default_headers is not headers:
            self._default_headers = headers
            self._usual_lines = b"".join(b"%b: %b\r\n" % one for one in headers)
        return self._usual_lines


def _can_be_turned_away(head: RequestHead) -> bool:
    """Others are refused the usual way: those whose connection ends, and those who send their body when asked."""
    return head.is_kept_alive and not head.expects_continue
