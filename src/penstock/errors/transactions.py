"""Producers with a sequence, transactions and named commits."""

from .families import Refused, Unavailable
from .requests import NotFound


class OutOfSequence(Refused):
    code = "OUT_OF_SEQUENCE"

    def __init__(self, producer: int, reason: str, *, next_sequence: int | None = None) -> None:
        """`next_sequence`: what is below it is stored; None if the epoch was replaced."""
        super().__init__(
            f"producer {producer}: {reason}",
            producer=producer,
            reason=reason,
            next_sequence=next_sequence,
        )


class ProducerFenced(Refused):
    code = "PRODUCER_FENCED"

    def __init__(self, producer_id: int, *, epoch: int, current: int, said: str = "") -> None:
        why = f" ({said})" if said else ""
        super().__init__(
            f"producer {producer_id} is in epoch {current}, not {epoch}{why}: begin a new session, "
            "and send the transaction again",
            producer_id=producer_id,
            epoch=epoch,
            current_epoch=current,
            reason=said,
        )


class TransactionEnded(Refused):
    code = "TRANSACTION_ENDED"

    def __init__(self, producer_id: int, state: str, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"the transaction of producer {producer_id} is {state} already{why}",
            producer_id=producer_id,
            state=state,
            reason=reason,
        )


class TransactionInProgress(Refused):
    code = "TRANSACTION_IN_PROGRESS"
    retriable = True

    def __init__(self, producer_id: int, state: str) -> None:
        super().__init__(
            f"the last transaction of producer {producer_id} is {state}: try again in a moment",
            producer_id=producer_id,
            state=state,
        )


class UnknownStaging(NotFound):
    code = "UNKNOWN_STAGING"

    def __init__(self, staging: str) -> None:
        super().__init__(
            "staging",
            f"{staging}: it expired, or was dropped when its sequence or a later one was committed, or never was",
        )
        self.fields.update(staging=staging)


class CommitNameTaken(Refused):
    code = "COMMIT_NAME_TAKEN"

    def __init__(self, name: str, *, writer: str, holder: str) -> None:
        super().__init__(
            f"writer {holder} commits under {name}, and {writer} may not: what it sends may be there already. "
            f"Use another name, or `penstock commits reset {name}` if the former writer is gone for good",
            name=name,
            writer=writer,
            holder=holder,
        )


class SequenceCommitted(Refused):
    code = "SEQUENCE_COMMITTED"

    def __init__(self, name: str, sequence: int, *, last: int, fingerprint: str = "") -> None:
        """`fingerprint`: what the commit of the sequence `last` holds, if its client said so."""
        super().__init__(
            f"{name} is committed up to {last}, so nothing can be staged for {sequence}",
            name=name,
            sequence=sequence,
            last_sequence=last,
            fingerprint=fingerprint,
        )


class RepeatDiffers(Refused):
    code = "REPEAT_DIFFERS"

    def __init__(self, name: str, sequence: int, *, held: str, said: str) -> None:
        super().__init__(
            f"sequence {sequence} of {name} is committed and holds {held}; this repeat of it holds {said}, and nothing "
            "of that was published. Repeat what it was, or commit the difference under another name or sequence",
            name=name,
            sequence=sequence,
            held=held,
            said=said,
        )


class StagingMismatch(Refused):
    code = "STAGING_MISMATCH"

    def __init__(self, staging: str, why: str) -> None:
        super().__init__(
            f"staging {staging} {why}: nothing was committed", staging=staging, reason=why
        )


class CommitInProgress(Refused):
    code = "COMMIT_IN_PROGRESS"
    retriable = True

    def __init__(self, name: str, sequence: int) -> None:
        super().__init__(
            f"commit {sequence} of {name} is being applied: try again in a moment",
            name=name,
            sequence=sequence,
        )


class OverCommitQuota(Refused):
    code = "COMMIT_QUOTA"

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"{what}: there may be {limit}", what=what, limit=limit)


class OverStagingQuota(Unavailable):
    code = "STAGING_QUOTA"

    def __init__(self, what: str, *, found: int, adding: int, limit: int) -> None:
        super().__init__(
            f"{limit} bytes may be staged {what}: {found} are, {adding} to be added",
            what=what,
            found=found,
            adding=adding,
            limit=limit,
        )
