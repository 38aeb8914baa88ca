"""The memory of acked leases against sets, and what it costs."""

import gc
import sys
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


@given(ACKS)
def test_every_ack_is_remembered_with_its_lease(acks):
    memory, expected = AckedLeases(), dict[int, set[int]]()
    for lease, offsets in acks:
        memory.add(lease, runs_of(BitMap64(offsets)))
        expected.setdefault(lease, set()).update(offsets)
    assert {lease: set(found) for lease, found in memory.items()} == expected
    assert [set(memory.of(lease)) for lease in range(8)] == [
        expected.get(lease, set()) for lease in range(8)
    ]
    assert [lease for lease in range(8) if lease in memory] == sorted(expected)
    memory.clear()
    assert not list(memory.items())


def test_the_last_thousand_are_remembered():
    memory = AckedLeases()
    for lease in range(10_000):
        memory.add(lease, (3 * lease, 2))
        assert 3 * lease in memory.of(max(0, lease))
    known = [lease for lease, _ in memory.items()]
    assert known == list(range(10_000 - len(known), 10_000))
    assert acked_leases._RUNS_KEPT <= len(known) <= 2 * acked_leases._RUNS_KEPT


def test_a_lease_acked_one_by_one_in_order_is_one_run():
    memory = AckedLeases()
    memory.add(1, (0, 5))
    for offset in range(100_000):
        memory.add(2, (offset, 1))
    assert len(memory.of(2)) == 100_000
    assert len(memory.of(1)) == 5


@pytest.mark.skipif(malloc_bytes() is None, reason="needs glibc's mallinfo2")
def test_acked_leases_cost_a_group_less_than_96_kib():
    gc.collect()
    tracemalloc.start()
    try:
        before = malloc_bytes()
        memory = AckedLeases()
        for lease in range(2 * acked_leases._RUNS_KEPT):
            memory.add(lease, (1 << 40 | 5 * lease, 4))
        python_bytes, native_bytes = tracemalloc.get_traced_memory()[0], malloc_bytes() - before
    finally:
        tracemalloc.stop()
    assert len(list(memory.items())) == 2 * acked_leases._RUNS_KEPT
    assert (
        max(python_bytes, native_bytes) < 96 * 1024
    )  # 24 bytes for each of 2048, and what malloc rounds up


def test_scattered_acks_cost_a_group_less_than_96_kib():
    memory = AckedLeases()
    for lease in range(4000):
        memory.add(lease, runs_of(BitMap64(range(lease * 100, lease * 100 + 50, 2))))
    known = [lease for lease, _ in memory.items()]
    assert known == list(range(4000 - len(known), 4000))
    sizes = [sys.getsizeof(runs_of(offsets)) for _, offsets in memory.items()]
    assert len(known) > 100
    assert sum(sizes) + 100 * len(known) < 96 * 1024
    large = BitMap64(range(0, 1 << 20, 2))
    memory.add(5000, runs_of(large))
    assert memory.of(5000) == large
