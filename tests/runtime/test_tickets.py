"""Everybody at the gate passes, one after the other; one is called to lead; and who only wants to be told is told."""

from threading import Lock

import pytest

from penstock.errors import Unavailable
from penstock.runtime.tickets import Ticket

from .rigs import PATIENCE_S, submit, until


def pass_barrier(ticket: Ticket) -> bool:
    """As whoever waits does it; whether it was called to lead."""
    ticket.barrier.acquire()
    is_called = ticket.is_called
    if is_called:
        ticket.take_lead()
    else:
        ticket.barrier.release()
    return is_called


@pytest.mark.parametrize("count", [1, 2, 9])
def test_all_pass_once_it_is_settled_and_whoever_comes_later_too(count):
    ticket = Ticket()
    waiting = [submit(pass_barrier, ticket) for _ in range(count)]
    ticket.settle(None)
    assert not any(one.result(PATIENCE_S) for one in waiting)
    assert not submit(pass_barrier, ticket).result(PATIENCE_S)


def test_one_is_called_and_the_others_wait_until_it_has_settled():
    ticket = Ticket()
    waiting = [submit(pass_barrier, ticket) for _ in range(5)]
    assert ticket.call_leader()
    until(lambda: any(one.done() for one in waiting))
    assert [one.result() for one in waiting if one.done()] == [True]
    ticket.settle(None)
    assert sorted(one.result(PATIENCE_S) for one in waiting) == [False] * 4 + [True]
    assert not ticket.call_leader()


def test_one_that_is_called_when_all_is_over_still_has_the_turn_and_opens_the_barrier():
    ticket, error = Ticket(), Unavailable("not now")
    assert ticket.call_leader()
    ticket.settle(error)
    assert [submit(pass_barrier, ticket).result(PATIENCE_S) for _ in range(3)] == [
        True,
        False,
        False,
    ]
    with pytest.raises(Unavailable):
        ticket.check()


def test_only_the_first_outcome_counts():
    ticket, error = Ticket(), Unavailable("not now")
    ticket.settle(error)
    ticket.settle(None)
    for wait in (ticket.wait, ticket.check):
        with pytest.raises(Unavailable):
            wait()


def test_each_is_told_once_before_or_after():
    ticket, told = Ticket(), []
    ticket.notify(lambda: told.append("before"))
    assert not told
    ticket.settle(None)
    ticket.notify(lambda: told.append("after"))
    ticket.settle(None)
    assert told == ["before", "after"]


def test_some_wait_and_some_pass():
    ticket = Ticket()
    waiting = [
        submit(ticket.wait) if number % 2 else submit(pass_barrier, ticket) for number in range(6)
    ]
    until(lambda: len(ticket._listeners) == 3)
    ticket.settle(None)
    for one in waiting:
        one.result(PATIENCE_S)


def test_who_lingers_leaves_when_it_is_time_or_all_are_here_or_it_is_settled():
    ticket = Ticket()
    ticket.delay(0.001)
    for end in (ticket.end_delay, lambda: ticket.settle(None)):
        waiting = submit(ticket.delay, PATIENCE_S)
        end()
        waiting.result(PATIENCE_S)
    ticket.end_delay()
    ticket.end_delay()
    ticket.delay(PATIENCE_S)


class Interrupted:
    """A lock that a Ctrl-C cuts off when it is looked at, once."""

    def __init__(self, lock: Lock) -> None:
        self.release, self._looks = lock.release, iter((KeyboardInterrupt,))
        self._lock = lock

    def locked(self) -> bool:
        for interrupt in self._looks:
            raise interrupt
        return self._lock.locked()


def test_a_ctrl_c_leaves_the_gate_open_and_the_rest_to_the_next_who_settles():
    ticket, told = Ticket(), []
    ticket.notify(lambda: told.append(None))
    ticket._is_delayed = Interrupted(ticket._is_delayed)
    with pytest.raises(KeyboardInterrupt):
        ticket.settle(None)
    assert not submit(pass_barrier, ticket).result(PATIENCE_S)
    ticket.settle(Unavailable("too late"))
    assert told == [None]
    ticket.check()


def test_no_thread_at_the_barrier_is_lost_when_it_is_settled_while_one_is_called(effort):
    """Both at once, again and again: a gate that is opened twice raises, one that is opened never holds them all."""
    for _ in range(effort(check=200, test=1_000, torture=50_000)):
        ticket, counting, called = Ticket(), Lock(), []

        def enter(ticket=ticket, counting=counting, called=called) -> None:
            while pass_barrier(ticket):
                with counting:
                    called.append(None)

        waiting = [submit(enter) for _ in range(3)]
        calling = submit(ticket.call_leader)
        ticket.settle(None)
        is_called = calling.result(PATIENCE_S)
        for one in waiting:
            one.result(PATIENCE_S)
        assert len(called) == is_called
