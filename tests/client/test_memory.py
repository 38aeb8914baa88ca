"""Memory for bodies is used again only when nobody can see it any more."""

import gc

import pyarrow as pa
import pytest

from penstock.client.memory import Memory

MIB = 1 << 20


def address_of(view):
    return pa.py_buffer(view).address


@pytest.fixture
def memory():
    return Memory()


def test_what_nobody_looks_at_is_used_again(memory):
    first = memory.take(2 * MIB)
    place = address_of(first)
    del first
    assert address_of(memory.take(3 * MIB)) == place


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view[100:200],
        lambda view: memoryview(view[100:])[:10].toreadonly(),
        lambda view: pa.py_buffer(view[100:200]),
        lambda view: pa.Array.from_buffers(pa.uint8(), 100, [None, pa.py_buffer(view)]).slice(5),
    ],
    ids=["view", "view of a view", "buffer", "column"],
)
def test_what_somebody_looks_at_is_left_alone(memory, look):
    view = memory.take(2 * MIB)
    place, kept = address_of(view), look(view)
    del view
    gc.collect()
    assert address_of(memory.take(2 * MIB)) != place
    del kept
    assert place in {address_of(memory.take(2 * MIB)) for _ in range(3)}


def test_only_some_blocks_of_usual_sizes_are_kept(memory):
    held = [memory.take(size) for size in [100, 64 * MIB, *[MIB] * 20]]
    assert [len(one) for one in held] == [100, 64 * MIB, *[MIB] * 20]
    assert len({address_of(one) for one in held}) == len(held)
    assert sum(len(one) for one in memory._blocks) == 20 * MIB
