"""Compaction while others go on, on a full disk, over damage, and with the power cut."""

import random
from contextlib import suppress

import pytest

from penstock.config import LogConfig
from penstock.errors import DamagedBatch, NoSpace, TooLarge
from penstock.log import Log
from penstock.log import compaction as compaction_module
from penstock.log.compaction import compact, compact_steps
from penstock.log.layout import TEMPORARY
from penstock.log.trim import retain, truncate
from penstock.sim import Call, CrashKind, Fault, Misbehaviour, SimDisk, Tree, check_crashes
from penstock.sim.operations import Sync, SyncDirectory

from .naive import NOW_NS, check_shape, keyed, messages, new_log, offsets, open_small, put, values
from .test_compaction import (
    CONFIG,
    KEPT_AFTER_GRACE,
    LATER_NS,
    ready,
    run,
    three_segments,
)

QUICK_KINDS = (CrashKind.ALL, CrashKind.DURABLE, CrashKind.DROP_ONE, CrashKind.SUBSETS)


def test_a_reader_in_the_middle_of_a_segment_goes_on_when_it_is_replaced():
    log = new_log(CONFIG)
    for number in range(9):
        put(log, keyed((b"k" if number < 4 else b"%d" % number, b"v" * 40)))
    ready(log)
    cursor = log.read(0, bytes_max=1).next_offset
    compact(log, now_ns=NOW_NS)
    run_after = log.read(cursor, bytes_max=1)
    assert run_after.base_offset <= cursor < run_after.next_offset
    assert offsets(log, cursor) == [3, 4, 5, 6, 7, 8]


def test_no_step_syncs_by_itself():
    disk = SimDisk()
    log = three_segments(disk)
    syncs: list[object] = []
    steps = compact_steps(log, now_ns=LATER_NS, step_bytes=1)
    with suppress(StopIteration):
        while True:
            done = len(disk.operations)
            step = next(steps)
            syncs += [
                one for one in disk.operations[done:] if isinstance(one, Sync | SyncDirectory)
            ]
            if not isinstance(step, int):
                step.sync()
    assert syncs == []


def test_a_step_is_not_much_longer_than_its_budget():
    log = new_log(LogConfig(segment_size_bytes=200_000))
    for number in range(200):
        put(log, keyed((b"%d" % (number % 50), b"v" * 1000), (b"once-%d" % number, b"v" * 1000)))
    ready(log)
    steps = [
        one for one in compact_steps(log, now_ns=NOW_NS, step_bytes=5000) if isinstance(one, int)
    ]
    assert max(steps) < 5000 + 3000
    assert sum(steps) > 2 * 400_000 * 0.9


def test_segments_that_the_checkpoint_still_speaks_of_are_left_alone():
    """A restart would go on reading the new file at a position of the old one."""
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for number in range(6):
        put(log, keyed((b"k", b"%d" % number * 30)))
        if number == 4:
            log.sync(with_checkpoint=True)
    log.roll()
    log.sync()
    assert run(compact_steps(log, now_ns=LATER_NS)).segments_rewritten == 0
    again, _ = open_small(SimDisk(disk.tree()), CONFIG)
    assert offsets(again) == list(range(6))
    log.sync(with_checkpoint=True)
    assert run(compact_steps(log, now_ns=LATER_NS)).segments_rewritten == 1


def test_only_one_runs_at_a_time_and_a_closed_one_leaves_nothing():
    disk = SimDisk()
    log = three_segments(disk)
    steps = compact_steps(log, now_ns=NOW_NS, step_bytes=1)
    while isinstance(next(steps), int):
        pass
    assert any(path.endswith(TEMPORARY) for path in disk.tree().files)
    with pytest.raises(AssertionError):
        next(compact_steps(log, now_ns=NOW_NS))
    steps.close()
    assert not any(path.endswith(TEMPORARY) for path in disk.tree().files)
    assert compact(log, now_ns=NOW_NS).messages_removed == 4


@pytest.mark.parametrize("what", ["retain", "truncate", "close"])
def test_a_run_whose_segments_are_taken_away_stops(what):
    for step in range(200):
        disk = SimDisk()
        log = three_segments(disk)
        put(log, 1)
        steps, done = compact_steps(log, now_ns=NOW_NS, step_bytes=1), 0

        def between(log: Log = log, at: int = step) -> None:
            nonlocal done
            done += 1
            if done - 1 == at:
                _take_away(log, what)

        compacted = run(steps, between)
        if done <= step:
            break
        assert compacted.compacted_to < 10
        assert not any(path.endswith(TEMPORARY) for path in disk.tree().files)
        if what != "close":
            check_shape(log)
            log.close()
        check_shape(open_small(disk, CONFIG)[0])
    assert step > 10


