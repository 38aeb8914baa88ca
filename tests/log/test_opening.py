"""Opening a log after a clean stop, after a crash, and on a disk that lost something."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import read_head
from penstock.codec.head import UNSYNCED_MAX
from penstock.config import LogConfig
from penstock.errors import DamagedBatch, DamagedFile, NoSpace, WrongLog
from penstock.log import Log, open_log
from penstock.log.lookup import offset_at
from penstock.log.opening import CheckpointState
from penstock.log.trim import release
from penstock.model import Epoch, LogId, Offset
from penstock.sim import Call, Fault, Misbehaviour, Model, SimDisk, power_cut

from .naive import (
    DIRECTORY,
    NOW_NS,
    changed,
    check_shape,
    flipped,
    new_log,
    no_room_for_checkpoints,
    offsets,
    open_small,
    path_of,
    put,
    values,
)

CONFIG = LogConfig(
    segment_messages_max=10, segment_age_ms=-1, index_interval_bytes=200, retention_hours=-1
)
LOG_PATHS = [path_of(f"{base:020}.log") for base in (0, 10, 20)]
CHECKPOINT = path_of("checkpoint")


def written(disk: SimDisk, *, synced_each: bool = True) -> Log:
    """Segments 0 to 9, 10 to 19 and 20 to 24, in batches of five, not closed; a checkpoint only at the start."""
    log = new_log(CONFIG, disk)
    with no_room_for_checkpoints(disk):
        for _ in range(5):
            put(log, 5)
            if synced_each:
                log.sync()
    return log


def closed(disk: SimDisk) -> SimDisk:
    written(disk).close()
    return SimDisk(disk.tree())


def opened(disk: SimDisk) -> Log:
    return open_small(disk, CONFIG)[0]


def size_of(disk: SimDisk, path: str) -> int:
    return len(disk.tree().files[path])


# After a clean stop


def test_a_clean_stop_is_recognised_and_nothing_is_read_or_written():
    disk = closed(SimDisk())
    log, recovery = open_small(disk, CONFIG)
    assert recovery.is_clean
    assert recovery.scanned_bytes == 0
    assert disk.operations == []
    assert log.durable_end == log.end_offset == 25
    assert offsets(log) == list(range(25))


def test_a_clean_stop_keeps_the_epoch_and_closing_twice_is_fine():
    disk = SimDisk()
    log = written(disk)
    epoch = log.epoch
    log.close()
    log.close()
    assert opened(disk).epoch == epoch


def test_an_empty_log_opens_clean_too():
    disk = SimDisk()
    new_log(CONFIG, disk).close()
    assert open_small(disk, CONFIG)[1].is_clean


def test_only_what_follows_the_checkpoint_is_read():
    disk = SimDisk()
    log = written(disk)
    log.sync(with_checkpoint=True)
    size = log.size
    put(log, 3)
    put(log, 5)
    log, recovery = open_small(SimDisk(disk.tree()), CONFIG)
    assert recovery.checkpoint is CheckpointState.USED
    assert not recovery.is_clean
    assert recovery.scanned_bytes == log.size - size
    assert offsets(log) == list(range(33))


def test_what_a_killed_process_left_is_durable_before_anybody_sees_it():
    disk = SimDisk()
    written(disk, synced_each=False)
    disk = SimDisk(disk.tree())
    log = opened(disk)
    assert log.durable_end == 25
    after = opened(power_cut(disk, Model.STRICT, entropy=random.Random(1)))
    assert offsets(after) == list(range(25))


# A torn end


def test_a_tail_torn_at_any_byte_is_cut_and_set_aside():
    disk = SimDisk()
    log = written(disk)
    log.sync(with_checkpoint=True)
    size, epoch = size_of(disk, LOG_PATHS[2]), log.epoch
    put(log, 2)
    put(log, 2)
    content = disk.tree().files[LOG_PATHS[2]]
    batch_ends = {size: 25, (size + len(content)) // 2: 27, len(content): 29}
    for end in range(size, len(content) + 1):
        torn = changed(disk, {LOG_PATHS[2]: content[:end]})
        log, recovery = open_small(torn, CONFIG)
        whole = max(position for position in batch_ends if position <= end)
        assert log.end_offset == batch_ends[whole]
        assert recovery.cut_bytes == end - whole
        assert log.epoch > epoch
        if end == whole:
            assert recovery.cut_at is None
            continue
        assert recovery.cut_at == (LOG_PATHS[2], whole)
        kept = [torn.tree().files[path] for path in recovery.set_aside]
        assert kept == [content[whole:end]]
        assert put(log, 1).base_offset == batch_ends[whole]
        check_shape(log)


@pytest.mark.parametrize("size", [1, 7, 8, 111, 112, 113, 4096, 65536])
@pytest.mark.parametrize("kind", ["zeros", "garbage", "magic"])
def test_a_tail_that_is_no_batch_is_cut(kind, size):
    disk = SimDisk()
    written(disk)
    tail = {
        "zeros": bytes(size),
        "garbage": random.Random(size).randbytes(size),
        "magic": (b"PNSB" * (size // 4 + 1))[:size],
    }
    content = disk.tree().files[LOG_PATHS[2]] + tail[kind]
    log, recovery = open_small(changed(disk, {LOG_PATHS[2]: content}), CONFIG)
    assert offsets(log) == list(range(25))
    assert recovery.cut_bytes == size
    assert len(recovery.set_aside) == (kind != "zeros")


def test_old_batches_behind_the_end_are_not_taken_for_new_ones():
    """A file system may give a file back the blocks that it had before."""
    disk = SimDisk()
    written(disk)
    content = disk.tree().files[LOG_PATHS[2]]
    stale = disk.tree().files[LOG_PATHS[1]]
    log, recovery = open_small(changed(disk, {LOG_PATHS[2]: content + stale}), CONFIG)
    assert offsets(log) == list(range(25))
    assert recovery.cut_bytes == len(stale)


def test_segments_behind_a_torn_one_are_put_away_whole():
    disk = SimDisk()
    written(disk, synced_each=False)
    before = disk.tree().files
    torn = changed(disk, {LOG_PATHS[1]: before[LOG_PATHS[1]][:-1]})
    log, recovery = open_small(torn, CONFIG)
    assert offsets(log) == list(range(15))
    assert len(recovery.set_aside) == 2
    kept = [torn.tree().files[path] for path in recovery.set_aside]
    assert before[LOG_PATHS[2]] in kept
    check_shape(log)


def test_a_torn_batch_whose_successor_knew_nothing_of_it_being_durable_is_cut():
    disk = SimDisk()
    log = written(disk)
    log.sync(with_checkpoint=True)
    size = size_of(disk, LOG_PATHS[2])
    for _ in range(2):
        put(log, 2)
    content = disk.tree().files[LOG_PATHS[2]]
    log, recovery = open_small(changed(disk, {LOG_PATHS[2]: flipped(content, size + 20)}), CONFIG)
    assert log.end_offset == 25
    assert recovery.cut_at == (LOG_PATHS[2], size)


def test_a_count_of_unsynced_messages_that_did_not_fit_is_no_witness():
    disk = SimDisk()
    log = written(disk)
    log.sync(with_checkpoint=True)
    size = size_of(disk, LOG_PATHS[2])
    log.durable_end = Offset(log.end_offset - UNSYNCED_MAX - 100)
    put(log, 2)
    put(log, 2)
    content = disk.tree().files[LOG_PATHS[2]]
    assert read_head(content, size, seed=log.seed).unsynced == UNSYNCED_MAX
    log, _ = open_small(changed(disk, {LOG_PATHS[2]: flipped(content, size + 20)}), CONFIG)
    assert log.end_offset == 25


def test_offsets_that_a_power_cut_took_come_again_in_another_epoch():
    """Also when nothing at all is left of what followed the checkpoint."""
    disk = SimDisk()
    log = written(disk)
    log.sync(with_checkpoint=True)
    at_checkpoint = SimDisk(disk.tree())
    appended, epoch = put(log, 1), log.epoch
    log, recovery = open_small(at_checkpoint, CONFIG)
    assert recovery.scanned_bytes == 0
    assert not recovery.is_clean
    assert put(log, 1).base_offset == appended.base_offset
    assert log.epoch > epoch


def test_after_a_clean_start_the_first_sync_takes_back_that_the_log_is_closed():
    disk = closed(SimDisk())
    log = opened(disk)
    put(log, 1)
    log.sync()
    durable = SimDisk(disk.tree())
    put(log, 1)
    assert opened(durable).epoch > log.epoch


def test_a_new_epoch_is_durable_with_the_next_sync():
    disk = SimDisk()
    log = written(disk)
    log.begin_epoch(Epoch(9))
    log.sync()
    log = opened(power_cut(disk, Model.STRICT, entropy=random.Random(1)))
    assert log.epoch == 10


def test_no_room_to_set_a_torn_tail_aside_refuses_and_changes_nothing():
    disk = SimDisk()
    written(disk)
    content = disk.tree().files[LOG_PATHS[2]]
    for call in (Call.CREATE, Call.APPEND):
        torn = changed(disk, {LOG_PATHS[2]: content[:-1]})
        before = torn.tree().files
        torn.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, path_part=".cut-"))
        with pytest.raises(NoSpace):
            opened(torn)
        assert torn.tree().files == before
        assert opened(torn).end_offset == 20


def test_on_a_full_disk_a_crashed_log_opens_and_the_checkpoint_comes_later():
    disk = SimDisk()
    written(disk)
    full = SimDisk(disk.tree(), capacity_bytes=0)
    log = opened(full)
    assert offsets(log) == list(range(25))
    full.capacity_bytes = 1 << 20
    log.sync()
    assert open_small(SimDisk(full.tree()), CONFIG)[1].scanned_bytes == 0


# Damage


@given(st.data())
def test_a_durable_batch_that_changed_is_refused_with_its_place_and_nothing_is_touched(data):
    """Every batch but the last was durable when the next one was written."""
    disk = SimDisk()
    written(disk)
    number = data.draw(st.integers(0, 3))
    path = LOG_PATHS[number // 2]
    content = disk.tree().files[path]
    half = len(content) // 2
    start = half * (number % 2)
    at = data.draw(st.integers(start, start + half - 1))
    damaged = changed(disk, {path: flipped(content, at, data.draw(st.integers(0, 7)))})
    before = damaged.tree().files
    with pytest.raises(DamagedBatch) as raised:
        opened(damaged)
    assert (raised.value.path, raised.value.position) == (path, start)
    assert raised.value.next_offset == 5 * (number + 1)
    assert damaged.tree().files == before


def test_below_the_checkpoint_damage_is_met_by_the_reader():
    disk = closed(SimDisk())
    content = disk.tree().files[LOG_PATHS[0]]
    log, recovery = open_small(changed(disk, {LOG_PATHS[0]: flipped(content, 20)}), CONFIG)
    assert recovery.is_clean
    with pytest.raises(DamagedBatch) as raised:
        log.read(0, bytes_max=1)
    assert raised.value.next_offset == 5


@pytest.mark.parametrize("missing", [0, 2])
def test_a_missing_segment_that_the_checkpoint_vouches_for_is_refused(missing):
    disk = closed(SimDisk())
    with pytest.raises(DamagedFile) as raised:
        opened(changed(disk, {LOG_PATHS[missing]: None}))
    assert raised.value.path == LOG_PATHS[missing]


def test_a_segment_missing_in_the_middle_is_met_by_the_reader_who_can_go_on_behind_it():
    disk = closed(SimDisk())
    log = opened(changed(disk, {LOG_PATHS[1]: None}))
    assert log.read(9, bytes_max=1).next_offset == 10
    for offset in (10, 13, 19):
        with pytest.raises(DamagedBatch) as raised:
            log.read(offset, bytes_max=1)
        assert raised.value.path == LOG_PATHS[0]
        assert raised.value.next_offset == 20
    assert offsets(log, 20) == list(range(20, 25))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_segment_missing_behind_the_checkpoint_is_refused(missing):
    disk = SimDisk()
    written(disk)
    with pytest.raises((DamagedBatch, DamagedFile)):
        opened(changed(disk, {LOG_PATHS[missing]: None}))


def test_durable_bytes_that_are_missing_are_refused():
    disk = closed(SimDisk())
    content = disk.tree().files[LOG_PATHS[2]]
    with pytest.raises(DamagedFile) as raised:
        opened(changed(disk, {LOG_PATHS[2]: content[:-1]}))
    assert "1 of" in raised.value.reason


def test_two_segments_that_changed_places_are_refused():
    disk = SimDisk()
    written(disk)
    files = disk.tree().files
    swapped = {LOG_PATHS[0]: files[LOG_PATHS[1]], LOG_PATHS[1]: files[LOG_PATHS[0]]}
    with pytest.raises(DamagedBatch):
        opened(changed(disk, swapped))


def test_a_segment_of_another_log_is_refused():
    disk, other = SimDisk(), SimDisk()
    written(disk)
    foreign, _ = open_log(other, DIRECTORY, log_id=LogId(99), config=CONFIG)
    for _ in range(2):
        put(foreign, 5)
    with pytest.raises(DamagedBatch) as raised:
        opened(changed(disk, {LOG_PATHS[0]: other.tree().files[LOG_PATHS[0]]}))
    assert (raised.value.path, raised.value.position) == (LOG_PATHS[0], 0)


# The small files


@pytest.mark.parametrize("how", ["missing", "empty", "garbage", "flipped", "long", "of another"])
def test_without_a_checkpoint_everything_is_read(how):
    disk = SimDisk()
    log = written(disk)
    log.begin_epoch(Epoch(7))
    put(log, 1)
    epochs = log.epochs[:]
    log.close()
    content = disk.tree().files[CHECKPOINT]
    spoilt = {
        "missing": None,
        "empty": b"",
        "garbage": bytes(range(200)),
        "flipped": flipped(content, 33),
        "long": content + bytes(16),
        "of another": flipped(content, len(content) - 1),
    }
    log, recovery = open_small(changed(disk, {CHECKPOINT: spoilt[how]}), CONFIG)
    state = CheckpointState.MISSING if how == "missing" else CheckpointState.DAMAGED
    assert recovery.checkpoint is state
    assert recovery.scanned_bytes == log.size
    assert offsets(log) == list(range(26))
    assert log.epochs == [*epochs, (8, 26)]
    check_shape(log)


def test_every_bit_of_a_checkpoint_counts():
    disk = closed(SimDisk())
    content = disk.tree().files[CHECKPOINT]
    for position in range(len(content)):
        damaged = changed(disk, {CHECKPOINT: flipped(content, position, position % 8)})
        log, recovery = open_small(damaged, CONFIG)
        assert recovery.checkpoint is CheckpointState.DAMAGED
        assert log.end_offset == 25


def test_a_damaged_checkpoint_without_segments_is_not_a_new_log():
    disk = closed(SimDisk())
    gone = {path: None for path in disk.tree().files if "/0" in path}
    with pytest.raises(DamagedFile):
        opened(changed(disk, {**gone, CHECKPOINT: b"?"}))


@pytest.mark.parametrize("left", ["/0", "/checkpoint"])
def test_a_log_without_its_identity_is_not_a_new_log(left):
    disk = closed(SimDisk())
    with pytest.raises(DamagedFile):
        opened(changed(disk, {path: None for path in disk.tree().files if left not in path}))


def test_the_directory_of_another_log_is_refused():
    disk = closed(SimDisk())
    with pytest.raises(WrongLog):
        open_log(disk, DIRECTORY, log_id=LogId(7), config=CONFIG)


def test_every_bit_of_the_identity_counts():
    disk = closed(SimDisk())
    content = disk.tree().files[path_of("identity")]
    for position in range(len(content)):
        damaged = changed(disk, {path_of("identity"): flipped(content, position, position % 8)})
        with pytest.raises(DamagedFile):
            opened(damaged)


def test_what_interrupted_changes_left_is_removed():
    disk = closed(SimDisk())
    left = {
        LOG_PATHS[0] + ".tmp": b"half",
        CHECKPOINT + ".tmp": b"half",
        path_of(f"{15:020}.index"): b"of a segment that is gone",
        path_of(f"{15:020}.timeindex"): b"of a segment that is gone",
    }
    kept = {path_of(f"{0:020}.cut-512"): b"set aside", path_of("note.txt"): b"not ours"}
    disk = changed(disk, {**left, **kept})
    assert offsets(opened(disk)) == list(range(25))
    assert left.keys().isdisjoint(disk.tree().files)
    assert kept.keys() <= disk.tree().files.keys()


def test_an_index_of_a_segment_that_was_cut_away_is_not_inherited_by_the_next_one():
    disk = SimDisk()
    written(disk, synced_each=False)
    torn = disk.tree().files[LOG_PATHS[1]][:-1]
    log = opened(changed(disk, {LOG_PATHS[1]: torn}))
    for _ in range(3):
        put(log, 5, now_ns=NOW_NS + 100)
    assert log.segments[-1].base_offset == 20
    log.segments[-1].loaded = None
    assert offset_at(log, NOW_NS + 50) == 15
    assert values(log)[20:] == [b"%d" % number for number in range(20, 30)]


def test_the_first_segment_is_durable_when_an_interrupted_creation_is_finished():
    """Otherwise a power cut could leave the second segment and not the first, and look like damage."""
    disk = SimDisk()
    new_log(CONFIG, disk)
    fresh = changed(disk, {path: None for path in disk.tree().files if "/0" in path})
    log, _ = open_small(fresh, CONFIG)
    for _ in range(3):
        put(log, 10)
    for seed in range(50):
        again = SimDisk(fresh.start)
        again.operations = list(fresh.operations)
        check_shape(opened(power_cut(again, Model.STRICT, entropy=random.Random(seed))))


def test_a_start_that_was_moved_stays_moved():
    disk = SimDisk()
    log = written(disk)
    release(log, below=Offset(10))
    log, _ = open_small(SimDisk(disk.tree()), CONFIG)
    assert offsets(log) == list(range(10, 25))
