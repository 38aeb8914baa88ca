"""The leader of a data directory: hears of every append of its logs, and knows which of them are committed.

One sequence counts what happens to all logs of the node, in its order. A batch is committed when this node and every
follower that is in sync have synced all up to its sequence, and these are at least `min_isr` nodes. So a reply waits
for one number, and within a reign all positions lie on one path.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from ..codec import Head
from ..errors import Fenced, Refused
from ..log import Log
from ..log.closed import ClosedLog, ClosedLogs
from ..log.reign import Mandate, RecordEpoch
from ..model import Buffer, Epoch, Offset
from .frames import LEVEL, Hello
from .stream import Event, Stream
from .watermark import Watermark

MEMORY_BYTES = 64 << 20
WINDOW_BYTES = 16 << 20


class Leader:
    """Given to a `Node` as its `reign`. Not thread-safe: its calls come with the lock of the node held.

    `committed` has the ends that are known to be committed from before, by path: readers see no less than these.
    """

    is_shared = has_one_epoch = True

    def __init__(
        self,
        hello: Hello,
        *,
        min_isr: int = 2,
        committed: Mapping[str, int] | None = None,
        memory_bytes: int = MEMORY_BYTES,
        window_bytes: int = WINDOW_BYTES,
        asked: Iterable[int] = (),
        closed_logs: ClosedLogs | None = None,
    ) -> None:
        """`hello` is what this node says of itself to each follower; its epoch is that of the reign. The nodes `asked`
        have promised to follow no earlier one."""
        self.hello, self.min_isr = hello, min_isr
        self.epoch = Epoch(hello.epoch)
        is_forced = hello.forced_epoch == hello.epoch
        self.mandate = Mandate(hello.node, is_forced, tuple(asked))
        self.window_bytes = window_bytes
        self.logs: dict[str, Log] = {}
        self.numbers: dict[str, int] = {}
        # Of the logs, also of those that are closed and not removed yet, by the directory that they are in.
        self._paths: dict[str, dict[str, None]] = {}
        self.streams: list[Stream] = []
        # As this process has closed them: before this reign, and at its end.
        self.closed_logs = closed_logs or ClosedLogs()
        # The sequence of the record that says that this reign has begun.
        self._begun_at = 0
        # The epoch of another node that leads now; 0: none is known.
        self.fenced_by = 0
        # Another node leads, or is about to: nothing more is committed here.
        self.is_over = False
        # Called with the lock of the node held: there is something to send.
        self.on_event: Callable[[], None] = _ignore
        self.recent: deque[Event] = deque()
        self._recent_bytes, self._memory_bytes = 0, memory_bytes
        self.watermark = Watermark()
        self.watermark.ends.update({path: Offset(end) for path, end in (committed or {}).items()})

    @property
    def sequence(self) -> int:
        """That of the last thing that happened to a log: what a reply waits for."""
        return self.watermark.sequence

    @property
    def committed(self) -> int:
        return self.watermark.committed

    @property
    def in_sync(self) -> int:
        """How many nodes a commit waits for, this one included."""
        return 1 + sum(stream.is_in_sync for stream in self.streams)

    @property
    def has_quorum(self) -> bool:
        """Whether anything can be committed now."""
        return self.in_sync >= self.min_isr and not self.fenced_by

    @property
    def is_begun(self) -> bool:
        """Whether the record of this reign is committed: before that, nothing that a client asks for is."""
        return self.committed >= self._begun_at

    def take_closed(self, directory: str) -> ClosedLog | None:
        return self.closed_logs.take(directory)

    def closing(self, log: Log) -> None:
        self.closed_logs.put(log)

    def begin(self, record: RecordEpoch) -> None:
        record(self.epoch)
        self._begun_at = self.sequence

    def found(self, epoch: Epoch) -> None:
        """No log is in a later epoch than the one that this node was promised."""

    def epoch_for(self, log: Log) -> Epoch:
        return self.epoch

    def next_epoch(self, epoch: Epoch) -> Epoch:
        """All is written in the epoch of the reign, which is later than any that a log had before."""
        return max(epoch, self.epoch)

    def committed_end(self, log: Log) -> Offset:
        return min(self.watermark.ends.get(log.directory, Offset(0)), log.end_offset)

    def opened(self, log: Log) -> None:
        path = log.directory
        log.tap = self
        self.logs[path] = log
        self.numbers.setdefault(path, len(self.numbers))
        self._paths.setdefault(path.rpartition("/")[0], {})[path] = None
        sequence = self._happened(path, "opened")
        self.watermark.appended(sequence, path, log.end_offset)

    def closed(self, directory: str) -> None:
        for path in self._paths.get(directory, ()):
            self.logs.pop(path).tap = None
            self.watermark.forget(path)

    def removed(self, directory: str) -> None:
        """Followers remove the files, too, and hear of so few directories at once as are removed here."""
        for path in self._paths.pop(directory, ()):
            self._happened(path, "removed")

    def appended(self, log: Log, head: Head, parts: Sequence[Buffer]) -> None:
        path = log.directory
        data = b"".join(parts) if self.streams else b""
        sequence = self._happened(path, "batch", head.next_offset, data)
        self.watermark.appended(sequence, path, head.next_offset)

    def started(self, log: Log) -> None:
        self._happened(log.directory, "started", log.first_base)

    def snapshot(self, log: Log, offset: Offset) -> None:
        self._happened(log.directory, "snapshot", offset)

    def _happened(self, path: str, kind: str, offset: int = 0, data: bytes = b"") -> int:
        sequence = self.watermark.sequence + 1
        self.watermark.sequence = sequence
        if self.streams:
            self.recent.append(Event(sequence, path, kind, offset, data))
            self._recent_bytes += len(data)
            while self._recent_bytes > self._memory_bytes and len(self.recent) > 1:
                self._recent_bytes -= len(self.recent.popleft().data)
            self.on_event()
        return sequence

    def follow(self, hello: Hello) -> Stream:
        """Begin to send to a follower. One of the same node that is still there was cut off, and ends.

        Refused: another cluster, another level, or this very node. Fenced: it knows a later epoch, and this reign
        is over (`fenced_by`); or it leads in an earlier one, and has to hear that from a Refusal with this epoch.
        """
        self._require_fit(hello)
        for old in [one for one in self.streams if one.hello.node == hello.node]:
            old.close()
        stream = Stream(self, hello)
        self.streams.append(stream)
        return stream

    def _require_fit(self, hello: Hello) -> None:
        mine = self.hello
        if hello.cluster_id != mine.cluster_id:
            raise Refused(
                f"node {hello.node} is of cluster {hello.cluster_id!r}, and this one of {mine.cluster_id!r}"
            )
        if hello.level != LEVEL:
            raise Refused(f"node {hello.node} speaks level {hello.level}, and this one {LEVEL}")
        if hello.node == mine.node or hello.disk_id == mine.disk_id:
            raise Refused(
                f"node {hello.node} has the number, or a copy of the directory, of this one"
            )
        if hello.role == "leader" and hello.epoch < self.epoch:
            raise Fenced(hello.epoch, promised=self.epoch)
        if hello.epoch > self.epoch:
            self.fenced_by = max(self.fenced_by, hello.epoch)
            raise Fenced(self.epoch, promised=hello.epoch)

    def left(self, stream: Stream) -> None:
        """A follower is gone, or too slow to be waited for."""
        with suppress(ValueError):
            self.streams.remove(stream)
        if not self.streams:
            self.recent.clear()
            self._recent_bytes = 0

    def forget_sent(self) -> None:
        """Keep in memory only what some follower has not been sent yet."""
        needed = min((stream.needed_from for stream in self.streams), default=self.sequence + 1)
        while self.recent and self.recent[0].sequence < needed:
            self._recent_bytes -= len(self.recent.popleft().data)

    def advance(self) -> bool:
        """Commit what is durable everywhere. True: `committed` has grown, and there may be replies to send."""
        return self.watermark.advance(self._limit(), self._is_durable)

    def _limit(self) -> int:
        """The sequence up to which enough followers have everything."""
        if not self.has_quorum:
            return self.committed
        return min(self._confirmed(), default=self.sequence)

    def _confirmed(self) -> Iterable[int]:
        return [stream.durable for stream in self.streams if stream.is_in_sync]

    def _is_durable(self, path: str, next_offset: Offset) -> bool:
        log = self.logs.get(path)
        return log is None or log.durable_end >= next_offset

    def copies(self, sequence: int) -> int:
        """How many nodes have everything up to a sequence that is committed, this one included."""
        return 1 + sum(stream.durable >= sequence for stream in self.streams)

    def known_ends(self) -> dict[str, int]:
        """The committed ends by path, to be written down."""
        return dict(self.watermark.ends)

    def hello_to(self) -> Hello:
        return msgspec.structs.replace(self.hello, role="leader", epoch=self.epoch)


def _ignore() -> None:
    return
