"""What one follower is sent: first what its files lack, then everything in the order in which it happens."""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..codec import HEAD_BYTES, Head
from ..codec.edit import from_offset
from ..codec.head import pack_head
from ..errors import BadRequest, Fenced
from ..log import Log
from ..log.layout import read_file
from ..log.snapshot import snapshot_offsets, snapshot_path
from ..model import Buffer, Offset
from .frames import (
    LOGS_A_FRAME,
    Batches,
    Durable,
    Frame,
    HandOver,
    Hello,
    Inventory,
    Level,
    LogFacts,
    LogParted,
    Opened,
    Parted,
    Reconciled,
    Refusal,
    Removed,
    Snapshot,
    Started,
    encode_frame,
)
from .reconcile import NOTHING, facts_of, in_order, keep_to

if TYPE_CHECKING:
    from .leader import Leader

# One frame of batches, unless a single one is larger.
_FRAME_BYTES = 1 << 20


class Event(NamedTuple):
    """One thing that happened to a log. `offset` is where it ends, begins, or has its snapshot now, by its kind."""

    sequence: int
    path: str
    kind: str
    offset: int = 0
    data: bytes = b""


class StreamState(Enum):
    """How far a follower is."""

    GREETED = "greeted"
    RECONCILING = "reconciling"
    CATCHING_UP = "catching_up"
    LIVE = "live"
    CLOSED = "closed"


