"""An index makes lookups quick and is never believed."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import seed_of
from penstock.config import LogConfig
from penstock.log import Log
from penstock.log.index import Index, read_index
from penstock.log.layout import INDEX, TIME_INDEX
from penstock.log.lookup import offset_at
from penstock.log.trim import truncate
from penstock.model import LogId, Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk
from penstock.sim.disk import SimFile

from .naive import (
    LOG_ID,
    NOW_NS,
    SECOND_NS,
    batches,
    changed,
    flipped,
    new_log,
    open_small,
    path_of,
    put,
)

SEED = seed_of(LOG_ID)
CONFIG = LogConfig(
    index_interval_bytes=400, segment_messages_max=30, segment_age_ms=-1, retention_hours=-1
)
FIRST, SECOND = path_of(f"{0:020}"), path_of(f"{30:020}")


def two_segments(disk: SimDisk) -> Log:
    """Twice thirty messages, a second apart, in batches of one, and a message in a third segment."""
    log = new_log(CONFIG, disk)
    fill(log)
    return log


def fill(log: Log) -> None:
    for number in range(61):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)


def closed(disk: SimDisk) -> SimDisk:
    two_segments(disk).close()
    return SimDisk(disk.tree())


def check_lookups(log: Log) -> None:
    for offset in range(61):
        assert log.read(offset, bytes_max=1).base_offset == offset
        assert offset_at(log, NOW_NS + offset * SECOND_NS) == offset
        assert offset_at(log, NOW_NS + offset * SECOND_NS - 1) == offset
    assert offset_at(log, NOW_NS + 61 * SECOND_NS) == 61


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the size of every read of a segment."""
    sizes: list[int] = []
    read = SimFile.read

    def counted(self: SimFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        if self.path.endswith(".log"):
            sizes.append(len(data))
        return data

    monkeypatch.setattr(SimFile, "read", counted)
    return sizes


# The files


def index_of(log: Log, number: int = 0) -> Index:
    return log.segments[number].index()


def test_there_is_an_entry_for_the_first_batch_and_one_for_each_interval():
    index = index_of(two_segments(SimDisk()))
    assert index.positions[0] == 0
    assert all(
        400 <= later - earlier < 400 + 200
        for earlier, later in zip(index.positions, index.positions[1:], strict=False)
    )
    assert len(index.positions) > 5


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=30),
    st.integers(1, 1000),
)
def test_an_index_read_back_is_the_one_that_was_written(puts, interval):
    config = LogConfig(index_interval_bytes=interval, segment_age_ms=-1)
    log, now_ns = new_log(config), NOW_NS
    for count, seconds in puts:
        now_ns += seconds * SECOND_NS
        put(log, count, now_ns=now_ns)
    index = index_of(log)
    again = read_index(*index.to_files(SEED), interval_bytes=interval, seed=SEED)
    assert again == index


def test_no_bit_of_either_file_can_change_unnoticed():
    files = index_of(two_segments(SimDisk())).to_files(SEED)
    for number, content in enumerate(files):
        for position in range(len(content)):
            for bit in range(8):
                broken = [*files]
                broken[number] = flipped(content, position, bit)
                assert read_index(*broken, interval_bytes=400, seed=SEED) is None


def test_an_index_of_another_log_or_in_the_wrong_file_is_none():
    by_offset, by_time = index_of(two_segments(SimDisk())).to_files(SEED)
    other = seed_of(LogId(77))
    assert read_index(by_offset, by_time, interval_bytes=400, seed=other) is None
    assert read_index(by_time, by_offset, interval_bytes=400, seed=SEED) is None
    assert read_index(b"", b"", interval_bytes=400, seed=SEED) is None


def test_two_files_that_are_each_good_but_not_of_one_moment_are_none():
    log = two_segments(SimDisk())
    old = index_of(log, 2).to_files(SEED)
    put(log, 1)
    new = index_of(log, 2).to_files(SEED)
    assert read_index(old[0], new[1], interval_bytes=400, seed=SEED) is None


# What a log makes of them

Spoil = Callable[[SimDisk], dict[str, bytes | None]]


def _both(content: bytes | None) -> Spoil:
    return lambda _: {FIRST + INDEX: content, FIRST + TIME_INDEX: content}


def _of(change: Callable[[Index], None]) -> Spoil:
    """An index with right checksums and wrong content."""

    def spoil(disk: SimDisk) -> dict[str, bytes | None]:
        log, _ = open_small(SimDisk(disk.tree()), CONFIG)
        index = log.segments[0].index()
        change(index)
        by_offset, by_time = index.to_files(SEED)
        return {FIRST + INDEX: by_offset, FIRST + TIME_INDEX: by_time}

    return spoil


