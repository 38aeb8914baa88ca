"""Where replies wait for a standby: which go on, and with what, as that one confirms, is late or goes away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import NotEnoughReplicas, Unconfirmed
from penstock.runtime.commit_gate import CommitGate
from penstock.runtime.tickets import Ticket

_MS_NS = 1_000_000
_TIMEOUT_MS = 10


class Commits:
    """The leader, as a test moves it."""

    sequence = committed = 0
    in_sync, is_begun = 2, True

    def advance(self) -> bool:
        return False


class Held:
    """A gate of two copies, its clock, and the tickets that it was given."""

    def __init__(self) -> None:
        self.commits, self.now_ns = Commits(), 0
        self.gate = CommitGate(self.commits, 2, _TIMEOUT_MS, lambda: self.now_ns)
        self.tickets: list[Ticket] = []

    def hold(self) -> None:
        self.commits.sequence += 1
        ticket = Ticket()
        ticket.position = self.commits.sequence
        self.tickets.append(ticket)
        self.gate.hold(ticket)


def test_what_waits_is_unconfirmed_as_soon_as_the_standby_is_away() -> None:
    held = Held()
    held.hold()
    held.gate.give_up_alone()
    assert not held.tickets[0].is_settled, "the standby is there"
    held.commits.in_sync = 1
    held.gate.give_up_alone()
    with pytest.raises(Unconfirmed):
        held.tickets[0].check()
    with pytest.raises(NotEnoughReplicas):
        held.gate.admit()


@given(st.lists(st.sampled_from(("hold", "confirm", "wait", "lose", "join")), max_size=40))
def test_a_ticket_is_settled_once_and_confirmed_just_if_it_is_committed(steps: list[str]) -> None:
    held, expected = Held(), {}
    waiting: dict[int, int] = {}
    for step in steps:
        commits = held.commits
        if step == "hold":
            held.hold()
            waiting[commits.sequence] = held.now_ns
        elif step == "confirm" and commits.in_sync == 2:
            commits.committed = min(commits.committed + 1, commits.sequence)
            held.gate.settle()
            if waiting.pop(commits.committed, None) is not None:
                expected[commits.committed] = True
        elif step == "wait":
            held.now_ns += _TIMEOUT_MS * _MS_NS // 2
            held.gate.expire()
            for position, since_ns in [*waiting.items()]:
                if held.now_ns - since_ns >= _TIMEOUT_MS * _MS_NS:
                    expected[position] = False
                    del waiting[position]
        elif step in {"lose", "join"}:
            commits.in_sync = 1 if step == "lose" else 2
            held.gate.give_up_alone()
            if step == "lose":
                expected |= dict.fromkeys(waiting, False)
                waiting.clear()
    outcomes = {
        ticket.position: ticket.error is None for ticket in held.tickets if ticket.is_settled
    }
    assert outcomes == expected
