"""Named commits as JSON: stagings, commits, names."""

import msgspec

from ..commits import CommitNameFacts, NamedCommit, StagingFacts
from .messages import Int64, MessageIn, Strict
from .paging import PageQuery
from .transactions import ParticipantOut, PlacedOut


class OpenStagingIn(Strict):
    """For which sequence a writer stages, and what it calls this attempt."""

    sequence: Int64
    writer: str
    attempt: str = ""


class StagingOut(msgspec.Struct):
    """What the attempt names with everything that it stages, for 24 hours."""

    staging: str
    name: str
    sequence: int
    writer: str


class StageNamedIn(Strict):
    """Messages of a staging; all or none. With `partition` and the `sequence` of the first a repeat is recognised.

    All of them have a `delay` or `deliver_at`, and the commit schedules them, or none has.
    """

    topic: str
    messages: list[MessageIn]
    partition: Int64 | None = None
    sequence: Int64 | None = None


class StagedMessageOut(msgspec.Struct):
    partition: int
    sequence: int
    duplicate: bool


class StagedMessagesOut(msgspec.Struct):
    """They are durable, and have offsets once they are committed."""

    staged: int
    results: list[StagedMessageOut]


class StagingRefIn(Strict):
    """A staging that is committed, and how many messages it has."""

    staging: str
    messages: Int64


class NamedCommitIn(Strict):
    """Exactly these stagings are published. `one_off`: no other commit of this name comes.

    `fingerprint` says what the commit holds, in at most 100 characters; a repeat with another one is refused.
    """

    sequence: Int64
    writer: str
    stagings: list[StagingRefIn]
    one_off: bool = False
    fingerprint: str = ""


class NamedCommitOut(msgspec.Struct):
    """A commit, and where its messages are, if it is the last of its name.

    `already_committed`: it was before, and nothing was published now. Not `complete`: it is decided for good, and a
    partition cannot take its part now. The same request tells later what came of it.
    """

    name: str
    sequence: int
    last_sequence: int
    already_committed: bool
    complete: bool
    offsets: list[PlacedOut]


class DropStagingsIn(Strict):
    stagings: list[str]


class DroppedOut(msgspec.Struct):
    """How many of them there were."""

    dropped: int


class StagingFactsOut(msgspec.Struct):
    """A staging that waits for its commit."""

    staging: str
    sequence: int
    writer: str
    attempt: str
    age_ms: int
    participants: list[ParticipantOut]


class CommitNameOut(msgspec.Struct):
    """The last commit of a name, and what is staged for the next ones."""

    name: str
    owner: str
    sequence: int | None
    writer: str | None
    age_ms: int | None
    complete: bool
    one_off: bool
    fingerprint: str
    offsets: list[PlacedOut]
    staging_count: int
    staged_messages: int
    staged_bytes: int


class CommitNameDetailsOut(CommitNameOut):
    stagings: list[StagingFactsOut]


class CommitNamesQuery(PageQuery):
    """Ordered by name."""


class CommitNamesOut(msgspec.Struct):
    commits: list[CommitNameOut]
    cursor: str | None


def commit_out(one: NamedCommit) -> NamedCommitOut:
    places = [PlacedOut(*each) for each in one.places]
    return NamedCommitOut(
        one.name, one.sequence, one.last_sequence, one.is_repeat, one.is_complete, places
    )


def _fields(one: CommitNameFacts) -> dict[str, object]:
    return {
        "name": one.name,
        "owner": one.owner,
        "sequence": one.sequence,
        "writer": one.writer,
        "age_ms": one.age_ms,
        "complete": one.is_complete,
        "one_off": one.is_one_off,
        "fingerprint": one.fingerprint,
        "offsets": [PlacedOut(*each) for each in one.places],
        "staging_count": one.staging_count,
        "staged_messages": one.staged_messages,
        "staged_bytes": one.staged_bytes,
    }


def name_out(one: CommitNameFacts) -> CommitNameOut:
    return CommitNameOut(**_fields(one))  # type: ignore[arg-type]  # Each has the type of its field.


def details_out(one: CommitNameFacts) -> CommitNameDetailsOut:
    stagings = [_staging_out(each) for each in one.stagings]
    return CommitNameDetailsOut(**_fields(one), stagings=stagings)  # type: ignore[arg-type]  # As above.


def _staging_out(one: StagingFacts) -> StagingFactsOut:
    participants = [ParticipantOut(*each) for each in one.participants]
    return StagingFactsOut(
        one.staging, one.sequence, one.writer, one.attempt, one.age_ms, participants
    )
