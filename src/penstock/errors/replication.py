"""Nodes with copies of each other: which one leads, and what the others have."""

from .families import Damaged, Refused, Unavailable


class Fenced(Refused):
    """A node spoke in an epoch that is over: another node leads in a later one, or was promised to."""

    code = "FENCED"

    def __init__(self, epoch: int, *, promised: int) -> None:
        super().__init__(
            f"epoch {epoch} is over, this node has promised to follow epoch {promised}",
            epoch=epoch,
            promised=promised,
        )


class NotLeader(Unavailable):
    """Nothing was done. `leader` and `http` are where the leader answers, on the binary port and over HTTP."""

    code = "NOT_LEADER"

    def __init__(self, message: str, *, leader: str, http: str, epoch: int) -> None:
        super().__init__(message, leader=leader, http=http, epoch=epoch)


class LeaderUnknown(NotLeader):
    """Nothing was done, and this node does not know which one leads; a person may have to say so."""


class NotEnoughReplicas(Unavailable):
    """Nothing was done."""

    code = "NOT_ENOUGH_REPLICAS"

    def __init__(self, *, found: int, wanted: int) -> None:
        super().__init__(
            f"{found} of the {wanted} copies that cluster.min_isr asks for can be written: the standby is away",
            copies=found,
            min_isr=wanted,
            retry_after_ms=100,
        )


class Unconfirmed(Unavailable):
    """It is on this machine, and the standby has not said that it has it, too. Repeat it with its producer's number or
    its idempotency key.
    """

    code = "UNCONFIRMED"
    retriable = False

    def __init__(self, reason: str) -> None:
        super().__init__(f"not confirmed by the standby: {reason}; it may be stored or not")


class PromotionRaced(Unavailable):
    """Another node leads, or is promoted, at this moment. Nothing was done; the same promotion may go through soon."""

    code = "PROMOTION_RACED"


class HistoryLost(Damaged):
    """What a leader has of a log ends before what this node knows to be committed. Nothing was cut."""

    code = "HISTORY_LOST"

    def __init__(self, path: str, *, keep_to: int, committed: int) -> None:
        super().__init__(
            f"{path}: the leader's history has only the offsets below {keep_to}, and those below {committed} are known "
            "to be committed; one of the two nodes has lost something, or is an old copy",
            path=path,
            keep_to=keep_to,
            committed=committed,
        )
