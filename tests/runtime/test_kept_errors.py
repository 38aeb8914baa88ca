"""An error that is kept is raised as a fresh one: nothing of what raised it, or raised it before, stays with it."""

import gc
import weakref
from contextlib import suppress
from random import Random

import pytest

from penstock.api.consume import Poll
from penstock.api.principals import LOCAL
from penstock.broker.partition.changes import Done
from penstock.broker.partition.slots import Partitions, fault_of
from penstock.config import StorageConfig
from penstock.errors import DamagedFile, PenstockError, SyncFailed, Unavailable
from penstock.runtime.commit import Committer
from penstock.runtime.commit_gate import CommitGate
from penstock.runtime.tickets import Ticket
from penstock.runtime.waiting_polls import Waiter
from penstock.testing import VirtualClock


class Body:
    """What a command has beside it."""


def met(bodies: list[weakref.ref]) -> PenstockError:
    """An error with the traceback, the cause and the context of what it was met in."""
    body = Body()
    bodies.append(weakref.ref(body))
    try:
        try:
            raise DamagedFile("log", "cut off")
        except DamagedFile as cause:
            raise SyncFailed("log", "no answer") from cause
    except SyncFailed as error:
        return error


def ticket_of(error):
    ticket = Ticket()
    ticket.settle(error.fresh())
    return ticket.check


def waiter_of(error):
    waiter = Waiter(Poll("orders", "g", "m", 1), LOCAL, 0)
    waiter.settle(waiter.messages, error.fresh())
    return waiter.outcome


def committer_of(error):
    committer = Committer(StorageConfig(), VirtualClock(), on_fatal=lambda _error: None)
    committer.fail(error)
    return committer.check


def gate_of(error):
    gate = CommitGate(None, 1, 1000, Random(1).getrandbits)
    gate.close(error.fresh())
    return gate.admit


def done_of(error):
    return Done(error.fresh()).outcome


def fault_in(error):
    partitions = Partitions([fault_of("orders", 0, "topics/orders", error)])
    return lambda: partitions[0]


@pytest.mark.parametrize(
    "keep",
    [ticket_of, waiter_of, committer_of, gate_of, done_of, fault_in],
    ids=lambda keep: keep.__name__,
)
def test_nothing_stays_of_those_that_a_kept_error_is_raised_to(keep):
    bodies: list[weakref.ref] = []
    again = keep(met(bodies))
    raised = []

    def meet() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        with suppress(PenstockError):
            again()
            raise AssertionError("it raises what it keeps")

    gc.disable()
    try:
        for _ in range(3):
            meet()
        assert [one() for one in bodies] == [None] * 4
    finally:
        gc.enable()
    for _ in range(2):
        with pytest.raises(PenstockError) as caught:
            again()
        raised.append(caught.value)
    first, second = raised
    assert first is not second
    assert (type(first), str(first), first.fields) == (type(second), str(second), second.fields)


def test_a_fresh_error_is_equal_and_alone():
    error = Unavailable("later", path="log")
    try:
        try:
            raise DamagedFile("log", "cut off")
        except DamagedFile as cause:
            raise error from cause
    except Unavailable:
        fresh = error.fresh()
    assert (type(fresh), str(fresh), fresh.fields) == (Unavailable, "later", {"path": "log"})
    assert (fresh.__traceback__, fresh.__cause__, fresh.__context__) == (None, None, None)
