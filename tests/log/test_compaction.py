"""Compaction against a naive one: what stays, and what the log looks like afterwards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import Compression, Marks, encode_messages
from penstock.config import LogConfig
from penstock.log import Log
from penstock.log.compaction import CompactionResult, Syncable, compact, compact_steps
from penstock.log.layout import TEMPORARY
from penstock.log.lookup import offset_at
from penstock.log.trim import truncate
from penstock.model import Epoch, Message, Offset
from penstock.sim import SimDisk
from penstock.sim.operations import Create

from .naive import (
    HOUR_NS,
    NOW_NS,
    SECOND_NS,
    batches,
    check_shape,
    keyed,
    messages,
    new_log,
    offsets,
    open_small,
    put,
)

GRACE_NS = 60 * SECOND_NS
CONFIG = LogConfig(
    segment_size_bytes=2000,
    index_interval_bytes=300,
    checkpoint_bytes=1 << 20,
    tombstone_grace_ms=GRACE_NS // 1_000_000,
    retention_hours=-1,
)
LATER_NS = NOW_NS + HOUR_NS
KEYS = st.one_of(
    st.sampled_from([None, b"", b"a", b"b"]), st.integers(0, 30).map(lambda number: b"%d" % number)
)
VALUES = st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=60, max_size=90))
MESSAGES = st.builds(Message, VALUES, KEYS, st.sampled_from([(), (("name", b"header"),)]))
BATCHES = st.lists(MESSAGES, min_size=1, max_size=8)
COMPRESSIONS = st.sampled_from([Compression.NONE, Compression.LZ4, Compression.ZSTD])


@dataclass(frozen=True, slots=True)
class Put:
    """A batch to append, and what comes after it."""

    messages: list[Message]
    compression: Compression
    seconds: int
    is_rolling: bool


PUTS = st.lists(
    st.builds(Put, BATCHES, COMPRESSIONS, st.integers(0, 10), st.booleans()), max_size=25
)


class Writer:
    """Appends, and keeps a list of it all."""

    def __init__(self, log: Log) -> None:
        self.log, self.now_ns = log, NOW_NS
        self.written: list[tuple[Message, int]] = []

    def put(self, one: Put) -> None:
        self.now_ns += one.seconds * SECOND_NS
        put(self.log, one.messages, now_ns=self.now_ns, compression=one.compression)
        self.written.extend((message, self.now_ns) for message in one.messages)
        if one.is_rolling:
            self.log.roll()

    def kept(self, *, end: int, grace_end_ns: int) -> list[int]:
        """The offsets that a compaction up to `end` leaves, one message at a time."""
        below = [(offset, *one) for offset, one in enumerate(self.written) if offset < end]
        last = {message.key: offset for offset, message, _ in below}
        kept = []
        for offset, message, append_time in below:
            is_old_tombstone = message.value is None and append_time <= grace_end_ns
            is_last = last[message.key] == offset and not is_old_tombstone
            if message.key is None or is_last:
                kept.append(offset)
        return kept + list(range(end, len(self.written)))

    def check(self, *, end: int, now_ns: int) -> None:
        found = messages(self.log)
        kept = self.kept(end=end, grace_end_ns=now_ns - GRACE_NS)
        assert [message.offset for message in found] == kept
        for message in found:
            written = self.written[message.offset][0]
            assert (message.key, message.value) == (written.key, written.value)
            assert tuple(message.headers) == tuple(written.headers)
        check_shape(self.log)


def run(
    steps: Iterator[int | Syncable], between: Callable[[], object] = lambda: None
) -> CompactionResult:
    """All steps, with something else to do after each."""
    while True:
        try:
            step = next(steps)
        except StopIteration as finished:
            compacted: CompactionResult = finished.value
            return compacted
        between()
        if not isinstance(step, int):
            step.sync()


def ready(log: Log) -> None:
    """Seal what is there and leave it behind a checkpoint."""
    log.roll()
    log.sync(with_checkpoint=True)


def three_segments(disk: SimDisk | None = None) -> Log:
    """Ten messages of a few keys in three segments, and an empty one that is active."""
    log = new_log(CONFIG, disk)
    put(log, keyed((b"a", b"1"), (b"b", b"1"), (None, b"1")))
    put(log, keyed((b"once", b"1")))
    log.roll()
    put(log, keyed((b"a", b"2"), (b"gone", b"1")))
    put(log, keyed((b"a", b"3")))
    log.roll()
    put(log, keyed((b"gone", None), (b"b", b"2"), (None, b"2")))
    ready(log)
    return log


KEPT = [2, 3, 6, 7, 8, 9]
KEPT_AFTER_GRACE = [2, 3, 6, 8, 9]


# What stays


@given(PUTS, st.integers(0, 400), st.sampled_from([1, 700, 1 << 20]))
def test_exactly_what_a_naive_compaction_keeps_is_left(puts, seconds, step_bytes):
    writer = Writer(new_log(CONFIG))
    for one in puts:
        writer.put(one)
    ready(writer.log)
    now_ns, end = NOW_NS + seconds * SECOND_NS, writer.log.end_offset
    steps = compact_steps(writer.log, now_ns=now_ns, step_bytes=step_bytes)
    assert run(steps).compacted_to == end
    writer.check(end=end, now_ns=now_ns)


@given(PUTS, PUTS, st.randoms(use_true_random=False))
def test_appends_and_syncs_between_the_steps_change_nothing(puts, later, chance):
    disk = SimDisk()
    writer = Writer(new_log(CONFIG, disk))
    for one in puts:
        writer.put(one)
    ready(writer.log)
    end, waiting = writer.log.end_offset, iter(later)

    def between() -> None:
        match chance.randint(0, 4):
            case 0:
                writer.log.sync(with_checkpoint=chance.random() < 0.5)
            case 1 if writer.log.end_offset:
                offset = chance.randint(0, writer.log.end_offset)
                writer.log.read(offset, bytes_max=chance.choice([1, 500, 5000]))
            case _:
                if (one := next(waiting, None)) is not None:
                    writer.put(one)

    run(compact_steps(writer.log, now_ns=LATER_NS, step_bytes=300), between)
    writer.check(end=end, now_ns=LATER_NS)
    writer.log.close()
    writer.log = open_small(disk, CONFIG)[0]
    writer.check(end=end, now_ns=LATER_NS)


@given(PUTS, st.integers(1, 10))
def test_many_runs_with_a_small_map_come_to_the_same_as_one(puts, keys_max):
    writer = Writer(new_log(CONFIG))
    for one in puts:
        writer.put(one)
    ready(writer.log)
    end, before = writer.log.end_offset, -1
    while writer.log.compacted_to > before:
        before = writer.log.compacted_to
        run(compact_steps(writer.log, now_ns=LATER_NS, keys_max=keys_max))
        check_shape(writer.log)
    assert before == end
    writer.check(end=end, now_ns=LATER_NS)


def test_a_second_run_finds_nothing_to_do():
    log = three_segments()
    first = compact(log, now_ns=NOW_NS)
    assert (first.segments_rewritten, first.messages_removed) == (2, 4)
    assert offsets(log) == KEPT
    size = log.size
    assert compact(log, now_ns=NOW_NS) == CompactionResult(0, 0, 0, log.end_offset)
    assert log.size == size


def test_the_bytes_freed_are_those_that_the_log_is_shorter():
    log = new_log(CONFIG)
    for number in range(50):
        put(log, keyed((b"k", b"%d" % number * 40)))
    ready(log)
    before = log.size
    compacted = compact(log, now_ns=NOW_NS)
    assert compacted.bytes_freed == before - log.size > 0
    assert compacted.messages_removed == 49


def test_a_tombstone_goes_when_its_grace_is_over_and_not_before():
    log = three_segments()
    compact(log, now_ns=NOW_NS + GRACE_NS - 1)
    assert offsets(log) == KEPT
    compact(log, now_ns=NOW_NS + GRACE_NS)
    assert offsets(log) == KEPT_AFTER_GRACE


def test_an_empty_key_is_a_key_and_a_null_key_is_none():
    log = new_log(CONFIG)
    put(log, keyed((b"", b"1"), (None, b"1"), (b"", b"2"), (None, None)))
    ready(log)
    compact(log, now_ns=LATER_NS)
    assert offsets(log) == [1, 2, 3]


def test_what_is_pinned_neither_goes_nor_displaces_anything():
    log = three_segments()
    assert compact(log, now_ns=LATER_NS, keep_from=Offset(7)).compacted_to == 7
    assert offsets(log) == [1, 2, 3, 5, 6, 7, 8, 9]


def test_a_run_that_may_not_go_as_far_as_the_last_one_takes_nothing_of_it_back():
    log = three_segments()
    compacted_to = compact(log, now_ns=LATER_NS).compacted_to
    assert compacted_to > 7
    assert compact(log, now_ns=LATER_NS, keep_from=Offset(7)).compacted_to == compacted_to


def test_control_batches_are_left_alone():
    log = new_log(CONFIG)
    for _ in range(2):
        encoded = encode_messages(keyed((b"k", b"v"), (b"k", None)), marks=Marks(control=True))
        log.append(encoded, now_ns=NOW_NS)
    ready(log)
    assert compact(log, now_ns=LATER_NS).messages_removed == 0


def test_after_truncation_below_the_mark_a_tombstone_still_waits_for_what_it_buries():
    log = three_segments()
    compact(log, now_ns=NOW_NS)
    truncate(log, 4)
    log.begin_epoch(Epoch(log.epoch + 1))
    put(log, keyed((b"x", b"1")))
    log.roll()
    put(log, keyed((b"x", None)))
    ready(log)
    compact(log, now_ns=LATER_NS)
    assert all(message.key != b"x" for message in messages(log))


# What it looks like afterwards


def test_stamps_marks_and_compression_stay():
    log = new_log(CONFIG)
    marks = Marks(producer_id=7, producer_epoch=3, first_sequence=40)
    for number in range(3):
        fresh = keyed((b"k", b"%d" % number * 50), (b"%d" % number, b"value" * 20))
        encoded = encode_messages(fresh, marks=marks, compression=Compression.ZSTD)
        log.append(encoded, now_ns=NOW_NS + number)
        log.begin_epoch(Epoch(log.epoch + 1))
    before = [head for head, _ in batches(log)]
    ready(log)
    assert compact(log, now_ns=NOW_NS).messages_removed == 2
    after = [head for head, _ in batches(log)]
    for field in ("base_offset", "last_offset", "epoch", "append_time", "marks", "compression"):
        assert [getattr(head, field) for head in after] == [getattr(head, field) for head in before]


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte():
    log = new_log(CONFIG)
    for key in (b"first", b"again", b"again", b"last"):
        put(log, keyed((key, b"value"), (None, b"value")))
    before = {head.base_offset: bytes(data) for head, data in batches(log)}
    ready(log)
    compact(log, now_ns=NOW_NS)
    after = {head.base_offset: bytes(data) for head, data in batches(log)}
    assert [base for base in before if after.get(base) == before[base]] == [0, 4, 6]


def test_a_segment_that_loses_nothing_is_not_written():
    disk = SimDisk()
    log = three_segments(disk)
    done = len(disk.operations)
    compact(log, now_ns=NOW_NS)
    created = [one.path for one in disk.operations[done:] if isinstance(one, Create)]
    rewritten = {path for path in created if path.endswith(".log" + TEMPORARY)}
    assert rewritten == {log.segments[0].path + TEMPORARY, log.segments[1].path + TEMPORARY}


def test_batches_that_keep_nothing_leave_no_bytes_behind_another_one():
    log = new_log(CONFIG)
    put(log, keyed((b"stays", b"1")))
    for _ in range(5):
        put(log, keyed((b"k", b"1")))
    log.roll()
    put(log, keyed((b"k", b"2")))
    ready(log)
    compact(log, now_ns=NOW_NS)
    ranges = [(head.base_offset, head.last_offset, head.message_count) for head, _ in batches(log)]
    assert ranges == [(0, 5, 1), (6, 6, 1)]


def test_a_segment_that_keeps_nothing_is_one_empty_batch():
    log = new_log(CONFIG)
    for _ in range(5):
        put(log, keyed((b"k", b"1")))
    log.roll()
    put(log, keyed((b"k", b"2")))
    ready(log)
    compact(log, now_ns=NOW_NS)
    ranges = [(head.base_offset, head.last_offset, head.message_count) for head, _ in batches(log)]
    assert ranges == [(0, 4, 0), (5, 5, 1)]
    assert offsets(log, 3) == [5]


def test_an_epoch_still_starts_where_it_did_when_its_first_messages_are_gone():
    log = new_log(CONFIG)
    put(log, keyed((b"stays", b"1")))
    log.begin_epoch(Epoch(7))
    put(log, keyed((b"k", b"1")))
    put(log, keyed((b"k", b"2")))
    ready(log)
    compact(log, now_ns=NOW_NS)
    check_shape(log)
    assert truncate(log, log.end_of_epoch(Epoch(6))) == 1
    assert offsets(log) == [0]


def test_epochs_are_found_again_by_a_full_scan():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for epoch in range(5, 9):
        log.begin_epoch(Epoch(epoch))
        put(log, keyed((b"k", b"1")))
    ready(log)
    compact(log, now_ns=LATER_NS)
    epochs = log.epochs[:]
    log.close()
    disk.remove("orders/messages/checkpoint")
    log, _ = open_small(disk, CONFIG)
    assert log.epochs[:-1] == epochs


def test_times_are_found_after_compaction():
    log = new_log(CONFIG)
    for number in range(30):
        put(log, keyed((b"k%d" % (number % 4), b"v" * 50)), now_ns=NOW_NS + number * SECOND_NS)
    ready(log)
    compact(log, now_ns=LATER_NS)
    for number in range(30):
        found = offset_at(log, NOW_NS + number * SECOND_NS)
        assert offsets(log, found) == [one for one in offsets(log) if one >= number]