def _file(disk: SimDisk, path: str) -> bytes:
    return disk.tree().files[path]


def _move_positions(index: Index) -> None:
    for entry in range(1, len(index.positions)):
        index.positions[entry] += 8


def _shift_entries(index: Index) -> None:
    """Every entry at the place of the next: real batches, but behind what is looked for."""
    del index.positions[0], index.offsets[-1], index.times[-1]


def _shift_middle_times(index: Index) -> None:
    """Only the middle is wrong, so that loading it cannot tell."""
    index.times[2:5] = index.times[0:3]


def _shift_middle_offsets(index: Index) -> None:
    index.offsets[2:5] = index.offsets[0:3]


SPOILT: dict[str, Spoil] = {
    "missing": _both(None),
    "one missing": lambda _: {FIRST + TIME_INDEX: None},
    "empty": _both(b""),
    "garbage": _both(bytes(range(256)) * 4),
    "cut short": lambda disk: {FIRST + INDEX: _file(disk, FIRST + INDEX)[:-8]},
    "too long": lambda disk: {FIRST + INDEX: _file(disk, FIRST + INDEX) + bytes(8)},
    "of another segment": lambda disk: {
        FIRST + INDEX: _file(disk, SECOND + INDEX),
        FIRST + TIME_INDEX: _file(disk, SECOND + TIME_INDEX),
    },
    "files swapped": lambda disk: {
        FIRST + INDEX: _file(disk, FIRST + TIME_INDEX),
        FIRST + TIME_INDEX: _file(disk, FIRST + INDEX),
    },
    "positions inside batches": _of(_move_positions),
    "entries at the place of the next": _of(_shift_entries),
    "wrong times in the middle": _of(_shift_middle_times),
    "wrong offsets in the middle": _of(_shift_middle_offsets),
    "claims more bytes": _of(lambda index: setattr(index, "size", index.size * 2)),
    "claims fewer bytes": _of(lambda index: setattr(index, "size", 0)),
    "claims other times": _of(lambda index: setattr(index, "last_time", NOW_NS)),
    "claims another first time": _of(lambda index: setattr(index, "first_time", 0)),
    "no entries": _of(lambda index: index.pop_entry(below=0) and None),
}


@pytest.mark.parametrize("how", SPOILT)
def test_lookups_are_right_whatever_the_index_says(how):
    disk = closed(SimDisk())
    log, recovery = open_small(changed(disk, SPOILT[how](disk)), CONFIG)
    assert recovery.is_clean
    check_lookups(log)
    assert log.segments[0].last_time(log.segments[1].base_offset) == NOW_NS + 29 * SECOND_NS
    assert index_of(log).first_time == NOW_NS


@pytest.mark.parametrize("how", SPOILT)
def test_a_wrong_time_is_found_out_by_the_first_lookup_that_meets_it(how):
    disk = closed(SimDisk())
    spoilt = changed(disk, SPOILT[how](disk))
    for offset in range(30):
        log, _ = open_small(spoilt, CONFIG)
        assert offset_at(log, NOW_NS + offset * SECOND_NS) == offset
        log, _ = open_small(spoilt, CONFIG)
        assert log.read(offset, bytes_max=1).base_offset == offset


def test_an_index_that_is_ahead_of_the_log_is_used_as_far_as_it_goes(bytes_read):
    """A power cut took batches that the index had already reached the disk with."""
    disk = SimDisk()
    log = two_segments(disk)
    put(log, 1)
    log.sync(with_checkpoint=True)
    ahead = {path: data for path, data in disk.tree().files.items() if "index" in path}
    shorter = SimDisk()
    two_segments(shorter).close()
    log, _ = open_small(changed(shorter, ahead), CONFIG)
    check_lookups(log)
    for _ in range(3):
        put(log, 1, now_ns=NOW_NS + 100 * SECOND_NS)
    log.segments[-1].loaded = None
    check_lookups(log)
    assert offset_at(log, NOW_NS + 70 * SECOND_NS) == 61


def test_a_lookup_reads_little_more_than_an_interval(bytes_read):
    config = LogConfig(index_interval_bytes=4096, segment_age_ms=-1)
    log = new_log(config)
    for number in range(3000):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)
    log.segments[-1].unload_index()
    for lookup in (
        lambda: log.place_of_batch(2000),
        lambda: offset_at(log, NOW_NS + 1000 * SECOND_NS),
    ):
        lookup()
        bytes_read.clear()
        lookup()
        # One head to check the entry, and one window of heads.
        assert sum(bytes_read) < 20_000


