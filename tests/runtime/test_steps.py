"""Commands that take several syncs: their callers are told once, whatever becomes of it."""

from penstock.api.principals import LOCAL
from penstock.api.transactions import EndTransaction
from penstock.errors import NoSpace
from penstock.runtime.steps import STEPS_MAX, Steps, WaitingSteps
from penstock.runtime.tickets import Ticket


class Told:
    """Commits of three producers that wait."""

    def __init__(self) -> None:
        self.waiting, self.first = WaitingSteps(), Ticket()
        self.producers: list[int] = []
        for producer in range(3):
            command = EndTransaction(producer, 0, True)
            steps = Steps(command, LOCAL, lambda _steps, one=producer: self.producers.append(one))
            self.waiting.add(steps, self.first)

    def sync(self, *ended: int) -> None:
        ticket = Ticket()
        self.waiting.go_on({*ended}, ticket, None)
        ticket.settle(None)


def test_a_caller_is_told_when_its_transaction_has_ended_and_that_is_confirmed() -> None:
    told, ticket = Told(), Ticket()
    told.first.settle(None)
    told.waiting.go_on({1}, ticket, None)
    assert told.producers == []
    ticket.settle(None)
    assert told.producers == [1]
    told.sync(0, 1, 2)
    assert told.producers == [1, 0, 2]


def test_callers_are_told_after_so_many_syncs_that_something_must_keep_it() -> None:
    told = Told()
    for _ in range(STEPS_MAX):
        told.sync()
    assert told.producers == []
    told.sync()
    assert told.producers == [0, 1, 2]


def test_callers_are_told_when_a_sync_fails() -> None:
    told, later = Told(), Ticket()
    told.first.settle(None)
    told.waiting.watch(later)
    assert told.producers == []
    later.settle(NoSpace("messages"))
    assert sorted(told.producers) == [0, 1, 2]
    assert not told.waiting


class Confirming:
    """Another machine has `committed` of the appends."""

    sequence, committed, in_sync = 10, 0, 2

    def advance(self) -> bool:
        return False


def test_what_other_machines_have_to_confirm_takes_no_turn_before_they_have() -> None:
    told, commits = Told(), Confirming()
    told.waiting.go_on(set(), told.first, commits)
    for _ in range(2 * STEPS_MAX):
        assert not told.waiting.go_on(set(), told.first, commits)
    told.first.settle(None)
    assert told.producers == []
    commits.committed = 10
    assert told.waiting.go_on({1}, told.first, commits)
    assert told.producers == [1]
