"""The memory of acked leases against sets, and what it costs."""

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.delivery import acked_leases
from penstock.delivery.acked_leases import AckedLeases
from penstock.delivery.offsets import runs_of
from penstock.runtime.malloc import malloc_bytes

ACKS = st.lists(st.tuples(st.integers(1, 6), st.sets(st.integers(0, 40), min_size=1)), max_size=30)


def leases_in(memory: AckedLeases) -> list[int]:
    return sorted({lease for lease, _ in memory.entries()})


def copy_of(memory: AckedLeases) -> AckedLeases:
    """As a snapshot keeps it."""
    copy = AckedLeases()
    for lease, runs in memory.entries():
        copy.add(lease, runs)
    return copy


@given(ACKS)
def test_every_ack_is_remembered_with_its_lease(acks):
    memory, expected = AckedLeases(), dict[int, set[int]]()
    for lease, offsets in acks:
        memory.add(lease, runs_of(BitMap64(offsets)))
        expected.setdefault(lease, set()).update(offsets)
    for one in (memory, copy_of(memory)):
        assert leases_in(one) == sorted(expected)
        assert [set(one.of(lease)) for lease in range(8)] == [
            expected.get(lease, set()) for lease in range(8)
        ]
        assert [lease for lease in range(8) if lease in one] == sorted(expected)
    memory.clear()
    assert not leases_in(memory)


def test_the_last_thousand_are_remembered():
    memory = AckedLeases()
    for lease in range(10_000):
        memory.add(lease, (3 * lease, 2))
        assert 3 * lease in memory.of(max(0, lease))
    known = leases_in(memory)
    assert known == list(range(10_000 - len(known), 10_000))
    assert acked_leases._RUNS_KEPT <= len(known) <= 2 * acked_leases._RUNS_KEPT


def test_a_lease_acked_one_by_one_in_order_is_one_run():
    memory = AckedLeases()
    memory.add(1, (0, 5))
    for offset in range(100_000):
        memory.add(2, (offset, 1))
    assert len(memory.of(2)) == 100_000
    assert len(memory.of(1)) == 5


def test_a_snapshot_forgets_none_of_them():
    memory = AckedLeases()
    for lease in range(10, 3000):
        memory.add(lease, (10 * lease, 1))
        memory.add(lease, (10 * lease + 5, 1))
        memory.add(lease, runs_of(BitMap64([10 * lease + 7, 10 * lease + 9])))
    # A lease that lasts long is the oldest by its number, and the one that was acked last.
    memory.add(1, (3, 1))
    memory.add(1, runs_of(BitMap64([5, 7])))
    copy = copy_of(memory)
    assert leases_in(copy) == leases_in(memory)
    assert [*copy.entries()] == [*memory.entries()]
    assert copy.of(1) == BitMap64([3, 5, 7])


def neighbours(lease):
    return 1 << 40 | 5 * lease, 4


def scattered(lease):
    return runs_of(BitMap64(range(100 * lease, 100 * lease + 50, 2)))


@pytest.mark.skipif(malloc_bytes() is None, reason="needs glibc's mallinfo2")
@pytest.mark.parametrize("acked", [neighbours, scattered])
def test_acked_leases_cost_a_group_less_than_96_kib(acked):
    gc.collect()
    tracemalloc.start()
    try:
        before = malloc_bytes()
        memory = AckedLeases()
        for lease in range(2 * acked_leases._RUNS_KEPT):
            memory.add(lease, acked(lease))
        python_bytes, native_bytes = tracemalloc.get_traced_memory()[0], malloc_bytes() - before
    finally:
        tracemalloc.stop()
    assert len(leases_in(memory)) > 200
    assert max(python_bytes, native_bytes) < 96 * 1024


def test_an_ack_that_is_larger_than_all_that_is_kept_is_kept():
    memory, large = AckedLeases(), BitMap64(range(0, 1 << 20, 2))
    memory.add(1, runs_of(BitMap64([1, 3])))
    memory.add(2, runs_of(large))
    assert memory.of(2) == large