def _take_away(log: Log, what: str) -> None:
    if what == "retain":
        by_count = LogConfig(retention_segments=2, retention_hours=-1)
        log.config = by_count
        assert retain(log, now_ns=NOW_NS, keep_from=log.end_offset).segments_removed
        log.config = CONFIG
    elif what == "truncate":
        truncate(log, 5)
    else:
        log.close()


@pytest.mark.parametrize("call", [Call.CREATE, Call.APPEND, Call.RENAME])
def test_on_a_full_disk_every_segment_is_the_old_one_or_the_new_one(call):
    for nth in range(1, 100):
        disk = SimDisk()
        log = three_segments(disk)
        steps = compact_steps(log, now_ns=LATER_NS)
        disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth, path_part=".log"))
        try:
            run(steps)
        except NoSpace:
            pass
        else:
            break
        assert not any(path.endswith(TEMPORARY) for path in disk.tree().files)
        assert log.compacted_to == 0
        assert set(KEPT_AFTER_GRACE) <= set(offsets(log))
        check_shape(log)
        compact(log, now_ns=LATER_NS)
        assert offsets(log) == KEPT_AFTER_GRACE
    assert nth > 2


def test_without_room_for_an_index_it_goes_on():
    disk = SimDisk()
    log = three_segments(disk)
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="index", times=99))
    assert compact(log, now_ns=LATER_NS).segments_rewritten == 3
    assert offsets(log) == KEPT_AFTER_GRACE


@pytest.mark.parametrize("part", ["head", "body"])
def test_damage_is_reported_and_nothing_is_rewritten_around_it(part):
    disk = SimDisk()
    log = three_segments(disk)
    log.close()
    tree = disk.tree()
    path = "orders/messages/00000000000000000004.log"
    content = bytearray(tree.files[path])
    content[20 if part == "head" else 120] ^= 1
    disk = SimDisk(Tree({**tree.files, path: bytes(content)}, tree.directories))
    log, _ = open_small(disk, CONFIG)
    with pytest.raises(DamagedBatch) as raised:
        compact(log, now_ns=LATER_NS)
    assert (raised.value.path, raised.value.position) == (path, 0)
    assert raised.value.next_offset == 6
    assert disk.tree().files[path] == bytes(content)
    assert log.compacted_to == 0


def test_a_segment_that_would_outgrow_its_index_is_refused(monkeypatch):
    monkeypatch.setattr(compaction_module, "_POSITION_MAX", 150)
    log = three_segments()
    before = values(log)
    with pytest.raises(TooLarge):
        compact(log, now_ns=LATER_NS)
    assert values(log) == before


def test_the_index_of_the_old_file_is_not_believed():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for number in range(9):
        put(log, keyed((b"k%d" % (number % 3), b"v" * number)))
    ready(log)
    tree = disk.tree()
    compact(log, now_ns=NOW_NS)
    log.close()
    old = {path: data for path, data in tree.files.items() if "index" in path}
    after = disk.tree()
    again, _ = open_small(SimDisk(Tree({**after.files, **old}, after.directories)), CONFIG)
    check_shape(again)
    for offset in range(9):
        assert offsets(again, offset) == [one for one in (6, 7, 8) if one >= offset]


def test_a_power_cut_at_any_moment_uncovers_no_old_value(tier, effort):
    """`gone` was deleted: neither it nor an older value of any key may come back."""
    before = SimDisk()
    three_segments(before).close()

    def scenario(disk: SimDisk) -> None:
        log, _ = open_small(disk, CONFIG)
        put(log, 1)
        run(compact_steps(log, now_ns=LATER_NS))
        log.sync()

    def check(disk: SimDisk, _: tuple[object, ...]) -> None:
        log, _ = open_small(disk, CONFIG)
        check_shape(log)
        assert log.end_offset >= 10
        found = {one.key: one.value for one in messages(log) if one.key is not None}
        assert found.pop(b"gone", None) is None
        assert found == {b"a": b"3", b"b": b"2", b"once": b"1"}
        assert {2, 9} <= set(offsets(log))

    counts = check_crashes(
        scenario,
        check,
        entropy=random.Random(7),
        kinds=QUICK_KINDS if tier == "check" else tuple(CrashKind),
        subsets=effort(check=1, test=10, torture=100),
        start=before.tree(),
    )
    assert counts.distinct > 200
