"""Everybody is woken, a few at a time; and who only wants to be told is told first."""

from collections import deque

import pytest

from penstock.errors import Unavailable
from penstock.runtime.tickets import Ticket, wake_in_turn

from .rigs import PATIENCE_S, submit, until


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_all_wake_up_each_by_another(count):
    tickets = [Ticket(may_lead=True) for _ in range(count)]
    wake_in_turn(deque(tickets), None)
    assert [one.is_settled for one in tickets] == [number < 2 for number in range(count)]
    for one in [submit(ticket.wait) for ticket in tickets]:
        one.result(PATIENCE_S)


def test_who_is_awake_at_once_may_have_woken_the_last():
    """Before whoever wakes them has come to the second."""
    tickets = [Ticket(may_lead=True) for _ in range(2)]
    tickets[0].notify(tickets[0].wait)
    wake_in_turn(deque(tickets), None)
    assert tickets[1].is_settled


def test_all_hear_of_an_error():
    tickets, error = [Ticket(may_lead=True) for _ in range(5)], Unavailable("not now")
    wake_in_turn(deque(tickets), error)
    for one in [submit(ticket.wait) for ticket in tickets]:
        with pytest.raises(Unavailable):
            one.result(PATIENCE_S)


def test_those_without_a_thread_are_told_at_once():
    """Between threads that have yet to wake up; and one of them may fail to be told."""
    told: list[int] = []
    tickets = [Ticket(may_lead=number % 2 == 0) for number in range(6)]
    for number in (1, 3, 5):
        tickets[number].notify(lambda number=number: told.append(number))
    wake_in_turn(deque(tickets), None)
    assert told == [1, 3, 5]
    assert not tickets[4].is_settled
    tickets[0].wait()
    assert tickets[4].is_settled


def test_a_wait_that_ended_in_time_may_be_waited_for_again():
    ticket = Ticket(may_lead=True)
    assert not ticket.wait_for(0.001)
    waiting = submit(lambda: ticket.wait_for(PATIENCE_S))
    ticket.settle(None)
    assert waiting.result(PATIENCE_S)
    until(lambda: ticket.is_settled)
    ticket.wait()
