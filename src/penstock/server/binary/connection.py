"""A connection of the binary port: frames in, replies out, and the limits on both."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ...api.fetch import FileRange
from ...api.frames import (
    CANCEL,
    COMMAND,
    HELLO,
    OWN_KEYS_FROM,
    VERSION,
    FrameSplitter,
    RequestHeader,
    key_and_correlation,
    read_header,
    reply_head,
)
from ...api.keys import Credential
from ...api.principals import Principal
from ...api.wire import encode_error
from ...errors import BadRequest, PenstockError, TooManyRequests, Unauthenticated
from ...model import Buffer
from ..body_memory import Reservation
from ..file_sender import FileSender, read_range
from .commands import Commands
from .coroutines import RunningCoroutine
from .hello import hello
from .oversized import OversizedFrame
from .service import BinaryService, Piece, Pieces

# One connection leaves the loop to others after so many requests.
_TURN_REQUESTS = 64
# One of Kafka's names many partitions, and its batches are converted: a few are a turn.
_KAFKA_REQUEST_SHARE = 8
# Replies up to this size are put together; larger ones go to the transport piece by piece.
_JOINED_BYTES_MAX = 64 << 10
# A frame up to this size is not counted against what all may hold, and needs no key.
_SMALL_FRAME_BYTES = 64 << 10
_PARKED_MAX = 10_000


class Waiting(Protocol):
    """A request that waits for messages."""

    def cancel(self) -> object:
        """Wait no longer: nothing is answered."""
        ...


class Connection(asyncio.Protocol):
    """One client. Our own requests are answered as they finish; Kafka's are carried out and answered in order.

    `principal` is None until a key was shown, where keys are asked for.
    """

    def __init__(self, service: BinaryService, commands: Commands) -> None:
        self.service, self._commands = service, commands
        self.principal: Principal | None = service.first_principal
        self.credential: Credential | None = None
        # Changes of keys that are under way here; the connection does not end with its key before they are answered.
        self._key_changes = 0
        # The address of the client, and the one that it came to.
        self.client = self.local_host = "unknown"
        self.is_tls = self.is_lost = False
        self.transport: asyncio.Transport
        self._splitter = FrameSplitter(service.settings.binary.frame_bytes_max)
        self._requests_max = service.settings.binary.connection_requests_max
        # For a large frame whose end has not come yet.
        self._reservation: Reservation | None = None
        self._frames: deque[memoryview | OversizedFrame] = deque()
        # One over the limit whose end has not come yet.
        self._oversized: OversizedFrame | None = None
        self._is_collecting = self._is_going_on = self._is_reading_paused = False
        self._is_writing_paused = False
        # Replies of this turn, and those that wait for a file to be sent.
        self._out: list[Buffer] = []
        self._behind_file: deque[Pieces] = deque()
        self._file_sender: FileSender | None = None
        # Requests that wait for the disk or a thread, and Kafka's that wait for their turn.
        self.in_flight = 0
        self.parked: dict[int, Waiting] = {}
        # With why one is refused before it is read.
        self._ordered: deque[tuple[RequestHeader, memoryview, PenstockError | None]] = deque()
        self._answering: RunningCoroutine[Pieces | None] | None = None
        # For `sweep`, on its clock.
        self._has_heard = True
        self._made_at = self._heard_at = 0.0
        self._frame_until, self._frame_mark = 0.0, 0
        self._unsent_until, self._unsent_mark = 0.0, 0

    # What arrives.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # That of a stream.
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else "unknown"
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self.local_host = str(transport.get_extra_info("sockname")[0])
        connections = self.service.connections
        if len(connections) >= self.service.settings.http.connections_max:
            self.service.traffic.refuse("connections")
            self.is_lost = True
            transport.abort()
            return
        connections.add(self)
        self.service.traffic.connections = len(connections)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        self.service.traffic.bytes_in += len(data)
        splitter = self._splitter
        before = splitter.held_bytes
        self._split(memoryview(data))
        held = splitter.held_bytes
        if held < before:
            self._frame_until = 0.0
        self._go_on()
        # After the frames before it, one of which may have brought the key.
        if held > _SMALL_FRAME_BYTES and not self.is_leaving:
            self._require_memory(held)
        elif self._reservation is not None:
            self._end_reservation()
        if self._oversized is not None and not self.is_leaving:
            self._require_answerable(self._oversized)

    def _split(self, data: memoryview) -> None:
        """Add the frames that end in these bytes. Of one over the limit nothing stays but what its answer names."""
        oversized = self._oversized
        while True:
            if oversized is not None:
                data = oversized.feed(data)
                if not oversized.is_over:
                    break
                self._frames.append(oversized)
            self._frames += self._splitter.feed(data)
            begun = self._splitter.take_oversized()
            if begun is None:
                oversized = None
                break
            error, length, data = begun
            oversized = OversizedFrame(error, length, self.service.is_refusable)
        self._oversized = oversized

    def _require_answerable(self, frame: OversizedFrame) -> None:
        """Read over a frame only if it can be answered, and by one who has shown a key."""
        if self.principal is None or frame.is_hopeless:
            self.service.traffic.refuse("frame")
            self._log_end(frame.error)
            self.close()

    def _require_memory(self, held: int) -> None:
        """Frames that arrive may not fill the memory, however many connections they come on."""
        if self.principal is None:
            self._refuse_memory(Unauthenticated("say hello with a key first: ID.SECRET"))
            return
        if self._reservation is None:
            # Counted by key, or by address if there are no keys.
            payer = self.principal.name if self.service.auth.is_on else self.client
            self._reservation = Reservation(self.service.memory, payer)
        limit = self._reservation.grow(held)
        if limit is not None:
            self._refuse_memory(
                TooManyRequests("bytes of requests at once", limit=limit, retry_after_ms=1000)
            )

    def _refuse_memory(self, error: PenstockError) -> None:
        """End the connection. A Kafka client is not told why: it would read the error as its reply."""
        self.service.traffic.refuse("bytes")
        self._log_end(error)
        key, correlation = key_and_correlation(self._splitter.pending_frame)
        if key >= OWN_KEYS_FROM:
            self.fail(correlation, error)
        self.close()

    def _end_reservation(self) -> None:
        if self._reservation is not None:
            self._reservation.end()
            self._reservation = None

    def _go_on(self) -> None:
        """Carry out the requests that are here, as many as may be under way at once."""
        frames, limit = self._frames, self._requests_max
        self._is_collecting, left = True, _TURN_REQUESTS
        try:
            while frames and left > 0 and self.in_flight < limit:
                if self._is_writing_paused or self._file_sender is not None or self.is_lost:
                    break
                left -= self._handle(frames.popleft())
            # Who waited for a message hears of it before who sent it; of a crowd only one does.
            self.service.driver.answer_next()
        finally:
            self._is_collecting = False
            self._flush()
        if self.is_lost:
            return
        if not frames:
            if self._is_reading_paused:
                self._is_reading_paused = False
                self.transport.resume_reading()
            if self._splitter.error is not None:
                self.service.traffic.refuse("frame")
                self._log_end(self._splitter.error)
                self.transport.close()
            return
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()
        if left <= 0:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.service.loop.call_soon(self._go_on_now)

    def _go_on_now(self) -> None:
        self._is_going_on = False
        if not self.is_lost:
            self._go_on()

    def _handle(self, frame: memoryview | OversizedFrame) -> int:
        """Begin with a request. Returns how much of a turn it takes."""
        if not isinstance(frame, OversizedFrame):
            return self._begin(frame)
        self.service.traffic.refuse("frame")
        kept = memoryview(frame.kept)
        key, correlation = key_and_correlation(kept)
        if key < OWN_KEYS_FROM:
            return self._begin(kept, frame.error)
        self.fail(correlation, frame.error)
        return 1

    def _begin(self, frame: memoryview, refusal: PenstockError | None = None) -> int:
        try:
            header, body = read_header(frame)
        except BadRequest as error:
            self.service.traffic.refuse("frame")
            key, correlation = key_and_correlation(frame)
            if key >= OWN_KEYS_FROM:
                self.fail(correlation, error)
            else:
                self._log_end(error)
                self.close()
            return 1
        key, correlation = header.api_key, header.correlation
        if key < OWN_KEYS_FROM:
            self._order(header, body, refusal)
            return _KAFKA_REQUEST_SHARE
        if header.version != VERSION:
            refusal = BadRequest(f"version {header.version} of api key {key} is not known")
            self.fail(correlation, refusal)
        elif key == COMMAND:
            self._commands.begin(self, correlation, body)
        elif key == HELLO:
            hello(self.service, self, correlation, body)
        elif key == CANCEL:
            self._commands.cancel(self, correlation, body)
        else:
            self.fail(correlation, BadRequest(f"there is no api key {key}"))
        return 1

    # Kafka's requests, in their order.

    def _order(
        self, header: RequestHeader, body: memoryview, refusal: PenstockError | None
    ) -> None:
        if self._answering is not None or self._ordered:
            self.in_flight += 1
            self._ordered.append((header, body, refusal))
        else:
            self._answer(header, body, refusal)

    def _answer(
        self, header: RequestHeader, body: memoryview, refusal: PenstockError | None
    ) -> None:
        kafka = self.service.kafka
        if kafka is None:
            self._log_end(BadRequest(f"api key {header.api_key} is not served"))
            self.close()
            return
        self.in_flight += 1
        answering = RunningCoroutine(
            self.service.loop,
            kafka.answer(header, body, self, refusal),
            partial(self._answered, header),
        )
        self._answering = answering
        answering.begin()

    def _answered(
        self, header: RequestHeader, pieces: Pieces | None, error: Exception | None
    ) -> None:
        self._answering = None
        self.in_flight -= 1
        if self.is_lost:
            return
        if error is not None:
            self._answer_failed(header, error)
            return
        self.reply(header.correlation, pieces)
        if self._ordered:
            self.service.loop.call_soon(self._answer_next)
        self._resume()

    def _answer_next(self) -> None:
        """One that waited for its turn."""
        if self._ordered and self._answering is None and not self.is_lost:
            self.in_flight -= 1
            self._answer(*self._ordered.popleft())

    def _answer_failed(self, header: RequestHeader, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            self.service.logger.error("api key %d failed", header.api_key, exc_info=error)
        else:
            self._log_end(error)
        self.close()

    # What leaves.

    def reply(self, correlation: int, pieces: Sequence[Piece] | None) -> None:
        """Send the body of a reply; None is none."""
        if pieces is None or self.is_lost:
            return
        if isinstance(pieces[-1], FileRange):
            size = sum([one.size if isinstance(one, FileRange) else len(one) for one in pieces])
        else:
            size = sum(map(len, pieces))
        self._send([reply_head(correlation, size), *pieces])

    def fail(self, correlation: int, error: PenstockError) -> None:
        """Send an error as the reply to one of our own requests."""
        self.reply(correlation, [encode_error(error)])

    def _send(self, pieces: Pieces) -> None:
        if self._file_sender is not None:
            self._behind_file.append(pieces)
        elif isinstance(pieces[-1], FileRange):
            self._send_file(pieces)
        elif self._is_collecting:
            self._out += pieces  # type: ignore[arg-type]  # The last one could be of a file, and is not.
        else:
            self._write(pieces)  # type: ignore[arg-type]  # As above.

    def _flush(self) -> None:
        if self._out:
            pieces, self._out = self._out, []
            self._write(pieces)

    def _write(self, pieces: list[Buffer]) -> None:
        if self.is_lost:
            return
        size = sum(map(len, pieces))
        self.service.traffic.bytes_out += size
        if size <= _JOINED_BYTES_MAX:
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)

    def _send_file(self, pieces: Pieces) -> None:
        """The last piece is of a file: the system sends it, unless something else has to go before it or TLS is on."""
        self._flush()
        *head, body = pieces
        assert isinstance(body, FileRange), "the caller looked"
        socket = self.transport.get_extra_info("socket")
        try:
            if self.is_tls or socket is None or self.transport.get_write_buffer_size():
                self._write([*head, read_range(body)])  # type: ignore[list-item]  # Only the last one is of a file.
                return
            start = b"".join(head)  # type: ignore[arg-type]  # As above.
            self.service.traffic.bytes_out += len(start) + body.size
            sender = FileSender(self.service.loop, socket.fileno(), start, body, self._file_sent)
            if not sender.begin():
                self._file_sender = sender
                self.service.budget.begin(self)
        except OSError:
            # The client left, or the file is not what it was: the client waits for no more of it.
            self.transport.abort()

    def _file_sent(self, is_whole: bool) -> None:
        self._file_sender = None
        self.service.budget.end(self)
        if not is_whole:
            self.transport.abort()
            return
        while self._behind_file and self._file_sender is None:
            self._send(self._behind_file.popleft())
        self._resume()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self.service.budget.begin(self)

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self.service.budget.end(self)
        self._resume()

    def unsent_bytes(self) -> int:
        """What waits for the client to read it."""
        in_file = 0 if self._file_sender is None else self._file_sender.unsent_bytes()
        return self.transport.get_write_buffer_size() + in_file

    # Requests under way.

    def begin_request(self) -> None:
        """A request waits for the disk or a thread from here to `end_request`."""
        self.in_flight += 1
        self.service.under_way += 1

    def end_request(self) -> None:
        self.in_flight -= 1
        self.service.under_way -= 1
        self._resume()

    def _resume(self) -> None:
        if self._frames and not self.is_lost and not self._is_collecting:
            self._go_on_soon()

    def park(self, correlation: int, waiting: Waiting) -> None:
        """Have a request wait for messages until `unpark`. The caller has asked `check_parking` before."""
        self.parked[correlation] = waiting

    def check_parking(self, correlation: int) -> None:
        """BadRequest: a request of the same correlation waits already. TooManyRequests: too many wait."""
        if correlation in self.parked:
            raise BadRequest(f"a request with correlation {correlation} waits already")
        if len(self.parked) >= _PARKED_MAX:
            raise TooManyRequests("requests that wait", limit=_PARKED_MAX, retry_after_ms=1000)

    def unpark(self, correlation: int) -> None:
        self.parked.pop(correlation, None)

    # Its principal, and its end.

    def authenticated(self, principal: Principal, credential: Credential | None) -> None:
        """Act on behalf of the holder of a key from now on. Unauthenticated: the key has ended."""
        ends = self.service.auth.ends
        ends.watch(credential, self._key_ended)
        if self.credential is not None and self.credential != credential:
            ends.unwatch(self.credential, self._key_ended)
        self.principal, self.credential = principal, credential

    def unwatch_key(self) -> None:
        """Have the connection outlive its key until `watch_key` is called as often."""
        self._key_changes += 1
        self.service.auth.ends.unwatch(self.credential, self._key_ended)

    def watch_key(self) -> None:
        """Have the connection end with its key, which may be now, unless another change of keys is under way."""
        self._key_changes -= 1
        if self._key_changes or self.is_lost:
            return
        try:
            self.service.auth.ends.watch(self.credential, self._key_ended)
        except Unauthenticated:
            self._key_ended()

    def _key_ended(self) -> None:
        """The key was revoked, rotated or expired: what waits with it ends, and so does the connection."""
        error = Unauthenticated("the key of this connection has ended: revoked, rotated or expired")
        parked, self.parked = self.parked, {}
        for correlation, waiting in parked.items():
            waiting.cancel()
            self.fail(correlation, error)
        self.close()

    @property
    def is_leaving(self) -> bool:
        """Whether the end of the connection was noticed; `connection_lost` may still be to come."""
        return self.is_lost or self.transport.is_closing()

    def _log_end(self, error: Exception) -> None:
        self.service.logger.debug("the connection of %s ends: %s", self.client, error)

    def close(self) -> None:
        """End the connection when what was replied is sent."""
        if self.is_lost:
            return
        self._frames.clear()
        self._ordered.clear()
        if self._file_sender is not None:
            self.transport.abort()
        else:
            self._flush()
            self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True
        service = self.service
        service.connections.discard(self)
        service.traffic.connections = len(service.connections)
        self._end_reservation()
        service.budget.end(self)
        if service.kafka is not None:
            service.kafka.forget(self)
        service.auth.ends.unwatch(self.credential, self._key_ended)
        if self._file_sender is not None:
            self._file_sender.end()
            self._file_sender = None
        if self._answering is not None:
            self._answering.cancel()
        parked, self.parked = self.parked, {}
        for waiting in parked.values():
            waiting.cancel()
        for kept in (self._frames, self._ordered, self._behind_file):
            kept.clear()

    def sweep(self, now: float) -> None:
        """End a connection that says nothing, is late with a frame or with its key, or does not read."""
        http, limits = self.service.settings.http, self.service.settings.binary
        if not self._made_at:
            self._made_at = now
        if self._has_heard or self.in_flight or self.parked or self._frames:
            self._has_heard, self._heard_at = False, now
        is_idle = now - self._heard_at > limits.idle_ms / 1000
        is_unknown = self.principal is None and now - self._made_at > http.header_timeout_ms / 1000
        if is_idle or is_unknown:
            self.close()
        elif self._is_frame_late(now) or self._is_stuck(now):
            self.transport.abort()

    def _is_frame_late(self, now: float) -> bool:
        held, http = self._splitter.held_bytes, self.service.settings.http
        seconds = http.body_timeout_ms / 1000
        if not held or self._is_reading_paused:
            self._frame_until = 0.0
        elif not self._frame_until:
            self._frame_until, self._frame_mark = now + seconds, held
        elif now >= self._frame_until:
            if held - self._frame_mark < http.body_bytes_per_s_min * seconds:
                return True
            self._frame_until, self._frame_mark = now + seconds, held
        return False

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has read nothing for too long, of what waits for it."""
        if not self._is_writing_paused and self._file_sender is None:
            self._unsent_until = 0.0
            return False
        unsent = self.unsent_bytes()
        if not self._unsent_until or unsent < self._unsent_mark:
            timeout_s = self.service.settings.http.write_timeout_ms / 1000
            self._unsent_until, self._unsent_mark = now + timeout_s, unsent
        return now >= self._unsent_until
