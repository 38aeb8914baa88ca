"""Everything that can be done to a log, in any order, against a list.

The list keeps every message that was appended. Compaction may take some of them, so a log is right if what it shows is
in the list, if what is missing had a good reason to go, and if every key still has its last value.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.codec import Compression, batches_in
from penstock.config import LogConfig
from penstock.errors import NoSpace
from penstock.log import SyncPlan
from penstock.log.compaction import CompactionResult, Syncable, compact, compact_steps
from penstock.log.layout import INDEX, TIME_INDEX
from penstock.log.lookup import offset_at
from penstock.log.trim import retain, truncate
from penstock.model import Epoch, Message, Offset
from penstock.sim import Model, SimDisk, power_cut
from penstock.sim.disk import UNLIMITED

from .naive import NOW_NS, SECOND_NS, batches, check_shape, messages_in, open_small, put

# Few that come again and again, and many that come once or twice.
KEYS = st.one_of(
    st.sampled_from([None, b"", b"a", b"b"]), st.integers(0, 30).map(lambda number: b"%d" % number)
)
VALUES = st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=60, max_size=90))
BATCHES = st.lists(st.builds(Message, VALUES, KEYS), min_size=1, max_size=6)
GRACE_NS = 30 * SECOND_NS
CONFIGS = st.builds(
    LogConfig,
    segment_size_bytes=st.sampled_from([300, 1500, 4000]),
    segment_age_ms=st.sampled_from([-1, 20_000]),
    segment_messages_max=st.sampled_from([-1, 7]),
    index_interval_bytes=st.sampled_from([1, 200, 300]),
    checkpoint_bytes=st.sampled_from([1, 600, 100_000]),
    retention_hours=st.sampled_from([-1, 0.01]),
    retention_bytes=st.sampled_from([-1, 900]),
    retention_segments=st.sampled_from([-1, 3]),
    retention_segments_min=st.sampled_from([1, 2]),
    tombstone_grace_ms=st.just(GRACE_NS // 1_000_000),
)


@dataclass(frozen=True, slots=True)
class Written:
    """A message of the list."""

    message: Message
    append_time: int


class LogMachine(RuleBasedStateMachine):
    @initialize(config=CONFIGS)
    def create(self, config: LogConfig) -> None:
        self.config, self.disk = config, SimDisk()
        self.now_ns, self.append_time = NOW_NS, 0
        self.log = open_small(self.disk, config)[0]
        self.written: dict[int, Written] = {}
        self.uses: set[tuple[int, int]] = set()
        self.start = self.end = self.cursor = 0
        self.tombstones_gone_ns = 0
        self.is_compacted = False
        self.is_epoch_durable = True
        self.is_to_be_judged = False
        self.plan: SyncPlan | None = None
        self.compaction: Iterator[int | Syncable] | None = None

    # Writing

    @rule(
        batches=st.lists(BATCHES, min_size=1, max_size=5),
        seconds=st.integers(-5, 15),
        compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    )
    def append(self, batches: list[list[Message]], seconds: int, compression: Compression) -> None:
        for messages in batches:
            self.now_ns += seconds * SECOND_NS
            self.append_one(messages, compression)

    @rule(batches=st.lists(BATCHES, min_size=6, max_size=12))
    def append_many(self, batches: list[list[Message]]) -> None:
        self.append(batches, 0, Compression.NONE)

    def append_one(self, messages: list[Message], compression: Compression) -> None:
        with self.full_disk_allowed() as outcome:
            appended = put(self.log, messages, now_ns=self.now_ns, compression=compression)
        if outcome.is_refused:
            return
        assert appended.base_offset == self.end
        self.append_time = max(self.append_time, self.now_ns)
        assert appended.append_time == self.append_time
        for offset, message in enumerate(messages, self.end):
            self.written[offset] = Written(message, self.append_time)
            assert (self.log.epoch, offset) not in self.uses, "an offset comes again in its epoch"
            self.uses.add((self.log.epoch, offset))
        self.end = appended.next_offset

    @rule()
    def roll(self) -> None:
        with self.full_disk_allowed():
            self.log.roll()

    @rule(with_checkpoint=st.booleans())
    @precondition(lambda self: self.plan is None)
    def sync(self, with_checkpoint: bool) -> None:
        self.log.sync(with_checkpoint=with_checkpoint)
        self.note_sync()
        assert self.log.durable_end == self.end

    @rule(with_checkpoint=st.booleans())
    @precondition(lambda self: self.plan is None)
    def start_sync(self, with_checkpoint: bool) -> None:
        self.plan = self.log.plan_sync(with_checkpoint=with_checkpoint)

    @rule()
    @precondition(lambda self: self.plan is not None)
    def finish_sync(self) -> None:
        assert self.plan is not None
        self.plan.run()
        self.log.synced(self.plan)
        self.note_sync()
        assert self.log.durable_end >= self.plan.up_to
        self.plan = None

    @rule(step=st.integers(1, 3))
    def begin_epoch(self, step: int) -> None:
        self.log.begin_epoch(Epoch(self.log.epoch + step))
        self.is_epoch_durable = False

    def note_sync(self) -> None:
        """An epoch without a sync may come again after a power cut: no client was told that it is durable."""
        saved, changes = self.log._checkpoint_changes_saved, self.log._checkpoint_changes
        self.is_epoch_durable = saved == changes

    @rule(spare_bytes=st.sampled_from([0, 50, 500]))
    def fill_disk(self, spare_bytes: int) -> None:
        used = sum(map(len, self.disk.tree().files.values()))
        self.disk.capacity_bytes = used + spare_bytes

    @rule()
    def free_disk(self) -> None:
        self.disk.capacity_bytes = UNLIMITED

    # Reading

    @rule(place=st.floats(0, 1), bytes_max=st.sampled_from([1, 150, 400, 10_000]))
    def read(self, place: float, bytes_max: int) -> None:
        self.cursor = self.offset_in(place)
        self.read_on(bytes_max)

    @rule(bytes_max=st.sampled_from([1, 150, 400, 10_000]))
    def read_on(self, bytes_max: int) -> None:
        """A reader that goes on from where its last run ended."""
        if not self.start <= self.cursor <= self.end:
            self.cursor = self.start
        run = self.log.read(self.cursor, bytes_max=bytes_max)
        assert run.base_offset <= self.cursor <= run.next_offset
        assert (run.next_offset > self.cursor) == (self.cursor < self.end)
        found = list(batches_in(run.data, seed=self.log.seed))
        assert len(run.data) <= bytes_max or len(found) == 1
        for message in messages_in(found):
            assert self.written[message.offset].message.value == message.value
        if not self.is_compacted:
            held = sum(head.message_count for head, _ in found)
            assert held == run.next_offset - run.base_offset
        self.cursor = run.next_offset

    @rule(seconds=st.integers(-10, 200))
    def seek_by_time(self, seconds: int) -> None:
        time_ns = NOW_NS + seconds * SECOND_NS
        found = offset_at(self.log, time_ns)
        for offset, one in self.shown().items():
            assert (offset >= found) == (one.append_time >= time_ns), f"{found} for {offset}"
        if not self.is_compacted:
            late = (offset for offset, one in self.written.items() if one.append_time >= time_ns)
            assert found == min(late, default=self.end)

    # Taking away

    @rule(place=st.floats(0, 1))
    @precondition(lambda self: self.plan is None)
    def truncate(self, place: float) -> None:
        offset = self.offset_in(place)
        expected = (
            self.end if offset == self.end else self.log.read(offset, bytes_max=1).base_offset
        )
        self.cut_to(expected, lambda: truncate(self.log, offset))

    @rule(epochs_back=st.integers(0, 3))
    @precondition(lambda self: self.plan is None)
    def truncate_after_epoch(self, epochs_back: int) -> None:
        epoch = Epoch(max(0, self.log.epoch - epochs_back))
        later = (one.offset for one in self.log.epochs if one.epoch > epoch)
        expected = max(self.start, next(later, self.end))
        self.cut_to(expected, lambda: truncate(self.log, self.log.end_of_epoch(epoch)))

    def cut_to(self, expected: int, cut: Callable[[], Offset]) -> None:
        # A message that gave way to one that is now cut does not come back.
        self.written = self.shown()
        self.is_to_be_judged = True
        epoch, was_end = self.log.epoch, self.end
        with self.full_disk_allowed() as outcome:
            assert cut() == expected
        if outcome.is_refused:
            return
        self.end = expected
        if expected < was_end:
            self.begin_epoch(epoch + 1 - self.log.epoch)
            self.written = {at: one for at, one in self.written.items() if at < expected}
            # Another writer won, and epochs are what it says.
            self.forget_uses()

    def forget_uses(self) -> None:
        self.uses = {(epoch, offset) for epoch, offset in self.uses if offset < self.end}

    @rule(place=st.floats(0, 1), seconds=st.integers(0, 100))
    @precondition(lambda self: self.plan is None)
    def retain(self, place: float, seconds: int) -> None:
        keep_from = self.offset_in(place)
        bases = {segment.base_offset for segment in self.log.segments} | {self.end}
        with self.full_disk_allowed() as outcome:
            now_ns = self.now_ns + seconds * SECOND_NS
            retained = retain(self.log, now_ns=now_ns, keep_from=Offset(keep_from))
        if outcome.is_refused:
            return
        assert retained.start_offset in bases
        assert retained.start_offset <= max(keep_from, self.start)
        assert (retained.start_offset > self.start) == (retained.segments_removed > 0)
        self.start = retained.start_offset
        self.written = {at: one for at, one in self.written.items() if at >= self.start}
        self.is_to_be_judged = True

    # Compacting

    @rule(seconds=st.integers(0, 60))
    @precondition(lambda self: self.plan is None and self.compaction is None)
    def compact(self, seconds: int) -> None:
        now_ns = self.now_ns + seconds * SECOND_NS
        self.note_compaction(now_ns)
        with self.full_disk_allowed():
            self.check_compacted(compact(self.log, now_ns=now_ns))
            assert self.log.durable_end == self.end

    @rule(keys_max=st.sampled_from([1, 3, 100]), step_bytes=st.sampled_from([1, 300]))
    @precondition(lambda self: self.plan is None and self.compaction is None)
    def start_compacting(self, keys_max: int, step_bytes: int) -> None:
        self.sync(True)
        self.note_compaction(self.now_ns)
        self.compaction = compact_steps(
            self.log, now_ns=self.now_ns, keys_max=keys_max, step_bytes=step_bytes
        )

    @rule(steps=st.sampled_from([1, 4, 20, 60]))
    @precondition(lambda self: self.compaction is not None)
    def go_on_compacting(self, steps: int) -> None:
        assert self.compaction is not None
        with self.full_disk_allowed() as outcome:
            for _ in range(steps):
                try:
                    step = next(self.compaction)
                except StopIteration as finished:
                    self.check_compacted(finished.value)
                    self.compaction = None
                    self.is_to_be_judged = True
                    return
                if not isinstance(step, int):
                    step.sync()
        if outcome.is_refused:
            self.compaction = None
            self.is_to_be_judged = True

    def note_compaction(self, now_ns: int) -> None:
        self.is_compacted = True
        self.tombstones_gone_ns = max(self.tombstones_gone_ns, now_ns - GRACE_NS)

    def check_compacted(self, compacted: CompactionResult) -> None:
        keys = [
            one.message.key
            for offset, one in self.shown().items()
            if offset < compacted.compacted_to and one.message.key is not None
        ]
        assert len(keys) == len(set(keys)), "a key is there once below the mark"

    # Stopping

    @rule()
    def close_and_open(self) -> None:
        self.finish_others()
        self.disk.capacity_bytes = UNLIMITED
        epoch = self.log.epoch
        self.log.close()
        self.log, recovery = open_small(self.disk, self.config)
        assert recovery.is_clean
        assert self.log.epoch == epoch
        self.is_to_be_judged = True
        self.is_epoch_durable = False

    @rule(seed=st.integers(0, 1000), model=st.sampled_from(Model))
    def pull_the_plug(self, seed: int, model: Model) -> None:
        self.plan = self.compaction = None
        was_end, promised, epoch = self.end, self.log.durable_end, self.log.epoch
        self.disk = power_cut(self.disk, model, entropy=random.Random(seed))
        self.log, _ = open_small(self.disk, self.config)
        self.end = self.log.end_offset
        assert promised <= self.end <= was_end
        assert self.log.epoch > epoch or self.end == was_end or not self.is_epoch_durable
        if not self.is_epoch_durable:
            self.forget_uses()
        self.append_time = self.log.append_time
        self.is_to_be_judged = True
        self.note_sync()
        self.written = {at: one for at, one in self.written.items() if at < self.end}

    @rule()
    def kill(self) -> None:
        """The process goes, the system stays: nothing that was written is lost."""
        self.plan = self.compaction = None
        self.disk = SimDisk(self.disk.tree())
        self.log, _ = open_small(self.disk, self.config)
        self.note_sync()

    # Breaking what may break

    @rule(place=st.floats(0, 1), how=st.integers(0, 4), which=st.sampled_from([INDEX, TIME_INDEX]))
    def spoil_index(self, place: float, how: int, which: str) -> None:
        segments = self.log.segments
        segment = segments[int(place * (len(segments) - 1))]
        other = segments[0]
        path = segment.path_of(which)
        if not self.disk.exists(path):
            return
        content = bytearray(self.disk.tree().files[path])
        if how == 0:
            self.disk.remove(path)
        else:
            if how == 1 and content:
                content[int(place * (len(content) - 1))] ^= 4
            elif how == 2:
                del content[len(content) // 2 :]
            elif how == 3 and self.disk.exists(other.path_of(which)):
                content = bytearray(self.disk.tree().files[other.path_of(which)])
            elif how == 4:
                content += bytes(8)
            self.disk.capacity_bytes = UNLIMITED
            file = self.disk.create(path)
            file.append(content)
            file.close()
        segment.loaded = None

    # Judging

    @invariant()
    def is_right(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            if self.is_to_be_judged:
                self.judge()

    @rule()
    def judge(self) -> None:
        """Read everything; not after every step, because a reader in between would lose its place in the log."""
        self.is_to_be_judged = False
        check_shape(self.log)
        self.shown()

    def shown(self) -> dict[int, Written]:
        """What the log shows, judged by the list."""
        shown, expected = {}, self.written
        for head, data in batches(self.log):
            for message in messages_in([(head, data)]):
                one = expected[message.offset]
                assert (message.key, message.value) == (one.message.key, one.message.value)
                assert head.append_time <= one.append_time
                shown[message.offset] = one
        last_of = {one.message.key: at for at, one in expected.items()}
        for offset in expected.keys() - shown.keys():
            one = expected[offset]
            assert self.is_compacted, f"{offset} is gone"
            assert one.message.key is not None, f"{offset} is gone"
            is_superseded = last_of[one.message.key] > offset
            is_old = one.append_time <= self.tombstones_gone_ns
            assert is_superseded or (one.message.value is None and is_old), f"{offset} is gone"
        assert view(shown) == view(expected), "every key has its last value"
        return shown

    def offset_in(self, place: float) -> int:
        return self.start + int(place * (self.end - self.start))

    @contextmanager
    def full_disk_allowed(self) -> Iterator["Outcome"]:
        outcome = Outcome()
        try:
            yield outcome
        except NoSpace:
            assert self.disk.capacity_bytes != UNLIMITED
            outcome.is_refused = True

    def finish_others(self) -> None:
        if self.plan is not None:
            self.finish_sync()
        self.compaction = None


@dataclass(slots=True)
class Outcome:
    is_refused: bool = False


def view(shown: dict[int, Written]) -> dict[bytes, bytes]:
    """The table that the messages with keys describe."""
    last = {one.message.key: one.message.value for _, one in sorted(shown.items())}
    return {key: value for key, value in last.items() if key is not None and value is not None}


def test_a_log_does_what_a_list_would(effort):
    examples = effort(check=25, test=50, torture=5000)
    steps = effort(check=40, test=60, torture=100)
    run_state_machine_as_test(
        LogMachine, settings=settings(max_examples=examples, stateful_step_count=steps)
    )