def test_an_index_that_had_to_be_built_is_built_once(bytes_read):
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    for number in range(20 * 30):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)
    log.close()
    missing = {path: None for path in disk.tree().files if "index" in path}
    log, _ = open_small(changed(disk, missing), CONFIG)
    for segment in log.segments:
        log.place_of_batch(segment.base_offset)
        log.read(segment.base_offset, bytes_max=1)
    first = log.segments[0]
    assert first.loaded is None, "only some indexes are kept in memory"
    bytes_read.clear()
    first.index()
    assert sum(bytes_read) < first.size / 2


def test_indexes_in_memory_are_bounded_while_writing_reading_and_cutting():
    log = new_log(CONFIG)
    for number in range(40 * 30):
        put(log, 1, now_ns=NOW_NS + number * SECOND_NS)

    def loaded() -> int:
        return sum(segment.loaded is not None for segment in log.segments)

    assert loaded() <= 9
    for _ in batches(log, bytes_max=1):
        pass
    assert loaded() <= 9
    for second in range(0, 1200, 7):
        offset_at(log, NOW_NS + second * SECOND_NS)
    assert loaded() <= 9
    for _ in range(3):
        log.forget_hint()
        for segment in log.segments[:8]:
            log.read(segment.base_offset, bytes_max=1)
        for segment in log.segments[20:28]:
            log.read(segment.base_offset, bytes_max=1)
    assert loaded() <= 9


def test_an_index_without_room_on_the_disk_stops_nobody():
    disk = SimDisk()
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="index", times=999))
    log = two_segments(disk)
    log.sync(with_checkpoint=True)
    check_lookups(log)
    log.close()
    log, recovery = open_small(SimDisk(disk.tree()), CONFIG)
    assert recovery.is_clean
    check_lookups(log)


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("base_offset", [0, 30, 60])
def test_an_index_with_a_directory_in_its_place_stops_neither_a_publish_nor_the_end(
    base_offset, suffix
):
    disk = SimDisk()
    log = new_log(CONFIG, disk)
    path = path_of(f"{base_offset:020}{suffix}")
    disk.vanish(path)
    disk.make_directories(path)
    fill(log)
    log.sync(with_checkpoint=True)
    check_lookups(log)
    log.close()
    log, _ = open_small(SimDisk(disk.tree()), CONFIG)
    check_lookups(log)
    log.close()


def every_gap(log: Log) -> Iterator[int]:
    """Times just before, at and just after every append."""
    for head, _ in batches(log):
        yield from range(head.append_time - 1, head.append_time + 2)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=40),
    st.integers(1, 600),
    st.booleans(),
)
def test_a_time_is_found_before_the_first_after_the_last_in_gaps_and_among_equals(
    puts, interval, is_rolled
):
    config = LogConfig(index_interval_bytes=interval, segment_size_bytes=600, segment_age_ms=-1)
    log, now_ns = new_log(config), NOW_NS
    for count, ticks in puts:
        now_ns += ticks * 2
        put(log, count, now_ns=now_ns)
    if is_rolled:
        log.roll()
    stored = [(head.append_time, head.base_offset) for head, _ in batches(log)]
    for time_ns in [0, *every_gap(log), now_ns + 10]:
        late = [offset for append_time, offset in stored if append_time >= time_ns]
        assert offset_at(log, time_ns) == min(late, default=log.end_offset)


@pytest.mark.parametrize(("size", "is_saved"), [(100, False), (20_000, True)])
def test_the_newest_segment_has_an_index_once_it_is_worth_one(size: int, is_saved: bool) -> None:
    disk = SimDisk()
    log = new_log(LogConfig(), disk)
    put(log, [Message(b"v" * size)])
    log.sync(with_checkpoint=True)
    assert any(name.endswith("index") for name in disk.list(log.directory)) is is_saved
    log.discard()
    again, _ = open_small(disk)
    assert offset_at(again, NOW_NS) == 0


def test_the_index_that_a_cut_has_left_behind_is_written_anew_however_little_there_is() -> None:
    disk = SimDisk()
    log = new_log(LogConfig(), disk)
    for size in (10, 20_000):
        put(log, [Message(b"v" * size)])
    log.sync(with_checkpoint=True)
    truncate(log, 1)
    log.close()
    files = [disk.tree().files[f"{FIRST}{suffix}"] for suffix in (INDEX, TIME_INDEX)]
    saved = read_index(*files, interval_bytes=400, seed=SEED)
    assert saved is not None
    assert saved.next_offset == 1