class Stream:
    """Made by `Leader.follow`. `take` has what to send, `receive` hears the follower.

    `durable` is the sequence up to which the follower has synced everything, in this connection: what it confirmed in
    another one, or in another life, counts for nothing.
    """

    def __init__(self, leader: "Leader", hello: Hello) -> None:
        self.leader, self.hello = leader, hello
        self.state = StreamState.GREETED
        self.durable = -1
        self.is_in_sync = False
        self.sent_bytes = self.received_bytes = 0
        # How far the follower was told that everything is committed.
        self.committed_told = -1
        self._out: deque[list[Buffer]] = deque()
        self._theirs: dict[str, LogFacts] = {}
        # Where each log goes on, by path.
        self._sent: dict[str, int] = {}
        # Snapshots that it has, by path of the log and offset.
        self._installed: set[tuple[str, int]] = set()
        self._round: Iterator[list[Buffer]] | None = None
        self._round_sequence = 0
        self._next = 0
        self._send(leader.hello_to())

    @property
    def lag_bytes(self) -> int:
        """How much the follower has not confirmed of what there is."""
        behind = 0
        for path, log in self.leader.logs.items():
            if log.end_offset > self._sent.get(path, 0) and self.state is not StreamState.LIVE:
                behind += log.size
        unsent = (one for one in self.leader.recent if one.sequence >= self._next)
        waiting = sum(len(one.data) for one in unsent) if self.state is StreamState.LIVE else 0
        return behind + waiting + self.sent_bytes - self.received_bytes

    @property
    def needed_from(self) -> int:
        """The sequence from which on it will be sent from memory."""
        return self._next if self.state is StreamState.LIVE else self._round_sequence + 1

    def _send(self, frame: Frame, *payload: Buffer) -> None:
        self._out.append(encode_frame(frame, *payload))

    def receive(self, frame: Frame) -> None:
        """Hear what the follower said. BadRequest: not now; Fenced: it follows another epoch, so this reign is over."""
        match frame:
            case Inventory() if self.state is StreamState.GREETED:
                self._theirs.update({one.path: one for one in frame.logs})
                if frame.is_last:
                    self._part()
            case Reconciled() if self.state is StreamState.RECONCILING:
                by_number = {number: path for path, number in self.leader.numbers.items()}
                self._sent = {by_number[number]: end for number, end in frame.ends}
                self._installed = {
                    (by_number[number], offset) for number, offset in frame.snapshots
                }
                self.state = StreamState.CATCHING_UP
                self._begin_round()
            case Durable() if self.state in {StreamState.CATCHING_UP, StreamState.LIVE}:
                self._confirmed(frame)
            case Refusal():
                if frame.epoch > self.leader.epoch:
                    self.leader.fenced_by = max(self.leader.fenced_by, frame.epoch)
                self.close()
            case _:
                raise BadRequest(f"a peer sent {type(frame).__name__} when {self.state.value}")

    def _confirmed(self, frame: Durable) -> None:
        if frame.epoch != self.leader.epoch:
            raise Fenced(self.leader.epoch, promised=frame.epoch)
        self.received_bytes = frame.received_bytes
        if self.state is not StreamState.LIVE or frame.sequence < self._round_sequence:
            return
        self.durable = frame.sequence
        # Once it has all that is committed, commits wait for it, too.
        self.is_in_sync = self.is_in_sync or self.durable >= self.leader.committed

    def _part(self) -> None:
        """Say where each log of the follower parts from ours, and which it lacks."""
        leader, answers = self.leader, list[LogParted]()
        for path in sorted(self._theirs.keys() | leader.logs.keys(), key=in_order):
            log, theirs = leader.logs.get(path), self._theirs.get(path)
            if log is None:
                answers.append(LogParted(path, NOTHING, NOTHING))
                continue
            mine = facts_of(log)
            kept = NOTHING if theirs is None else keep_to(mine, theirs)
            answers.append(LogParted(path, leader.numbers[path], kept, mine))
        for first in range(0, max(len(answers), 1), LOGS_A_FRAME):
            some = tuple(answers[first : first + LOGS_A_FRAME])
            self._send(Parted(some, is_last=first + LOGS_A_FRAME >= len(answers)))
        self.state = StreamState.RECONCILING

    def take(self, bytes_max: int) -> list[list[Buffer]]:
        """Returns the frames to send now, each in its parts: as many as fit, or one that is larger.

        None: there is nothing to send, or the follower has not confirmed enough of what it was sent.
        """
        frames: list[list[Buffer]] = []
        taken = 0
        while taken < bytes_max and (frame := self._following()) is not None:
            frames.append(frame)
            taken += sum(map(len, frame))
        self.leader.forget_sent()
        return frames

    def _following(self) -> list[Buffer] | None:
        if self._out:
            return self._out.popleft()
        if self.sent_bytes - self.received_bytes >= self.leader.window_bytes:
            return None
        if self.state is StreamState.CATCHING_UP:
            frame = self._caught_up()
        elif self.state is StreamState.LIVE:
            frame = self._live()
        else:
            frame = None
        if frame is not None:
            self.sent_bytes += sum(map(len, frame[1:]))
        return frame

    def _begin_round(self) -> None:
        """Send from files all that there is now."""
        self.state = StreamState.CATCHING_UP
        self._round_sequence = self.leader.sequence
        goals = {path: (log, log.end_offset) for path, log in self.leader.logs.items()}
        self._round = self._rest(goals)

    def _caught_up(self) -> list[Buffer] | None:
        assert self._round is not None
        frame = next(self._round, None)
        if frame is not None:
            return frame
        recent = self.leader.recent
        first = recent[0].sequence if recent else self.leader.sequence + 1
        if first > self._round_sequence + 1:
            # More has come than is kept in memory: once more from files.
            self._begin_round()
            return self._caught_up()
        self._round, self._next = None, self._round_sequence + 1
        self.state = StreamState.LIVE
        return self._level()

    def _rest(self, goals: dict[str, tuple[Log, Offset]]) -> Iterator[list[Buffer]]:
        """The frames of a round: of each partition what others rest on first, and meta at the end."""
        for path in sorted(goals, key=in_order):
            log, goal = goals[path]
            if self.leader.logs.get(path) is not log:
                continue  # Removed meanwhile.
            number = self.leader.numbers[path]
            if path not in self._sent:
                yield encode_frame(Opened(number, -1, facts_of(log)))
                self._sent[path] = log.first_base
            yield from self._files(log, number, goal)

    def _files(self, log: Log, number: int, goal: Offset) -> Iterator[list[Buffer]]:
        path = log.directory
        if self._sent[path] < log.first_base:
            # Retention has overtaken it.
            yield encode_frame(Started(number, log.first_base))
            self._sent[path] = log.first_base
        while self._sent[path] < goal and self.leader.logs.get(path) is log:
            offset = max(self._sent[path], log.first_base)
            hidden, log.hidden_below = log.hidden_below, Offset(0)
            try:
                run = log.read(offset, bytes_max=_FRAME_BYTES)
            finally:
                log.hidden_below = hidden
            # What came since the round began comes from memory, in its order.
            heads = [one for one in run.heads if one.base_offset < goal]
            size = sum(one.length for one in heads)
            data = _whole_from(run.data[:size], heads[0], offset, log.seed)
            self._sent[path] = heads[-1].next_offset
            head = Batches(number, self.leader.epoch, -1, self.leader.committed)
            yield encode_frame(head, *data)
        yield from self._snapshots(log, number)
        yield encode_frame(Started(number, log.first_base))

    def _snapshots(self, log: Log, number: int) -> Iterator[list[Buffer]]:
        for offset in snapshot_offsets(log.disk, log.directory):
            place = (log.directory, offset)
            if offset <= self._sent[log.directory] and place not in self._installed:
                self._installed.add(place)
                yield from self._pieces(log, number, offset, -1)

    def _pieces(self, log: Log, number: int, offset: int, sequence: int) -> Iterator[list[Buffer]]:
        """A snapshot, in frames. One that a later one has replaced meanwhile is left out."""
        path = snapshot_path(log.directory, offset)
        if not log.disk.exists(path):
            return
        content = memoryview(read_file(log.disk, path))
        for position in range(0, len(content), _FRAME_BYTES):
            piece = content[position : position + _FRAME_BYTES]
            yield encode_frame(Snapshot(number, offset, position, len(content), sequence), piece)

    def _live(self) -> list[Buffer] | None:
        """Returns the next frame from memory; None: everything was sent."""
        recent, is_passed = self.leader.recent, False
        while recent and self._next <= recent[-1].sequence:
            if self._next < recent[0].sequence:
                # Too slow: what is not in memory any more comes from files.
                self.is_in_sync = False
                self._begin_round()
                return self._caught_up()
            index = self._next - recent[0].sequence
            event = recent[index]
            if event.kind == "batch":
                return self._batches(index, event)
            self._next += 1
            if (frame := self._told(event)) is not None:
                return frame
            # A log that was removed meanwhile has nothing to tell, and replies may wait for the sequence all the same.
            is_passed = True
        return self._level() if is_passed else None

    def _batches(self, index: int, event: Event) -> list[Buffer]:
        """Returns one frame with the batches of a log that follow each other."""
        recent, parts, size = self.leader.recent, [event.data], len(event.data)
        while index + 1 < len(recent):
            following = recent[index + 1]
            is_more = following.kind == "batch" and following.path == event.path
            if not is_more or size + len(following.data) > _FRAME_BYTES:
                break
            index, event, size = index + 1, following, size + len(following.data)
            parts.append(following.data)
        self._next = event.sequence + 1
        self._sent[event.path] = event.offset
        number = self.leader.numbers[event.path]
        self.committed_told = self.leader.committed
        head = Batches(number, self.leader.epoch, event.sequence, self.committed_told)
        return encode_frame(head, *parts)

    def _told(self, event: Event) -> list[Buffer] | None:
        number, log = self.leader.numbers[event.path], self.leader.logs.get(event.path)
        if event.kind == "removed":
            self._sent.pop(event.path, None)
            return encode_frame(Removed(number, event.sequence))
        if log is None:
            return None
        if event.kind == "opened":
            self._sent.setdefault(event.path, log.first_base)
            return encode_frame(Opened(number, event.sequence, facts_of(log)))
        if event.kind == "started":
            return encode_frame(Started(number, event.offset, event.sequence))
        self._out.extend(self._pieces(log, number, event.offset, event.sequence))
        return self._out.popleft() if self._out else None

    def beat(self) -> list[Buffer] | None:
        """Returns a sign of life that says what is committed; None: the follower is not live yet.

        Batches say that, too: a frame of its own for every commit would have the follower answer twice as often.
        """
        return self._level() if self.state is StreamState.LIVE else None

    def _level(self) -> list[Buffer]:
        self.committed_told = self.leader.committed
        return encode_frame(Level(self.leader.epoch, self._next - 1, self.committed_told))

    def hand_over(self) -> bool:
        """Tell the follower that it may lead. False: it has not everything yet. The caller admits nothing any more."""
        leader = self.leader
        is_level = self.is_in_sync and self.durable >= leader.sequence == leader.committed
        if is_level:
            self._send(HandOver(leader.epoch, leader.sequence))
        return is_level

    def leave(self) -> None:
        """Wait for it no more: it counts again when it has confirmed all that there is."""
        self.is_in_sync = False
        if self.state is StreamState.LIVE:
            self._round_sequence = self.leader.sequence

    def close(self) -> None:
        self.state, self.is_in_sync = StreamState.CLOSED, False
        self._out.clear()
        self.leader.left(self)


def _whole_from(data: memoryview, first: Head, offset: int, seed: int) -> list[Buffer]:
    """The batches from an offset on. The first may reach before it, where compaction has made its range grow."""
    if first.base_offset >= offset:
        return [data]
    made = from_offset(data[: first.length], first, offset)
    assert made.head.length >= HEAD_BYTES
    return [pack_head(made.head, seed=seed), *made.body, data[first.length :]]
