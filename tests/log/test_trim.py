"""Cutting a log at its end and at its front."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import LogConfig
from penstock.errors import NoSpace, OffsetOutOfRange
from penstock.log import Log
from penstock.log.layout import JOURNEY_INDEX, segment_path
from penstock.log.lookup import offset_at
from penstock.log.trim import (
    SegmentAge,
    expired,
    release,
    retain,
    truncate,
)
from penstock.model import Epoch, Offset
from penstock.sim import (
    Call,
    CrashKind,
    CrashStates,
    Fault,
    Misbehaviour,
    Model,
    SimDisk,
    check_crashes,
)

from .naive import (
    HOUR_NS,
    NOW_NS,
    SECOND_NS,
    check_shape,
    new_log,
    offsets,
    open_small,
    put,
    values,
)

NOBODY = Offset(1 << 62)
QUICK_KINDS = (CrashKind.ALL, CrashKind.DURABLE, CrashKind.DROP_ONE, CrashKind.SUBSETS)
OFF = {"segment_age_ms": -1, "retention_hours": -1}


def segments_of_ten(count: int, config: LogConfig, disk: SimDisk | None = None) -> Log:
    """Sealed segments of ten messages, an hour apart, and one message in the active one."""
    log = new_log(config, disk)
    for number in range(count):
        for _ in range(2):
            put(log, 5, now_ns=NOW_NS + number * HOUR_NS)
        log.roll()
    put(log, 1, now_ns=NOW_NS + count * HOUR_NS)
    log.sync(with_checkpoint=True)
    return log


def retain_one(log: Log) -> None:
    retain(log, now_ns=NOW_NS, keep_from=NOBODY)


def release_two(log: Log) -> None:
    release(log, below=Offset(20))


def begin_next_epoch(log: Log) -> None:
    log.begin_epoch(Epoch(log.epoch + 1))


# From the end


@pytest.mark.parametrize(
    ("offset", "end"), [(0, 0), (4, 0), (5, 5), (10, 10), (17, 15), (29, 25), (30, 30), (31, 31)]
)
def test_truncation_takes_the_batch_that_holds_the_offset_and_all_that_follow(offset, end):
    disk = SimDisk()
    log = segments_of_ten(3, LogConfig(**OFF), disk)
    assert truncate(log, offset) == end == log.end_offset == log.durable_end
    for _ in range(2):
        assert offsets(log) == list(range(end))
        check_shape(log)
        begin_next_epoch(log)
        assert put(log, 3).base_offset == end
        truncate(log, end)
        log.close()
        log, _ = open_small(disk, LogConfig(**OFF))


def test_truncation_takes_the_index_of_the_history_that_knows_what_is_cut():
    disk = SimDisk()
    log = segments_of_ten(3, LogConfig(**OFF), disk)
    paths = [segment_path(log.directory, one.base_offset, JOURNEY_INDEX) for one in log.segments]
    for path in paths:
        disk.create(path).close()
    disk.sync_directory(log.directory)
    truncate(log, 17)
    assert [disk.exists(path) for path in paths] == [True, False, False, False]


def test_the_index_of_a_history_that_was_cut_stays_away_after_a_power_cut():
    """It would be believed again once the log is as long as it was."""

    def scenario(disk: SimDisk) -> None:
        log = segments_of_ten(1, LogConfig(**OFF), disk)
        put(log, 1)
        path = segment_path(log.directory, Offset(10), JOURNEY_INDEX)
        disk.create(path).close()
        disk.sync_directory(log.directory)
        truncate(log, 11)
        disk.mark(path)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        assert not any(disk.exists(str(gone)) for gone in marks)

    check_crashes(scenario, check, entropy=random.Random(1))


@pytest.mark.parametrize("offset", [-1, 9, 32])
def test_truncation_outside_the_log_is_refused(offset):
    log = segments_of_ten(3, LogConfig(**OFF))
    release(log, below=Offset(10))
    with pytest.raises(OffsetOutOfRange):
        truncate(log, offset)


def test_by_epoch_everything_of_later_epochs_goes():
    log = new_log()
    for epoch in (3, 5, 8):
        log.begin_epoch(Epoch(epoch))
        put(log, 4)
    assert truncate(log, log.end_of_epoch(Epoch(9))) == 12
    assert truncate(log, log.end_of_epoch(Epoch(7))) == 8
    assert log.epoch == 5
    assert truncate(log, log.end_of_epoch(Epoch(2))) == 0


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 40), st.booleans())
def test_what_comes_after_a_truncation_is_found_by_offset_and_time(before, kept, after, is_saved):
    """The index on the disk still speaks of what was there before, at the very same positions."""
    config = LogConfig(index_interval_bytes=1, segment_age_ms=-1)
    disk = SimDisk()
    log = new_log(config, disk)
    for number in range(before):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)
    log.sync(with_checkpoint=is_saved)
    end = truncate(log, min(kept, before))
    begin_next_epoch(log)
    start_ns = NOW_NS + 100 * SECOND_NS
    for number in range(after):
        put(log, 1, now_ns=start_ns + number * SECOND_NS)
    log.segments[-1].loaded = None
    for number in range(after):
        assert offset_at(log, start_ns + number * SECOND_NS) == end + number
        assert log.read(end + number, bytes_max=1).base_offset == end + number
    check_shape(open_small(SimDisk(disk.tree()), config)[0])


def test_truncation_on_a_full_disk_does_nothing():
    disk = SimDisk()
    log = segments_of_ten(3, LogConfig(**OFF), disk)
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="checkpoint"))
    with pytest.raises(NoSpace):
        truncate(log, 12)
    assert offsets(log) == list(range(31))
    assert truncate(log, 12) == 10


def test_a_power_cut_during_truncation_leaves_a_whole_log_that_is_not_shorter(tier, effort):
    before = SimDisk()
    segments_of_ten(3, LogConfig(**OFF), before).close()

    def scenario(disk: SimDisk) -> None:
        log, _ = open_small(disk, LogConfig(**OFF))
        truncate(log, 12)
        disk.mark("truncated")
        begin_next_epoch(log)
        put(log, 7)
        log.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        log, _ = open_small(disk, LogConfig(**OFF))
        check_shape(log)
        assert values(log)[:10] == [b"%d" % number for number in range(10)]
        assert log.end_offset in ({10, 17} if marks else {10, 15, 20, 25, 30, 31})

    check_crashes(
        scenario,
        check,
        entropy=random.Random(3),
        kinds=QUICK_KINDS if tier == "check" else tuple(CrashKind),
        subsets=effort(check=1, test=10, torture=100),
        start=before.tree(),
    )


# From the front

TEN = [SegmentAge((number + 1) * 10, 100, NOW_NS + number * HOUR_NS) for number in range(10)]
TEN_HOURS_LATER = NOW_NS + 10 * HOUR_NS


@pytest.mark.parametrize(
    ("config", "keep_from", "count"),
    [
        ({"retention_hours": 100}, NOBODY, 0),
        ({"retention_hours": 5}, NOBODY, 5),
        ({"retention_hours": 4.5}, NOBODY, 6),
        ({"retention_hours": 0.5}, NOBODY, 10),
        ({"retention_hours": 5}, 39, 3),
        ({"retention_hours": 5}, 40, 4),
        ({"retention_hours": 0.5, "retention_segments_min": 4}, NOBODY, 7),
        ({"retention_hours": 0.5, "retention_segments_min": 20}, NOBODY, 0),
        ({"retention_hours": -1, "retention_bytes": 450}, NOBODY, 6),
        ({"retention_hours": -1, "retention_bytes": 451}, NOBODY, 5),
        ({"retention_hours": -1, "retention_bytes": 50}, NOBODY, 10),
        ({"retention_hours": -1, "retention_bytes": 51}, NOBODY, 9),
        ({"retention_hours": -1, "retention_bytes": 50}, 25, 2),
        ({"retention_hours": -1, "retention_segments": 11}, NOBODY, 0),
        ({"retention_hours": -1, "retention_segments": 3}, NOBODY, 8),
        ({"retention_hours": -1, "retention_segments": 1}, NOBODY, 10),
        ({"retention_hours": 9, "retention_segments": 6, "retention_bytes": 700}, NOBODY, 5),
        ({"retention_hours": -1}, NOBODY, 0),
    ],
)
def test_which_of_ten_segments_and_an_active_one_of_fifty_bytes_go(config, keep_from, count):
    found = expired(TEN, LogConfig(**config), 50, now_ns=TEN_HOURS_LATER, keep_from=keep_from)
    assert found == count


def test_an_old_segment_behind_a_young_one_waits():
    facts = [SegmentAge(10, 100, TEN_HOURS_LATER), *TEN[1:]]
    config = LogConfig(retention_hours=1)
    assert expired(facts, config, 0, now_ns=TEN_HOURS_LATER, keep_from=NOBODY) == 0


def test_retention_moves_the_start_and_removes_the_files():
    disk = SimDisk()
    config = LogConfig(retention_hours=2.5, segment_age_ms=-1)
    log = segments_of_ten(5, config, disk)
    size = log.size
    retained = retain(log, now_ns=NOW_NS + 5 * HOUR_NS, keep_from=NOBODY)
    assert retained == (3, size - log.size, 30)
    assert offsets(log) == list(range(30, 51))
    names = {name[:20] for name in disk.list("orders/messages") if name.startswith("0")}
    assert names == {f"{base:020}" for base in (30, 40, 50)}
    with pytest.raises(OffsetOutOfRange):
        log.read(29, bytes_max=1)
    log.close()
    log, recovery = open_small(disk, config)
    assert recovery.is_clean
    assert log.start_offset == 30


def test_an_idle_log_is_rolled_so_that_its_last_messages_expire_too():
    config = LogConfig(retention_hours=1, segment_age_ms=-1)
    log = segments_of_ten(2, config)
    now_ns = NOW_NS + 10 * HOUR_NS
    assert retain(log, now_ns=now_ns, keep_from=Offset(20)).start_offset == 20
    size = log.size
    assert retain(log, now_ns=now_ns, keep_from=NOBODY) == (1, size, 21)
    assert retain(log, now_ns=now_ns, keep_from=NOBODY).segments_removed == 0
    assert log.end_offset == 21
    assert put(log, 1).base_offset == 21


def test_a_held_idle_log_is_not_rolled():
    log = segments_of_ten(2, LogConfig(retention_hours=1, segment_age_ms=-1))
    retain(log, now_ns=NOW_NS + 10 * HOUR_NS, keep_from=Offset(20))
    assert len(log.segments) == 1


def test_on_a_full_disk_an_idle_log_still_loses_what_needs_no_new_file():
    disk = SimDisk()
    log = segments_of_ten(2, LogConfig(retention_hours=1, segment_age_ms=-1), disk)
    disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=".log"))
    assert retain(log, now_ns=NOW_NS + 10 * HOUR_NS, keep_from=NOBODY).start_offset == 20


def test_retention_without_room_for_a_checkpoint_does_nothing():
    disk = SimDisk()
    log = segments_of_ten(3, LogConfig(retention_segments=1, **OFF), disk)
    fault = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="checkpoint", times=2)
    disk.inject(fault)
    with pytest.raises(NoSpace):
        retain(log, now_ns=NOW_NS, keep_from=NOBODY)
    assert offsets(log) == list(range(31))
    disk.faults.clear()
    assert retain(log, now_ns=NOW_NS, keep_from=NOBODY).start_offset == 30


@pytest.mark.parametrize("drop", [retain_one, release_two], ids=["retain", "release"])
def test_a_power_cut_after_the_front_went_leaves_a_log_that_opens(drop):
    """What was appended and not synced may be gone then, but nothing may vouch for it."""
    disk = SimDisk()
    config = LogConfig(retention_segments=1, **OFF)
    log = segments_of_ten(2, config, disk)
    put(log, 5)
    drop(log)
    assert log.start_offset == 20
    states = CrashStates(disk, Model.STRICT, entropy=random.Random(1), kinds=QUICK_KINDS)
    opened = [open_small(state.disk(), config)[0] for state in states]
    assert {one.start_offset for one in opened} >= {0, 20}
    for one in opened:
        check_shape(one)


def test_epochs_of_what_is_gone_go_but_the_one_that_reigns_at_the_start():
    log = new_log(LogConfig(**OFF))
    for epoch in (3, 5, 8):
        log.begin_epoch(Epoch(epoch))
        put(log, 4)
        put(log, 4)
        log.roll()
    release(log, below=Offset(16))
    assert log.epochs == [(8, 16)]
    release(log, below=Offset(24))
    assert log.epochs == [(8, 24)]


def test_a_restart_finishes_an_interrupted_retention():
    disk = SimDisk()
    log = segments_of_ten(3, LogConfig(**OFF), disk)
    disk.inject(Fault(call=Call.REMOVE, does=Misbehaviour.DISK_FAILED, nth=2))
    with pytest.raises(Exception, match="injected"):
        release(log, below=Offset(20))
    again = SimDisk(disk.tree())
    log, _ = open_small(again, LogConfig(**OFF))
    assert offsets(log) == list(range(20, 31))
    assert {name[:20] for name in again.list("orders/messages")[:-2]} == {f"{20:020}", f"{30:020}"}


def test_what_was_compacted_and_dropped_counts_as_compacted():
    log = segments_of_ten(3, LogConfig(**OFF))
    release(log, below=Offset(20))
    assert log.compacted_to == 20
