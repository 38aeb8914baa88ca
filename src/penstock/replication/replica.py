"""A replica: the logs of a data directory that another node writes. It stores, and nothing else.

There is no machine and nothing is applied. What it has at any time is what a power cut could have left of the leader,
and a node opens that as it opens what a crash left: to lead is to promise a new epoch, to close the logs, and to open a
`Node`.
"""

from collections.abc import Iterator, Mapping

import msgspec

from ..errors import BadRequest, Damaged, Fenced, HistoryLost, PenstockError, Refused
from ..log import Log
from ..log.closed import ClosedLogs
from ..log.layout import TEMPORARY
from ..log.placed import append_placed
from ..log.snapshot import snapshot_offsets, snapshot_path
from ..model import Epoch, Offset
from ..ports import Disk, Entropy, File
from .frames import (
    LEVEL,
    Batches,
    Durable,
    Frame,
    HandOver,
    Hello,
    Level,
    LogFacts,
    LogParted,
    Opened,
    Parted,
    Reconciled,
    Removed,
    Snapshot,
    Started,
    in_pages,
)
from .reconcile import META, NOTHING, in_order
from .replica_file import ReplicaRecord, read_record, write_record
from .storage import ClosedStorage, ReceivedSnapshot, SetAside, Storage, StoragePlan
from .watermark import Watermark

_ID_BITS = 63


