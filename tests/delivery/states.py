"""The states of a message for one group, and the events between them. No other transition may happen."""

from enum import Enum

from penstock.delivery import Delivery


class State(Enum):
    """What a group has done with a message."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting for a retry"
    ACKED = "acked"
    DEAD = "dead"
    EXPIRED = "expired"


class Event(Enum):
    """What can happen to a message."""

    LEASE = "lease"
    ACK = "ack"
    FAIL = "fail"
    GIVE_UP = "give up"
    RELEASE = "release"
    DUE = "due"
    EXPIRE = "expire"
    LOSE = "lose"
    COMMIT = "commit"
    REOPEN = "reopen"
    REWIND = "rewind"


MEANINGS: dict[Event, str] = {
    Event.LEASE: "a poll hands it out",
    Event.ACK: "its holder is done; late and by offset, while no other holds it",
    Event.FAIL: "its holder nacks it, or does not answer in time",
    Event.GIVE_UP: "out of attempts, rejected, or out of time where the topic says so: a dead letter",
    Event.RELEASE: "its holder went away",
    Event.DUE: "the delay is over",
    Event.EXPIRE: "its time to live is over",
    Event.LOSE: "retention, compaction or damage took it out of the log",
    Event.COMMIT: "a cumulative ack passed it",
    Event.REOPEN: "redriven to this group",
    Event.REWIND: "the group was reset to before it",
}

FINISHED = frozenset({State.ACKED, State.DEAD, State.EXPIRED})
_UNFINISHED = (State.READY, State.LEASED, State.WAITING)

NEXT: dict[tuple[State, Event], State] = {
    (State.READY, Event.LEASE): State.LEASED,
    (State.READY, Event.EXPIRE): State.EXPIRED,
    (State.READY, Event.GIVE_UP): State.DEAD,
    **{(state, Event.ACK): State.ACKED for state in _UNFINISHED},
    (State.LEASED, Event.FAIL): State.WAITING,
    (State.LEASED, Event.GIVE_UP): State.DEAD,
    (State.LEASED, Event.RELEASE): State.READY,
    (State.WAITING, Event.DUE): State.READY,
    **{(state, Event.COMMIT): State.ACKED for state in _UNFINISHED},
    **{(state, Event.LOSE): State.EXPIRED for state in _UNFINISHED},
    # Only dead letters are redriven; a message that was acked since is delivered once more.
    **{(state, Event.REOPEN): State.READY for state in sorted(FINISHED, key=lambda one: one.value)},
    **{(state, Event.REWIND): State.READY for state in State},
}


def can_become(before: State, after: State) -> bool:
    """Whether one event leads from one state to the other."""
    return any(start is before and end is after for (start, _), end in NEXT.items())


def state_of(delivery: Delivery, offset: int) -> State:
    """Returns the state of a message. All finished messages are ACKED: only the records say why."""
    if delivery.progress.is_finished(offset):
        return State.ACKED
    if offset in delivery.waiting:
        return State.WAITING
    if any(offset in lease.offsets() for lease in delivery.leases.by_number.values()):
        return State.LEASED
    return State.READY
