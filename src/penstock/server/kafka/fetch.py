"""Fetching: stored batches from offsets on, of several partitions at once, waiting until there is enough.

A fetch that waits keeps what it has found. When partitions grow, it reads on behind that as soon as so many bytes are
stored there as the client still waits for: each batch is read and converted once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...api.fetch import DescribeBounds, Fetch, FetchReply, LogBounds
from ...api.start import Start
from ...codec import batches_in
from ...errors import OffsetOutOfRange, PenstockError, TooManyRequests
from ...model import Buffer
from ...runtime.waits import PartitionEnd
from .dead_letters import holds_dead_letters
from .errors import Code, code_of
from .fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession
from .session import KafkaSession
from .wire import Values

_MS = 1000
_S_NS = 1_000_000_000
# A fetch that waits for many bytes looks at most so often how many there are.
_PAUSE_S = 0.005
# A client that asks for more gets it in several answers.
_ANSWER_BYTES_MAX = 64 << 20
# So much is read at once, with a turn of the loop before the next read.
_READ_BYTES_MAX = 256 << 10


async def fetch(session: KafkaSession, request: Values) -> Values | bytes:
    """Everything of the partitions asked for; in a session that goes on, those with something new.

    Bytes are a response that was encoded before: clients without sessions name all their partitions twice a second.
    """
    sessions, kept = session.fetch_sessions, session.fetch_session
    if kept is not None and kept.principal is not session.principal:
        # The connection has shown another key. What it may read is asked anew.
        sessions.forget(kept)
    fetching = sessions.begin(kept, session.driver, request)
    if isinstance(fetching, Code):
        return {"error_code": fetching}
    session.fetch_session, fetching.principal = fetching, session.principal
    try:
        fetched = FetchedPartitions(session, fetching, request)
        await fetched.gather()
        idle = fetching.idle_response
        if fetched.is_idle and idle is not None and idle[0] == request["version"]:
            return idle[1]
        return {"session_id": fetching.id, "responses": fetched.responses()}
    finally:
        sessions.end(fetching)


def note_response(
    session: KafkaSession, request: Values, response: Values, pieces: Sequence[Buffer]
) -> None:
    """Keep the bytes of a response to send them again, if it named all partitions and nothing is due in any of them."""
    fetching = session.fetch_session
    if fetching is None:
        return
    fetching.idle_response = None
    is_full = request["session_epoch"] == FINAL_EPOCH and not response.get("error_code")
    if is_full and fetching.is_kept and not fetching.due:
        fetching.idle_response = request["version"], b"".join(pieces)


@dataclass(slots=True)
class FetchedPart:
    """What a fetch has found in one partition."""

    next_offset: int
    code: Code = Code.NONE
    start: int = -1
    end: int = -1
    records: list[Buffer] = field(default_factory=list)
    size: int = 0
    # Of the log that the records are from: its seed, which no other log has, and its epoch.
    log: tuple[int, int] = (0, -1)


class FetchedPartitions:
    """One fetch, while it goes on."""

    def __init__(self, session: KafkaSession, fetching: FetchSession, request: Values) -> None:
        self._session, self._fetching = session, fetching
        self._is_incremental = request["session_epoch"] > INITIAL_EPOCH
        self._bytes_max: int = min(max(1, request["max_bytes"]), _ANSWER_BYTES_MAX)
        self._bytes_min: int = min(request["min_bytes"], self._bytes_max)
        self._until = session.driver.loop.time() + max(0, request["max_wait_ms"]) / _MS
        self._parts: dict[PartitionEnd, FetchedPart] = {}
        self._size = 0
        # Another fetch would not find more by waiting.
        self._is_settled = False
        # How many bytes are stored behind what was read, in partitions that have grown.
        self._unread: dict[PartitionEnd, int] = {}

    async def gather(self) -> None:
        """Read what there is; wait until it is enough, or the time is up."""
        driver = self._session.driver
        await self._read([*self._fetching.due])
        while True:
            left_s = self._until - driver.loop.time()
            if driver.is_draining or self._is_settled or self._size >= self._bytes_min:
                return
            if left_s <= 0 or self._size + sum(self._unread.values()) >= self._bytes_min:
                unread, self._unread = self._unread, {}
                await self._read(unread)
                if left_s <= 0:
                    return
                if unread:
                    continue
            if self._unread:
                # What comes meanwhile is looked at together.
                await driver.wait(driver.signal()[0], int(min(left_s, _PAUSE_S) * _S_NS))
            await self._fetching.until_grown(
                max(0, int((self._until - driver.loop.time()) * _S_NS))
            )
            for key in self._fetching.take_grown():
                await self._measure(key)

    async def _measure(self, key: PartitionEnd) -> None:
        """Take note of how much there is to read in a partition that has grown."""
        part = self._parts.get(key)
        offset = self._fetching.positions[key].offset if part is None else part.next_offset
        try:
            bounds = await self._session.execute(DescribeBounds(*key, offset))
        except PenstockError:
            # To be read now: then it is found out why.
            self._unread[key] = self._bytes_min
            return
        is_replaced = part is not None and part.end >= 0 and bounds.epoch != part.log[1]
        if is_replaced or not bounds.start <= offset <= bounds.end:
            self._unread[key] = self._bytes_min
            return
        self._unread[key] = bounds.size
        self._fetching.watch(key, bounds.end)

    async def _read(self, keys: Iterable[PartitionEnd]) -> None:
        bytes_max = self._room()
        for key in keys:
            if bytes_max <= self._size and self._is_incremental:
                # The others have their turn with the next fetch.
                return
            while await self._read_piece(key, bytes_max - self._size):
                pass

    def _room(self) -> int:
        """How large the answer may be: nothing while too much waits for clients that do not read."""
        try:
            self._session.service.budget.require_room()
        except TooManyRequests:
            return 0
        return self._bytes_max

    async def _read_piece(self, key: PartitionEnd, room: int) -> bool:
        """Read what comes next in a partition. True: there is more of it, and room for that."""
        position = self._fetching.positions[key]
        part = self._parts.setdefault(key, FetchedPart(position.offset))
        if part.records and part.size >= position.bytes_max:
            self._is_settled = True
            return False
        try:
            if room <= 0:
                self._look(key, part, await self._session.execute(DescribeBounds(*key)))
                return False
            size_max = max(1, min(position.bytes_max - part.size, room, _READ_BYTES_MAX))
            start = Start.at_offset(part.next_offset)
            reply = await self._session.execute(Fetch(*key, start, bytes_max=size_max))
        except PenstockError as error:
            await self._refuse(key, part, error)
            return False
        log = (reply.seed, reply.epoch)
        if part.records and log != part.log:
            # The topic was made anew, or its log was cut: what was read may not be there any more.
            self._drop(key, part)
            return True
        part.log = log
        self._look(key, part, LogBounds(reply.start_offset, reply.end_offset, reply.epoch))
        if part.code:
            return False
        if part.records and len(reply.data) > size_max:
            # One batch that is too large for what is left.
            self._is_settled = True
            return False
        pieces = await _converted(self._session, reply, key.topic)
        size = sum(map(len, pieces))
        part.records += pieces
        part.size += size
        part.next_offset = reply.next_offset
        self._size += size
        if reply.next_offset >= reply.end_offset:
            self._fetching.watch(key, reply.end_offset)
            return False
        if size_max == _READ_BYTES_MAX and size < room:
            return True
        # There is more, which does not fit: that of the others is not waited for.
        self._is_settled = True
        return False

    def _look(self, key: PartitionEnd, part: FetchedPart, bounds: LogBounds) -> None:
        """Take note of where a partition begins and ends."""
        position = self._fetching.positions[key]
        part.start, part.end = position.start, position.end = bounds.start, bounds.end
        if 0 <= position.epoch < bounds.epoch:
            # A client that has not heard of the newest epoch gets no message, so that its position stays while it
            # checks that position (OffsetForLeaderEpoch): librdkafka compares the answer with where it is then, and
            # where the position has moved takes the log for cut, and drops what it has fetched and not handed out.
            self._settle(key, part, Code.FENCED_LEADER_EPOCH)

    def _settle(self, key: PartitionEnd, part: FetchedPart, code: Code) -> None:
        """Answer at once. Records that were found are sent, and the next fetch is told of the error."""
        self._is_settled = True
        if not part.records:
            part.code = code
            # It has to be read again to know more.
            self._fetching.positions[key].end = -1

    async def _refuse(self, key: PartitionEnd, part: FetchedPart, error: PenstockError) -> None:
        code = code_of(error)
        if isinstance(error, OffsetOutOfRange):
            try:
                self._look(key, part, await self._session.execute(DescribeBounds(*key)))
            except PenstockError as other:
                code = code_of(other)
        elif not part.records:
            part.start = part.end = -1
        self._settle(key, part, part.code or code)

    def _drop(self, key: PartitionEnd, part: FetchedPart) -> None:
        self._size -= part.size
        del self._parts[key]

    @property
    def is_idle(self) -> bool:
        """Whether all partitions were named, and nothing had to be looked at in any of them."""
        return not (self._is_incremental or self._parts or self._fetching.due)

    def responses(self) -> list[Values]:
        """The answer, by topic. The partitions count as looked at."""
        fetching = self._fetching
        by_topic: dict[str, list[Values]] = {}
        for key in self._parts if self._is_incremental else fetching.positions:
            position = fetching.positions[key]
            part = self._parts.get(key)
            if part is None:
                part = FetchedPart(position.offset, start=position.start, end=position.end)
            bounds = (part.start, part.end)
            if not self._is_incremental or part.records or part.code or position.told != bounds:
                by_topic.setdefault(key.topic, []).append(_answer(key.partition, part))
                position.told = None if part.code else bounds
        for key, part in self._parts.items():
            fetching.answered(key, has_records=bool(part.records))
        return [{"topic": topic, "partitions": parts} for topic, parts in by_topic.items()]


async def _converted(session: KafkaSession, reply: FetchReply, topic: str) -> list[Buffer]:
    converted, is_dead_letters = session.converted, holds_dead_letters(topic)
    pieces: list[Buffer] = []
    for head, batch in batches_in(reply.data, seed=reply.seed, is_verified=True):
        await session.driver.give_way()
        pieces += converted.convert(head, batch, reply.seed, is_dead_letters=is_dead_letters)
    return pieces


def _answer(partition: int, part: FetchedPart) -> Values:
    return {
        "partition_index": partition,
        "error_code": part.code,
        "high_watermark": part.end,
        # No reader ever waits for a transaction.
        "last_stable_offset": part.end,
        "log_start_offset": part.start,
        "aborted_transactions": [],
        "records": part.records,
    }
