"""Named commits as JSON: stagings, commits, names."""

import msgspec

from .messages import Int64, MessageIn, Strict


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
