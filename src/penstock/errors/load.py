"""A broker that has too much to do, or is about to stop: try again."""

from collections.abc import Sequence

from .families import PenstockError, Refused, Unavailable


class BacklogFull(Unavailable):
    code = "RESOURCE_EXHAUSTED"

    def __init__(
        self, unit: str, *, found: int, adding: int, limit: int, retry_after_ms: int
    ) -> None:
        """`unit`: messages or bytes."""
        # Of a producer's batch. It waits for an empty partition, which may be for ever.
        only = "; so many at once are let in only when nothing is unread" if adding > limit else ""
        super().__init__(
            f"max_backlog_{unit} is {limit}: {found} {unit} unread, {adding} to be added{only}",
            reason=f"backlog_{unit}",
            found=found,
            adding=adding,
            limit=limit,
            retry_after_ms=retry_after_ms,
        )


class PartlyPublished(Unavailable):
    """Some messages of a call were stored and others not. `results` has an answer or an error for each."""

    code = "PARTLY_PUBLISHED"
    # The same call once more would store some of them twice; those that failed may be sent again.
    retriable = False

    def __init__(self, results: Sequence[object]) -> None:
        errors = [one for one in results if isinstance(one, PenstockError)]
        # One reason for all of them, mostly.
        why = f": {errors[0]}" if errors else ""
        super().__init__(
            f"{len(errors)} of {len(results)} messages were not stored{why}",
            failed=len(errors),
            stored=len(results) - len(errors),
        )
        self.results = results


class TooManyRequests(Unavailable):
    code = "RESOURCE_EXHAUSTED"

    def __init__(self, reason: str, *, limit: int, retry_after_ms: int) -> None:
        super().__init__(
            f"{reason}: the limit is {limit}",
            reason=reason,
            limit=limit,
            retry_after_ms=retry_after_ms,
        )


class ShareFull(Refused):
    code = "SHARE_FULL"

    def __init__(self, kind: str, *, holder: str, used: int, limit: int, setting: str) -> None:
        """`holder`: the key whose share it is, or the broker, whose keys share the rest."""
        super().__init__(
            f"{holder} has {used} {kind}, and {setting} is {limit}",
            kind=kind,
            holder=holder,
            used=used,
            limit=limit,
            setting=setting,
        )


class Draining(Unavailable):
    code = "NOT_READY"

    def __init__(self) -> None:
        super().__init__("the broker is stopping", retry_after_ms=1000)
