"""Errors that leave their process: a pool raises what its process has raised."""

import copy
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from penstock import errors

MADE = [
    errors.NotFound("topic", "orders"),
    errors.TooLarge("value in bytes", found=11, limit=10),
    errors.NoSpace("messages/00000000000000000000.log"),
    errors.NoSpace(reason="the disk is nearly full"),
    errors.StaleReceipt("orders:0:1:1:2"),
    errors.Unreachable("127.0.0.1:9092", "refused"),
    errors.DamagedFile("meta", "it is cut off"),
    errors.Internal(),
]


def fail(number: int) -> None:
    raise MADE[number]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_a_copy_says_the_same(error):
    error.add_note("a note")
    found = copy.copy(error)
    assert type(found) is type(error)
    assert (str(found), found.fields, found.__notes__) == (str(error), error.fields, ["a note"])


def test_a_pool_of_processes_raises_what_its_process_raised():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(errors.NotFound) as found:
            pool.submit(fail, 0).result(120)
        assert pool.submit(len, "it goes on").result(120) == 10
    assert found.value.fields == MADE[0].fields
