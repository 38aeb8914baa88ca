"""A log beside the messages of a partition: of those that are delayed, or of stagings. Most partitions have neither,
so its files come with the first batch.

The state journal says whether it was made: from then on a log that is missing is damage.
"""

from collections.abc import Callable, Iterator

from ...codec import Encoded, Head, batches_in
from ...config import LogConfig
from ...delivery.delays import DelayEpoch
from ...errors import DamagedBatch, DamagedFile, PenstockError
from ...log import AppendResult, Log, Recovery, SyncPlan
from ...log.layout import base_offset_of
from ...log.opening import Examination, KnownEnd, examine
from ...log.reign import ALONE, Reign, go_on
from ...model import Epoch, LogId
from ...ports import Disk

_READ_BYTES = 1 << 20
# Finished ones leave the disk a segment at a time.
_SEGMENT_BYTES_MAX = 16 << 20


class SideLog:
    """A log that is made when it is first written to."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: LogId,
        *,
        segment_bytes: int,
        on_damage: Callable[[DamagedBatch], None],
        known: KnownEnd | None = None,
        reign: Reign = ALONE,
        is_absent: bool = False,
    ) -> None:
        """Looks at the log if there is one, without a change; `finish` opens it. With a `known` end there has to be.

        `is_absent`: the caller has seen that it has no directory.
        """
        size = min(segment_bytes, _SEGMENT_BYTES_MAX)
        self._on_damage, self._reign = on_damage, reign
        self._disk, self.directory, self._log_id = disk, directory, log_id
        # What is finished goes with a sweep of the node, never by age.
        self._config = LogConfig(
            segment_size_bytes=size, index_interval_bytes=min(4096, size), retention_hours=-1
        )
        self.log: Log | None = None
        self.recovery: Recovery | None = None
        # How many messages a segment held when it was last written anew, by its first offset.
        self.held: dict[int, int] = {}
        # Without a segment nothing was ever stored; what a crash left of a first attempt is taken up by the next one.
        names = [] if is_absent else disk.list(directory)
        self._examined: Examination | None = None
        if known is not None or any(base_offset_of(name) is not None for name in names):
            self._examine(may_create=False, known=known)

    def _examine(self, *, may_create: bool, known: KnownEnd | None = None) -> None:
        self._examined = examine(
            self._disk,
            self.directory,
            log_id=self._log_id,
            config=self._config,
            may_create=may_create,
            known=known,
            reign=self._reign,
        )
        self.log = self._examined.log
        self.log.on_damage = self._on_damage

    def finish(self) -> None:
        """Cut what a crash tore, if there is a log: from here on all of it is durable."""
        if self._examined is not None:
            _, self.recovery = self._examined.finish()
            self._examined = None

    def make(self) -> Log:
        """The log, its files durable; made if there was none."""
        if self.log is None:
            try:
                self._examine(may_create=True)
                self.finish()
            except PenstockError:
                # What is there of it is no log that may be used; the next try looks at its files.
                self.discard()
                self.log = self._examined = None
                raise
        assert self.log is not None
        return self.log

    @property
    def start_offset(self) -> int:
        return 0 if self.log is None else self.log.start_offset

    @property
    def end_offset(self) -> int:
        return 0 if self.log is None else self.log.end_offset

    @property
    def durable_end(self) -> int:
        return 0 if self.log is None else self.log.durable_end

    @property
    def committed_end(self) -> int:
        return 0 if self.log is None else self.log.committed_end

    @property
    def epoch(self) -> int:
        return 0 if self.log is None else self.log.epoch

    def begin_epoch(self) -> int:
        """The epoch that the next batch will be in. NoSpace: the node could not begin one."""
        log = self.make()
        return log.reign.epoch_for(log)

    @property
    def size(self) -> int:
        return 0 if self.log is None else self.log.size

    def epochs(self) -> list[DelayEpoch]:
        """From which id on it was written in which epoch, as far as it is kept."""
        if self.log is None:
            return []
        return [DelayEpoch(one.offset, one.epoch) for one in self.log.epochs]

    def forget_below(self, offset: int) -> None:
        """The log begins here now: what was known of segments before it is of no use."""
        self.held = {base: count for base, count in self.held.items() if base >= offset}

    def append(self, encoded: Encoded, *, now_ns: int) -> AppendResult:
        return self.make().append(encoded, now_ns=now_ns)

    def batches_from(self, offset: int) -> Iterator[tuple[Head, memoryview]]:
        offset = max(offset, self.start_offset)
        while self.log is not None and offset < self.log.end_offset:
            run = self.log.read(offset, bytes_max=_READ_BYTES)
            yield from batches_in(run.data, seed=self.log.seed)
            offset = run.next_offset

    def require(self, end: int, *, is_made: bool) -> None:
        """Raise DamagedFile if it `is_made` and not there, or ends before `end`.

        A snapshot rests on everything below `end`, which was durable before it was written.
        """
        if is_made and self.log is None:
            raise DamagedFile(self.directory, "the log is missing, and it was there before")
        if end > self.end_offset:
            reason = f"it ends at {self.end_offset}, and a snapshot knows it to {end}"
            raise DamagedFile(self.directory, reason)

    def begin_epoch_after(self, epoch: int) -> None:
        """A record speaks of ids beyond the end, as of this epoch: they must not be taken for those to come."""
        log = self.make()
        log.reign.found(Epoch(epoch))
        go_on(log, Epoch(max(epoch, log.epoch)))
        log.sync(with_checkpoint=True)

    def plan_sync(self) -> SyncPlan | None:
        return None if self.log is None else self.log.plan_sync()

    def plan_close(self) -> SyncPlan | None:
        return None if self.log is None else self.log.plan_close()

    def synced(self, plan: SyncPlan | None) -> None:
        if self.log is not None and plan is not None:
            self.log.synced(plan)

    def sync(self) -> None:
        if self.log is not None:
            self.log.sync()

    def discard(self) -> None:
        if self.log is not None:
            self.log.discard()
