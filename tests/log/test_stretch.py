"""Where batches lie in their file: the same ones that reading gives, without a look at their bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import HEAD_BYTES
from penstock.config import LogConfig
from penstock.errors import DamagedBatch
from penstock.log import segment as module
from penstock.log.log import Log
from penstock.model import Message
from penstock.sim import SimDisk

from .naive import batches, changed, flipped, new_log, open_small, put

CONFIG = LogConfig(segment_size_bytes=1500, index_interval_bytes=300, segment_age_ms=-1)
MUCH = 1 << 20


@pytest.fixture(autouse=True)
def every_batch_is_large(monkeypatch):
    monkeypatch.setattr(module, "_STRETCH_BATCH_BYTES_MIN", 1)


def filled(sizes: list[int], disk: SimDisk | None = None) -> Log:
    log = new_log(CONFIG, disk)
    for size in sizes:
        put(log, size)
    return log


def bytes_at(found: module.Stretch) -> bytes:
    return found.file.read(found.position, found.size)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=30), st.sampled_from([1, 300, 700, MUCH]))
def test_it_is_where_reading_reads(sizes, bytes_max):
    log = filled(sizes)
    for offset in range(log.end_offset):
        run = log.read(offset, bytes_max=bytes_max)
        # Once with the place where the last one ended, once searched for.
        for _ in range(2):
            found = log.find(offset, bytes_max=bytes_max, limit=MUCH)
            assert bytes_at(found) == run.data
            assert found.next_offset == run.next_offset
            log.forget_hint()


def test_no_more_than_is_needed_for_so_many_offsets():
    log = filled([3, 3, 3, 3])
    ends = [log.find(1, bytes_max=MUCH, limit=limit).next_offset for limit in (1, 2, 3, 5, 6)]
    assert ends == [3, 3, 6, 6, 9]


def test_outside_and_in_small_batches_there_is_nothing_to_find(monkeypatch):
    log = filled([3])
    assert log.find(3, bytes_max=MUCH, limit=1) is None
    assert log.find(-1, bytes_max=MUCH, limit=1) is None
    monkeypatch.setattr(module, "_STRETCH_BATCH_BYTES_MIN", 64 * 1024)
    assert log.find(0, bytes_max=MUCH, limit=1) is None
    put(log, [Message(b"v" * 64 * 1024)])
    assert log.find(3, bytes_max=MUCH, limit=1).next_offset == 4


@pytest.mark.parametrize("place", [30, HEAD_BYTES + 5])
def test_a_damaged_head_ends_it_and_a_damaged_body_does_not(place):
    disk = SimDisk()
    log = filled([3, 3, 3], disk)
    first, *_ = [head.length for head, _ in batches(log)]
    path = log.segments[0].path
    log.close()
    damaged = changed(disk, {path: flipped(disk.tree().files[path], first + place)})
    log, _ = open_small(damaged, CONFIG)
    is_head = place < HEAD_BYTES
    assert log.find(0, bytes_max=MUCH, limit=MUCH).next_offset == (3 if is_head else 9)
    # Where the last one ended there is nothing to find; `read` tells why.
    if is_head:
        assert log.find(3, bytes_max=MUCH, limit=MUCH) is None
    with pytest.raises(DamagedBatch):
        log.read(3, bytes_max=MUCH)
