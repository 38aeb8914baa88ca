"""The states of a transactional producer, and what leads from one to the next.

Empty ── begin ──> Ongoing ── commit ──> PrepareCommit ── applied ──> CompleteCommit ── begin ──> Ongoing
                      └────── abort ───> PrepareAbort  ── applied ──> CompleteAbort  ── begin ──> Ongoing

init: from a complete state to Empty. While a transaction is Ongoing, init aborts it first.
forget: from Empty or a complete state to Dead, which nothing leaves.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class TransactionState(Enum):
    """Where the transaction of a producer is; of the last one, if none is open."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def is_decided(self) -> bool:
        """Whether it was committed or aborted, and not everything of that is done."""
        return self in _DECIDED

    @property
    def is_complete(self) -> bool:
        return self in _COMPLETE

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class Step(Enum):
    """What happens to a producer."""

    INIT = "init"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    APPLIED = "applied"
    FORGET = "forget"


_S = TransactionState
_DECIDED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

NEXT: Mapping[tuple[TransactionState, Step], TransactionState] = MappingProxyType(
    {
        (_S.EMPTY, Step.INIT): _S.EMPTY,
        (_S.EMPTY, Step.BEGIN): _S.ONGOING,
        (_S.EMPTY, Step.FORGET): _S.DEAD,
        (_S.ONGOING, Step.BEGIN): _S.ONGOING,
        (_S.ONGOING, Step.COMMIT): _S.PREPARE_COMMIT,
        (_S.ONGOING, Step.ABORT): _S.PREPARE_ABORT,
        # A new session waits for the decision of the old one to be applied, and changes nothing about it.
        (_S.PREPARE_COMMIT, Step.INIT): _S.PREPARE_COMMIT,
        (_S.PREPARE_ABORT, Step.INIT): _S.PREPARE_ABORT,
        (_S.PREPARE_COMMIT, Step.APPLIED): _S.COMPLETE_COMMIT,
        (_S.PREPARE_ABORT, Step.APPLIED): _S.COMPLETE_ABORT,
        (_S.COMPLETE_COMMIT, Step.INIT): _S.EMPTY,
        (_S.COMPLETE_ABORT, Step.INIT): _S.EMPTY,
        (_S.COMPLETE_COMMIT, Step.BEGIN): _S.ONGOING,
        (_S.COMPLETE_ABORT, Step.BEGIN): _S.ONGOING,
        (_S.COMPLETE_COMMIT, Step.FORGET): _S.DEAD,
        (_S.COMPLETE_ABORT, Step.FORGET): _S.DEAD,
    }
)
"""What is not in it cannot happen: a command that would need it is refused."""