class Replica:
    """Opens the logs of a disk, follows one leader after the other, and is closed by `lead` or `close`.

    Not thread-safe. A plan of `plan_sync` may run in another thread, but no frame may be received as long as it does.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        node: int,
        entropy: Entropy,
        cluster_id: str = "",
        closed_logs: ClosedLogs | None = None,
    ) -> None:
        """DamagedFile: the file `replica` is damaged, and nothing says what this node has promised."""
        self.disk, self.node = disk, node
        self.incarnation = entropy.getrandbits(_ID_BITS)
        found = read_record(disk)
        self.record = found or ReplicaRecord(entropy.getrandbits(_ID_BITS))
        if cluster_id and self.record.cluster_id not in {"", cluster_id}:
            raise Refused(
                f"this directory is of cluster {self.record.cluster_id!r}, not of {cluster_id!r}"
            )
        self.record.cluster_id = self.record.cluster_id or cluster_id
        self.storage, self.watermark = Storage(disk, closed_logs), Watermark()
        # One that is not whole may have begun to fetch a log anew, and says so already.
        committed = self.record.committed if self.record.is_whole else {}
        try:
            is_undamaged = self.storage.open(committed, self._broken)
        except PenstockError:
            # On a full disk, say: the next try finds everything as it is.
            self.storage.discard()
            raise
        if found is None:
            # An empty disk has nothing that this node may have confirmed before it was lost.
            self._write(is_whole=is_undamaged and bool(self.storage.logs))
        elif not is_undamaged:
            self._broken()
        # The one that is followed; None: not connected, or not greeted yet.
        self.leader: Hello | None = None
        self.received_bytes = 0
        self.level: Level | None = None
        # How much of what was received is durable, as last told.
        self.durable = -1
        self._is_reconciled = self._is_level = False
        self._numbers: dict[int, Log] = {}
        self._parted: list[LogParted] = []
        # Logs that the leader does not have, until meta says so here, too.
        self._gone: dict[str, LogParted] = {}
        self._incoming: tuple[Snapshot, File] | None = None

    @property
    def epoch(self) -> int:
        """The highest that this node has promised to, or that any of its logs was written in."""
        epochs = (log.epoch for log in self.storage.logs.values())
        return max(self.record.promised, max(epochs, default=Epoch(0)))

    @property
    def is_whole(self) -> bool:
        """Whether it has at least what it had confirmed once. If not it may not lead before it is level again."""
        return self.record.is_whole

    @property
    def aside(self) -> list[SetAside]:
        """What was cut or set aside since the start."""
        return self.storage.aside

    def inventory(self) -> Mapping[str, LogFacts]:
        return self.storage.facts()

    def hello(self) -> Hello:
        """The first frame to send."""
        return Hello(
            self.record.cluster_id,
            self.node,
            self.incarnation,
            self.record.disk_id,
            LEVEL,
            self.epoch,
            "follower",
            self.record.forced_epoch,
        )

    def disconnect(self) -> None:
        """The connection is gone. What was received stays, and the next leader hears of it."""
        if self._incoming is not None:
            self._incoming[1].close()
        self.storage.forget_received()
        self.leader = self.level = self._incoming = None
        self._numbers, self._parted = {}, []
        self.received_bytes, self.durable = 0, -1
        self._gone = {}
        self._is_reconciled = self._is_level = False
        committed = self.watermark.ends
        self.watermark = Watermark()
        self.watermark.ends.update(committed)

    def receive(self, frame: Frame, payload: memoryview = memoryview(b"")) -> list[Frame]:  # noqa: B008  # Never written to.
        """Take in a frame of the leader. Returns what to answer, besides the Durable after the next sync.

        Fenced: it speaks in an epoch that is over. HistoryLost: it lacks what is committed. Refused, Damaged: hang up,
        and connect again; a log that is damaged is set aside then, and comes anew.
        """
        if isinstance(frame, Hello):
            return self._greeted(frame)
        if self.leader is None:
            raise BadRequest(f"a peer sent {type(frame).__name__} before it said who it is")
        if self.record.promised > self.leader.epoch:
            raise Fenced(self.leader.epoch, promised=self.record.promised)
        if not isinstance(frame, Opened | Removed) and self.storage.has_changed:
            self.storage.settle()
        match frame:
            case Parted():
                return self._told_apart(frame)
            case Batches():
                self._append(frame, payload)
            case Opened():
                self._opened(frame)
            case Snapshot():
                self._install(frame, payload)
            case Started():
                self._seen(frame.sequence)
                self.storage.begin_at(self._log(frame.number), frame.start)
            case Removed():
                self._removed(frame)
            case Level():
                self._levelled(frame)
            case HandOver():
                self._handed_over(frame)
            case _:
                raise BadRequest(f"a leader sent {type(frame).__name__}")
        return []

    def _greeted(self, hello: Hello) -> list[Frame]:
        record = self.record
        if hello.cluster_id != record.cluster_id and record.cluster_id:
            raise Refused(
                f"the leader is of cluster {hello.cluster_id!r}, and this node of {record.cluster_id!r}"
            )
        if hello.level != LEVEL:
            raise Refused(f"the leader speaks level {hello.level}, and this node {LEVEL}")
        if hello.epoch < self.epoch:
            raise Fenced(hello.epoch, promised=self.epoch)
        self.disconnect()
        if hello.epoch > record.promised or not record.cluster_id:
            self._write(promised=hello.epoch, cluster_id=hello.cluster_id, handed_over=0)
        self.leader = hello
        return [*in_pages([*self.storage.facts().values()])]

    def _told_apart(self, frame: Parted) -> list[Frame]:
        self._parted += frame.logs
        assert self.leader is not None
        if not frame.is_last:
            return []
        if self.leader.forced_epoch == self.record.forced_epoch:
            self._require_committed()
        else:
            self._leave_history(self.leader.forced_epoch)
        ends: list[tuple[int, int]] = []
        snapshots: list[tuple[int, int]] = []
        parted = {one.path: one for one in self._parted}
        self._parted = []
        # Meta first, because it says how far the others are; then of each partition what rests on others first.
        for path in sorted(parted, key=in_order, reverse=True):
            if parted[path].facts is None:
                # Its topic is gone there. Here it is known until meta has come: a node that leads before needs it.
                self._gone[path] = parted[path]
            else:
                self._reconcile(parted[path])
        for path, one in parted.items():
            if one.number >= 0:
                log = self._numbers[one.number] = self.storage.logs[path]
                ends.append((one.number, log.end_offset))
                snapshots += [(one.number, at) for at in snapshot_offsets(self.disk, path)]
        self._is_reconciled = True
        return [Reconciled(tuple(ends), tuple(snapshots))]

    def _require_committed(self) -> None:
        """HistoryLost: a log would be cut where this node knows it to be committed. Nothing is cut then."""
        for one in self._parted:
            log = self.storage.logs.get(one.path)
            known = self.record.committed.get(one.path, 0)
            if log is None or one.number < 0 or not self.record.is_whole:
                continue
            # A log that begins beyond what there is here is ahead by retention, and nothing is lost.
            is_ahead = one.facts is not None and one.facts.start >= log.end_offset
            if not is_ahead and max(one.keep_to, 0) < min(known, log.end_offset):
                raise HistoryLost(one.path, keep_to=one.keep_to, committed=known)

    def _leave_history(self, forced_epoch: int) -> None:
        """Go over to the history that was begun by force in an epoch, or in which nothing was (0). What is not in it
        is committed no longer, and that is on the disk before anything is cut."""
        kept = {log.path: max(log.keep_to, 0) for log in self._parted}
        for ends in (self.record.committed, self.watermark.ends):
            for path, end in ends.items():
                ends[path] = Offset(min(end, kept.get(path, 0)))
        self._write(forced_epoch=forced_epoch)

    def _reconcile(self, one: LogParted) -> None:
        """Make a log here a beginning of the leader's."""
        storage, log = self.storage, self.storage.logs.get(one.path)
        assert self.leader is not None
        reason = f"not in the history of epoch {self.leader.epoch}"
        is_cut = log is not None and one.keep_to < log.end_offset
        if is_cut and one.path == META:
            storage.forget_meta(one.keep_to)
        if log is not None and (one.keep_to == NOTHING or one.number < 0):
            if one.facts is not None:
                self._broken()
            if one.facts is None and log.first_base == log.end_offset:
                # Of a topic that was being made when its leader was lost, say.
                storage.remove(one.path)
            else:
                storage.set_log_aside(one.path, reason)
            log = None
        elif log is not None and is_cut:
            if one.path.endswith("/messages"):
                state = storage.logs.get(one.path.removesuffix("messages") + "state")
                if state is not None:
                    storage.forget_snapshots_beyond(state, one.keep_to)
            storage.cut(log, one.keep_to, reason)
        if one.facts is not None:
            log = log or storage.begin(one.facts)
            storage.configure(log, one.facts)
            storage.forget_unused_epochs(log, one.facts)
        if is_cut and one.path == META:
            storage.note_meta_end()

    def _log(self, number: int) -> Log:
        try:
            return self._numbers[number]
        except KeyError:
            raise BadRequest(f"a leader named log {number}, which it has not opened") from None

    def _seen(self, sequence: int) -> None:
        if sequence >= 0:
            self.watermark.sequence = max(self.watermark.sequence, sequence)

    def _append(self, frame: Batches, payload: memoryview) -> None:
        assert self.leader is not None
        if frame.epoch != self.leader.epoch:
            raise Fenced(frame.epoch, promised=self.leader.epoch)
        log = self._log(frame.number)
        if log.directory == META:
            # Meta says how far the others are durable: they have to be.
            self.storage.sync()
        try:
            append_placed(log, payload, epoch_max=self.leader.epoch)
        finally:
            self.storage.appended(log)
        self.received_bytes += len(payload)
        if frame.sequence >= 0:
            self.watermark.appended(frame.sequence, log.directory, log.end_offset)
        self._committed(frame.committed)

    def _opened(self, frame: Opened) -> None:
        if frame.facts.path in self._gone:
            self._reconcile(self._gone.pop(frame.facts.path))
        log = self.storage.logs.get(frame.facts.path)
        if log is None:
            if self.storage.is_dirty:
                # The intent in meta comes before the first file that it names.
                self.storage.sync()
            log = self.storage.begin(frame.facts)
        self.storage.configure(log, frame.facts)
        self._numbers[frame.number] = log
        self._seen(frame.sequence)

    def _removed(self, frame: Removed) -> None:
        log = self._numbers.pop(frame.number, None)
        if log is not None:
            if self.storage.is_dirty:
                # The record of meta because of which the files go.
                self.storage.sync()
            self.storage.remove(log.directory)
            self.watermark.forget(log.directory)
            self.record.committed.pop(log.directory, None)
        self._seen(frame.sequence)

    def _install(self, frame: Snapshot, payload: memoryview) -> None:
        """Write a piece of a snapshot; after the last one it gets its name with the next sync, when all that it speaks
        of is durable."""
        log = self._log(frame.number)
        path = snapshot_path(log.directory, frame.offset)
        if frame.position == 0:
            self._incoming = frame, self.disk.create(path + TEMPORARY)
        incoming = self._incoming
        if incoming is None or incoming[0].offset != frame.offset:
            raise BadRequest("a piece of a snapshot without its beginning")
        file = incoming[1]
        if frame.position != file.size():
            raise BadRequest("pieces of a snapshot that do not follow each other")
        file.append(payload)
        self.received_bytes += len(payload)
        self._seen(frame.sequence)
        if file.size() < frame.total:
            return
        self._incoming = None
        self.storage.received(ReceivedSnapshot(path, file))

    def _levelled(self, frame: Level) -> None:
        assert self.leader is not None
        if frame.epoch != self.leader.epoch:
            raise Fenced(frame.epoch, promised=self.leader.epoch)
        self._seen(frame.sequence)
        if not self._is_level:
            # From here on it follows the appends; what came before is committed with the first of them.
            self._is_level = True
            if self._gone:
                # What says that they are gone is durable before they are.
                self.storage.sync()
                for parted in self._gone.values():
                    self._reconcile(parted)
                self._gone.clear()
            for path, log in self.storage.logs.items():
                self.watermark.appended(self.watermark.sequence, path, log.end_offset)
        self.level = frame
        self._committed(frame.committed)

    def _committed(self, committed: int) -> None:
        if self._is_level:
            self.watermark.advance(committed, self._is_durable)

    def _is_durable(self, path: str, next_offset: int) -> bool:
        log = self.storage.logs.get(path)
        return log is None or log.durable_end >= next_offset

    def _handed_over(self, frame: HandOver) -> None:
        assert self.leader is not None
        if frame.epoch != self.leader.epoch or frame.sequence > self.watermark.sequence:
            raise Fenced(frame.epoch, promised=self.leader.epoch)
        self.storage.sync()
        # A leader hands over when all that it has is committed.
        self._committed(frame.sequence)
        self._write(handed_over=frame.epoch)

    def plan_sync(self) -> StoragePlan:
        """What makes all that was received so far durable."""
        sequence = self.watermark.sequence if self._is_level else -1
        return self.storage.plan_sync(sequence, self.received_bytes)

    def synced(self, plan: StoragePlan) -> Durable | None:
        """Take note that a plan was run. Returns what the leader is told; None: nothing yet."""
        self.storage.synced(plan)
        if self.leader is None or not self._is_reconciled:
            return None
        self.durable = max(self.durable, plan.sequence)
        if plan.sequence >= 0 and not self.record.is_whole:
            self._forget_lost()
            self._write(is_whole=True)
        if self.level is not None:
            self._committed(self.level.committed)
        return Durable(self.leader.epoch, plan.sequence, plan.received_bytes)

    def note_committed(self) -> None:
        """Write down what is known to be committed, so that it is never cut. Now and then, and at the end."""
        if any(
            end > self.record.committed.get(path, 0) for path, end in self.watermark.ends.items()
        ):
            self._write()

    def _write(self, **changes: object) -> None:
        """Replace the record, durably. NoSpace: it is what it was, and the next try writes it again."""
        known = dict(self.record.committed)
        record = msgspec.structs.replace(self.record, committed=known, **changes)
        for path, end in self.watermark.ends.items():
            record.committed[path] = max(end, record.committed.get(path, 0))
        write_record(self.disk, record)
        self.record = record

    def _forget_lost(self) -> None:
        """It has what its leader has, or leads by force: what is still missing is in no history any more."""
        for path, log in self.storage.logs.items():
            for ends in (self.record.committed, self.watermark.ends):
                if ends.get(path, 0) > log.end_offset:
                    ends[path] = log.end_offset

    def _broken(self) -> None:
        if self.record.is_whole:
            self._write(is_whole=False)

    def scrub(self) -> Iterator[int]:
        """Read everything, a piece at a time: how many bytes each had. Damaged: a log is, and was set aside; the driver
        hangs up then, and what is missing comes with the next connection."""
        for path in [*self.storage.logs]:
            if path not in self.storage.logs:
                continue
            try:
                yield from self.storage.scrub(path)
            except Damaged as error:
                self._broken()
                self.disconnect()
                self.storage.set_log_aside(path, str(error))
                raise

    def promise(self, epoch: int) -> None:
        """Follow no leader of an epoch before this one from now on, durably. Fenced: a later one was promised."""
        if epoch < self.record.promised:
            raise Fenced(epoch, promised=self.record.promised)
        self._write(promised=epoch)

    def lead(self, epoch: Epoch, *, forced_epoch: int | None = None) -> ClosedStorage:
        """Promise an epoch, durably, and close the logs. Returns what is known of them, for the `Leader`.

        `forced_epoch`: the last one that was begun by force; None: that of the history that there is. Fenced: it is not
        later than what was promised. A `Node` opens the directory then, and begins the epoch in meta.
        """
        begun = max((log.epoch for log in self.storage.logs.values()), default=Epoch(0))
        if epoch < self.record.promised or epoch <= begun:
            raise Fenced(epoch, promised=self.epoch)
        self.disconnect()
        # The node that leads is what the others are compared with, also one that was forced to.
        self._forget_lost()
        forced = self.record.forced_epoch if forced_epoch is None else forced_epoch
        self._write(promised=epoch, is_whole=True, forced_epoch=forced)
        return ClosedStorage(dict(self.record.committed), self.storage.hand_over())

    def close(self) -> None:
        self.disconnect()
        self.note_committed()
        self.storage.close()

    def discard(self) -> None:
        """Let go of the files without another write."""
        self.disconnect()
        self.storage.discard()


def as_leader(hello: Hello, epoch: Epoch) -> Hello:
    """What a node says of itself once it leads."""
    return msgspec.structs.replace(hello, epoch=epoch, role="leader")
