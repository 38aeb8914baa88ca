"""Appending, rolling, reading and syncing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import batches_in, encode_messages
from penstock.config import LogConfig
from penstock.errors import DamagedBatch, NoSpace, OffsetOutOfRange
from penstock.log import Log
from penstock.log import log as log_module
from penstock.log.layout import INDEX, TIME_INDEX
from penstock.log.lookup import bytes_from, offset_at
from penstock.log.trim import release
from penstock.model import Epoch, Message, Offset
from penstock.sim import Call, Fault, Misbehaviour, SimDisk
from penstock.sim.operations import Sync, SyncDirectory

from .naive import (
    HOUR_NS,
    NOW_NS,
    SECOND_NS,
    batches,
    changed,
    check_shape,
    flipped,
    messages_in,
    new_log,
    offsets,
    open_small,
    path_of,
    put,
    values,
)

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=30)
CONFIG = LogConfig(segment_size_bytes=1000, index_interval_bytes=300, segment_age_ms=-1)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# Appending and rolling


def test_offsets_are_dense_and_times_never_go_back():
    log = new_log()
    found = [put(log, 2, now_ns=NOW_NS + step) for step in (5, 3, 9)]
    assert [one.base_offset for one in found] == [0, 2, 4]
    assert [one.append_time - NOW_NS for one in found] == [5, 5, 9]
    assert log.end_offset == 6
    assert values(log) == [b"%d" % number for number in range(6)]


def test_a_clock_behind_the_last_message_does_not_go_back_after_a_restart_either():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    put(log, 1, now_ns=NOW_NS + 5)
    log.close()
    assert put(new_log(CONFIG, disk), 1, now_ns=NOW_NS).append_time == NOW_NS + 5


def test_a_segment_ends_before_the_batch_that_would_make_it_too_large():
    log = new_log(LogConfig(segment_size_bytes=1000, segment_age_ms=-1, index_interval_bytes=1))
    for _ in range(20):
        put(log, [Message(b"v" * 100)])
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len({segment.size for segment in log.segments[:-1]}) == 1
    put(log, [Message(b"v" * 5000)])
    put(log, 1)
    assert [segment.size > 5000 for segment in log.segments[-2:]] == [True, False]


def test_a_run_of_batches_is_stored_as_if_they_came_one_by_one():
    disks = SimDisk(), SimDisk()
    single, together = (new_log(CONFIG, disk) for disk in disks)
    made = [encode_messages([Message(b"v" * size)] * 2) for size in (1, 80, 300, 5, 900, 1, 1, 400)]
    heads = [single.append(one, now_ns=NOW_NS).head for one in made]
    found, writes, rest = [], 0, made
    while rest:
        some = together.append_run(rest, now_ns=NOW_NS)
        found, writes, rest = found + some, writes + 1, rest[len(some) :]
    assert found == heads
    assert writes == len(together.segments) < len(made)
    assert (together.end_offset, together.bytes_appended) == (16, single.bytes_appended)
    put(together, 1)
    put(single, 1)
    for log in (single, together):
        log.close()
    assert disks[0].tree() == disks[1].tree()


def test_a_run_without_room_leaves_nothing():
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, 3)
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE))
    with pytest.raises(NoSpace):
        log.append_run([encode_messages([Message(b"v")])] * 2, now_ns=NOW_NS)
    assert log.end_offset == 3
    put(log, 1)
    assert values(log) == [b"0", b"1", b"2", b"3"]


def test_a_segment_ends_when_its_first_message_is_old_enough():
    log = new_log(LogConfig(segment_age_ms=60_000))
    for second in (0, 30, 59, 60, 61, 119, 120):
        put(log, 1, now_ns=NOW_NS + second * SECOND_NS)
    assert bases(log) == [0, 3, 6]


def test_age_is_remembered_across_a_restart():
    disk = SimDisk()
    config = LogConfig(segment_age_ms=60_000)
    log = new_log(config, disk)
    put(log, 1, now_ns=NOW_NS)
    put(log, 1, now_ns=NOW_NS + 40 * SECOND_NS)
    log.close()
    log = new_log(config, disk)
    put(log, 1, now_ns=NOW_NS + 61 * SECOND_NS)
    assert bases(log) == [0, 2]


def test_a_segment_ends_when_it_has_messages_enough():
    log = new_log(LogConfig(segment_messages_max=5, segment_age_ms=-1))
    for _ in range(6):
        put(log, 2)
    assert bases(log) == [0, 6]


def test_a_segment_ends_before_its_offsets_outgrow_the_index(monkeypatch):
    monkeypatch.setattr(log_module, "_RELATIVE_OFFSET_MAX", 9)
    log = new_log()
    for _ in range(3):
        put(log, 4)
    put(log, 2)
    put(log, 1)
    assert bases(log) == [0, 8]


def test_rolling_an_empty_segment_does_nothing():
    log = new_log()
    log.roll()
    put(log, 1)
    log.roll()
    log.roll()
    assert bases(log) == [0, 1]


# Reading


@given(SIZES, st.data())
def test_a_read_gives_whole_batches_from_the_one_that_holds_the_offset(sizes, data):
    log = new_log(CONFIG)
    stored = [put(log, size) for size in sizes]
    offset = data.draw(st.integers(0, log.end_offset - 1))
    bytes_max = data.draw(st.integers(0, 1200))
    run = log.read(offset, bytes_max=bytes_max)
    holder = next(one for one in stored if one.base_offset <= offset < one.next_offset)
    assert run.base_offset == holder.base_offset
    assert run.next_offset in {one.next_offset for one in stored}
    found = list(batches_in(run.data, seed=log.seed))
    assert len(run.data) <= bytes_max or len(found) == 1
    assert [one.offset for one in messages_in(found)] == list(
        range(run.base_offset, run.next_offset)
    )


def test_a_read_is_as_long_as_it_may_be():
    log = new_log(LogConfig())
    for _ in range(10):
        put(log, [Message(b"v" * 100)])
    length = log.size // 10
    for count in range(1, 11):
        assert log.read(0, bytes_max=length * count).next_offset == count
        assert log.read(0, bytes_max=length * (count + 1) - 1).next_offset == count


def test_at_the_end_there_is_nothing_and_outside_it_is_refused():
    log = new_log(CONFIG)
    for _ in range(20):
        put(log, 5)
    release(log, below=Offset(50))
    assert log.start_offset > 0
    run = log.read(log.end_offset, bytes_max=100)
    assert (bytes(run.data), run.next_offset) == (b"", log.end_offset)
    for offset in (-1, log.start_offset - 1, log.end_offset + 1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, bytes_max=100)


def test_a_reader_that_waits_at_the_end_goes_on_with_what_comes():
    log = new_log(CONFIG)
    cursor = 0
    for size in (1, 3, 2, 7, 4, 4, 4, 4):
        put(log, size)
        while cursor < log.end_offset:
            run = log.read(cursor, bytes_max=1)
            assert run.base_offset == cursor
            cursor = run.next_offset
    assert cursor == 29


def test_bytes_from_an_offset_are_those_from_its_batch_on():
    log = new_log(CONFIG)
    for _ in range(20):
        put(log, 5)
    for offset in (0, 3, 47, 99, 100):
        expected = sum(head.length for head, _ in batches(log, offset))
        assert bytes_from(log, offset) == expected


# Damage


def skipping(log: Log) -> tuple[list[int], list[DamagedBatch]]:
    """All that a reader gets who goes on behind every damage."""
    cursor, found, errors = log.start_offset, [], []
    while cursor < log.end_offset:
        assert len(errors) < 10, "it goes in circles"
        try:
            run = log.read(cursor, bytes_max=400)
        except DamagedBatch as error:
            errors.append(error)
            cursor = error.next_offset or 0
            continue
        found += [one.offset for one in messages_in(batches_in(run.data, seed=log.seed))]
        cursor = run.next_offset
    return found, errors


@given(
    SIZES,
    st.data(),
    st.sampled_from(["kept", "missing"]),
    st.sampled_from([Message(b""), Message(b"v" * 200)]),
)
def test_a_reader_that_skips_damage_gets_everything_else(sizes, data, index, message):
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for size in sizes:
        put(log, [message] * size)
    stored = list(batches(log))
    victim = data.draw(st.integers(0, len(stored) - 1))
    head = stored[victim][0]
    number, (position, _) = log.place_of_batch(head.base_offset)
    path = log.segments[number].path
    log.close()
    content = disk.tree().files[path]
    at = position + data.draw(st.integers(0, head.length - 1))
    spoilt: dict[str, bytes | None] = {path: flipped(content, at, data.draw(st.integers(0, 7)))}
    if index == "missing":
        spoilt |= {name: None for name in disk.tree().files if name.endswith((INDEX, TIME_INDEX))}
    log = open_small(changed(disk, spoilt), CONFIG)[0]
    found, errors = skipping(log)
    assert [(error.path, error.position) for error in errors] == [(path, position)]
    assert errors[0].next_offset == head.next_offset
    lost = set(range(head.base_offset, head.next_offset))
    assert found == [offset for offset in range(log.end_offset) if offset not in lost]
    assert offset_at(log, NOW_NS) == 0
    assert offset_at(log, NOW_NS + 1) in {log.end_offset, stored[-1][0].base_offset}


@pytest.mark.parametrize("victim", range(4))
def test_a_seek_by_time_never_jumps_over_a_segment_that_is_all_damage(victim):
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for number in range(4):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)
        log.roll()
    log.close()
    path = path_of(f"{victim:020}.log")
    spoilt = {path: flipped(disk.tree().files[path], 20)}
    log = open_small(changed(disk, spoilt), CONFIG)[0]
    for number in range(5):
        found = offset_at(log, NOW_NS + number * SECOND_NS)
        # A search for the time right after the damage may have meant the damaged batch.
        assert found in ({victim} if number in {victim, victim + 1} else {number})


def test_a_copy_of_an_older_batch_inside_a_message_is_not_taken_for_a_batch():
    disk = SimDisk()
    log = new_log(LogConfig(segment_age_ms=-1), disk)
    put(log, 3)
    copied = bytes(log.read(0, bytes_max=1).data)
    put(log, [Message(bytes(shift) + copied * 2) for shift in range(8)])
    put(log, 1)
    log.close()
    content = disk.tree().files[path_of(f"{0:020}.log")]
    start = len(copied)
    log = open_small(changed(disk, {path_of(f"{0:020}.log"): flipped(content, start + 20)}))[0]
    found, errors = skipping(log)
    assert found == [0, 1, 2, 11]
    assert [(error.position, error.next_offset) for error in errors] == [(start, 11)]


def test_of_a_batch_with_a_damaged_body_the_head_is_still_known():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    put(log, [Message(b"value")])
    log.close()
    path = path_of(f"{0:020}.log")
    content = disk.tree().files[path]
    spoilt = changed(disk, {path: content.replace(b"value", b"VALUE")})
    log = open_small(spoilt, CONFIG)[0]
    assert log.head_at(0).message_count == 1
    with pytest.raises(DamagedBatch):
        log.read(0, bytes_max=1)


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_sealed_segment_that_became_shorter_is_damage(cut):
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for _ in range(3):
        put(log, 5)
    log.roll()
    put(log, 5)
    log.close()
    path = path_of(f"{0:020}.log")
    shorter = disk.tree().files[path][:-cut]
    log = open_small(changed(disk, {path: shorter}), CONFIG)[0]
    found, errors = skipping(log)
    assert found == [*range(10), *range(15, 20)] or (
        cut == 150 and found == [*range(5), *range(15, 20)]
    )
    assert [error.next_offset for error in errors] == [15]


def test_a_batch_of_another_place_is_damage_although_its_checksums_are_right():
    disk = SimDisk()
    log = new_log(LogConfig(segment_age_ms=-1), disk)
    for _ in range(4):
        put(log, [Message(b"v"), Message(b"w")])
    log.close()
    path = path_of(f"{0:020}.log")
    content = disk.tree().files[path]
    size = len(content) // 4
    twice = content[: 2 * size] + content[size : 2 * size] + content[3 * size :]
    log = open_small(changed(disk, {path: twice}))[0]
    found, errors = skipping(log)
    assert found == [0, 1, 2, 3, 6, 7]
    assert [error.next_offset for error in errors] == [6]


# Syncing


def test_old_segments_are_synced_before_new_ones_and_before_the_directory():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for _ in range(20):
        put(log, 5)
    done = len(disk.operations)
    log.sync()
    synced = [one.path for one in disk.operations[done:] if isinstance(one, Sync | SyncDirectory)]
    segments = [segment.path for segment in log.segments]
    assert synced[: len(segments) + 1] == [*segments, "orders/messages"]
    done = len(disk.operations)
    log.sync()
    assert len(disk.operations) == done


def test_what_is_appended_while_a_plan_runs_waits_for_the_next():
    log = new_log(CONFIG)
    put(log, 5)
    plan = log.plan_sync(with_checkpoint=True)
    for _ in range(10):
        put(log, 5)
    plan.run()
    log.synced(plan)
    assert log.durable_end == 5
    assert log.settled_to == 0
    log.sync(with_checkpoint=True)
    assert log.durable_end == log.end_offset
    assert log.settled_to == log.segments[-1].base_offset


def test_a_plan_touches_no_file_until_it_runs_and_saves_the_index_of_its_own_moment():
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=1, segment_age_ms=-1), disk)
    for _ in range(4):
        put(log, [Message(bytes(5_000))])
    done = len(disk.operations)
    plan = log.plan_sync(with_checkpoint=True)
    assert len(disk.operations) == done
    segment, expected = log.segments[-1], log.segments[-1].index().to_files(log.seed)
    put(log, 5)
    plan.run()
    files = disk.tree().files
    assert tuple(bytes(files[segment.path_of(kind)]) for kind in (INDEX, TIME_INDEX)) == expected


def test_a_plan_leaves_the_index_of_a_segment_that_was_sealed_meanwhile():
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=1, segment_age_ms=-1), disk)
    put(log, [Message(bytes(20_000))])
    plan = log.plan_sync(with_checkpoint=True)
    put(log, 5)
    sealed = log.segments[-1]
    log.roll()
    plan.run()
    assert sealed.is_index_whole(log.segments[-1].base_offset)


def test_a_checkpoint_comes_when_enough_was_written_since_the_last():
    disk = SimDisk()
    config = LogConfig(checkpoint_bytes=1000, segment_age_ms=-1)
    log = new_log(config, disk)
    written = []
    for _ in range(30):
        put(log, [Message(b"v" * 100)])
        plan = log.plan_sync()
        plan.run()
        log.synced(plan)
        written.append(plan.checkpoint is not None)
    assert 5 <= sum(written) <= 8


def test_a_checkpoint_without_room_is_tried_again_and_the_sync_still_counts():
    disk = SimDisk()
    log = new_log(LogConfig(checkpoint_bytes=1, segment_age_ms=-1), disk)
    before = disk.tree().files[path_of("checkpoint")]
    disk.inject(
        Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="checkpoint", times=2)
    )
    put(log, 3)
    for _ in range(2):
        log.sync()
        assert log.durable_end == 3
        assert disk.tree().files[path_of("checkpoint")] == before
    log.sync()
    assert disk.tree().files[path_of("checkpoint")] != before
    assert open_small(SimDisk(disk.tree()))[1].scanned_bytes == 0


def test_an_epoch_ends_where_the_next_one_begins():
    log = new_log()
    for epoch in (3, 5, 8):
        log.begin_epoch(Epoch(epoch))
        put(log, 4)
    log.begin_epoch(Epoch(9))
    log.begin_epoch(Epoch(11))
    assert [log.end_of_epoch(Epoch(epoch)) for epoch in (2, 3, 4, 5, 7, 8, 9, 11, 12)] == [
        *(0, 4, 4, 8, 8, 12, 12, 12, 12)
    ]
    # That of the last batch: state that is decided at this end may outlive an epoch in which nothing was written.
    assert log.end == (8, 12)
    with pytest.raises(AssertionError):
        log.begin_epoch(Epoch(11))


# A full disk


@pytest.mark.parametrize("call", [Call.CREATE, Call.APPEND, Call.RENAME])
def test_no_space_at_any_moment_refuses_one_batch_and_the_next_one_goes_on(call):
    config = LogConfig(segment_size_bytes=700, checkpoint_bytes=500, index_interval_bytes=200)
    for nth in range(1, 200):
        disk = SimDisk()
        log = new_log(config, disk)
        fault = Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth)
        disk.inject(fault)
        refused = 0
        for number in range(12):
            try:
                put(log, 3, now_ns=NOW_NS + number * HOUR_NS)
            except NoSpace:
                refused += 1
            log.sync()
            check_shape(log)
        assert refused <= 1
        assert log.end_offset == 36 - 3 * refused
        again = new_log(config, SimDisk(disk.tree()))
        assert values(again) == [b"%d" % one for one in range(log.end_offset)]
        log.close()
        if sum(1 for pending in disk.faults._pending if pending._left) == 1:
            break
    assert nth > 3


def test_a_full_disk_stays_readable_and_resumes_by_itself():
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for _ in range(8):
        put(log, 5)
    log.sync()
    disk.capacity_bytes = 0
    for _ in range(3):
        with pytest.raises(NoSpace):
            put(log, 5)
        log.sync(with_checkpoint=True)
        assert offsets(log) == list(range(40))
    disk.capacity_bytes = 1 << 20
    assert put(log, 5).base_offset == 40
    log.close()
    assert offsets(new_log(CONFIG, disk)) == list(range(45))


@pytest.mark.parametrize("spare", range(-24, 32, 8))
def test_behind_a_damaged_batch_reading_goes_on_with_the_very_next_one(spare) -> None:
    """However long the damaged one is: the next one is looked for in pieces of 1 MiB, and may begin at their border."""
    disk = SimDisk()
    log = new_log(LogConfig(), disk)
    overhead = put(log, [Message(b"")]).head.length
    log = new_log(LogConfig(), disk := SimDisk())
    size = (1 << 20) + spare
    assert put(log, [Message(bytes(size - overhead))]).head.length == size
    put(log, [Message(b"next")])
    path = log.segments[0].path
    log.close()
    data = disk.tree().files[path]
    log, _ = open_small(changed(disk, {path: flipped(data, 0)}), LogConfig())
    with pytest.raises(DamagedBatch) as damage:
        log.read(0, bytes_max=1)
    assert damage.value.next_offset == 1
    assert values(log, 1) == [b"next"]
