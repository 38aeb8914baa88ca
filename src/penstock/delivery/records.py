"""The records of a group in a partition's journal. Sets of offsets are `Runs`; `at_ns` is wall time.

Tags and field order are a file format: a field may be added at the end with a default, nothing else may change.
"""

from enum import IntEnum

import msgspec

from .offsets import Runs

OFFSET_BEYOND = 1 << 62
"""Stands for the end of a range in records of version 1, which do not name it."""


class DeadReason(IntEnum):
    """Why a message became a dead letter."""

    MAX_RETRIES_EXCEEDED = 0
    REJECTED = 1
    TTL_EXPIRED = 2


class Cause(IntEnum):
    """What ended a lease without an ack, for the message's journey. Records of version 1 do not say."""

    UNKNOWN = 0
    NACKED = 1
    LEASE_EXPIRED = 2
    MEMBER_GONE = 3
    REJECTED = 4
    TTL_OVER = 5
    # Strict order: a message before it failed.
    HELD_BACK = 6
    # The member gave it back unseen, or an administrator took it back.
    GIVEN_BACK = 7


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", gc=False):
    group: int


class Leased(_Record, frozen=True, tag=1):
    """One poll: a member holds these offsets for a while. Counts as an attempt for each of them."""

    lease: int
    member: str
    runs: Runs
    cursor: int
    duration_ms: int
    at_ns: int


class Acked(_Record, frozen=True, tag=2):
    """Finished by the holder of a lease."""

    lease: int
    runs: Runs


class Retried(_Record, frozen=True, tag=3):
    """Failed, by nack or by an expired lease; ready again after a delay."""

    lease: int
    runs: Runs
    delay_ms: int
    error: str
    cause: Cause = Cause.UNKNOWN


class Released(_Record, frozen=True, tag=4):
    """Released without an answer; only `counted` keeps the attempt that its lease had counted (-1: none does)."""

    lease: int
    runs: Runs
    counted: int
    cause: Cause = Cause.UNKNOWN


class Extended(_Record, frozen=True, tag=5):
    """A new deadline, counted from when this is applied."""

    lease: int
    runs: Runs
    duration_ms: int


class Buried(_Record, frozen=True, tag=6):
    """Finished as a dead letter. With a sequence (not -1) the outbox forwards it to the dead-letter topic."""

    lease: int
    offset: int
    sequence: int
    reason: DeadReason
    error: str
    at_ns: int
    cause: Cause = Cause.UNKNOWN


class Expired(_Record, frozen=True, tag=8):
    """Finished because the time to live is over."""

    runs: Runs
    cursor: int


class Committed(_Record, frozen=True, tag=9):
    """Everything below is finished, also messages that members held. The floor was at `floor` before.

    With a `lake` the group is that of an archive, which has everything below in this lake.
    """

    offset: int
    floor: int = 0
    member: str = ""
    lake: str = ""


class Rewound(_Record, frozen=True, tag=10):
    """The group starts again from an offset; leases, attempts and receipts are void.

    What it had finished or seen before was below `cursor`, everything below `floor` finished.
    """

    offset: int
    floor: int = 0
    cursor: int = OFFSET_BEYOND


class Reopened(_Record, frozen=True, tag=11):
    """Finished messages that this group, and only it, gets once more."""

    runs: Runs


class Overtaken(_Record, frozen=True, tag=12):
    """The log starts behind the group's floor: unfinished messages below are counted as skipped."""

    offset: int
    floor: int = 0


class Absent(_Record, frozen=True, tag=13):
    """Offsets without a message: compaction removed it, or with `is_lost` it is damaged."""

    runs: Runs
    cursor: int
    is_lost: bool = False


class Moved(_Record, frozen=True, tag=14):
    """Finished here because they were moved to another partition."""

    runs: Runs


class AckedLate(_Record, frozen=True, tag=15):
    """Finished by the member that had them last, after its lease was over, while no other member held them."""

    runs: Runs
    member: str = ""


class ClaimKind(IntEnum):
    """What becomes of messages that a transaction has answered, once it is committed."""

    ACK = 0
    NACK = 1
    REJECT = 2
    # They are below an offset that the transaction commits.
    COMMIT = 3


class Claimed(_Record, frozen=True, tag=16):
    """Messages of a lease belong to a transaction from now on, until it ends.

    `delay_ms` is that of a nack, or -1 for the backoff of the topic.
    """

    producer_id: int
    number: int
    answer: ClaimKind
    lease: int
    runs: Runs
    error: str = ""
    delay_ms: int = -1


class CommitClaimed(_Record, frozen=True, tag=17):
    """A transaction commits everything below an offset; until it ends, the group gets nothing more here.

    With a note it is a commit that may move the group back, as clients that keep offsets themselves make it.
    """

    producer_id: int
    number: int
    offset: int
    member: str = ""
    note: str | None = None


class ClaimsEnded(_Record, frozen=True, tag=18):
    """A transaction ended: what it had claimed is with its leases again, each for its full duration.

    Of a commit the records behind this one, in the same batch, answer the messages. Of an abort, those that were
    disowned are ready at once.
    """

    producer_id: int
    number: int
    is_commit: bool
    # Of an abort: what it had claimed.
    runs: Runs = ()


class Disowned(_Record, frozen=True, tag=19):
    """A member went away: what transactions have claimed of its leases is ready at once if they abort."""

    member: str


class GroupImage(_Record, frozen=True, tag=20):
    """One group on one partition in a snapshot. The records below add to it, in pieces of a few KiB."""

    floor: int
    cursor: int
    next_lease: int
    active_at_ns: int
    expired_count: int
    dead_count: int
    skipped_count: int


class OffsetsKind(IntEnum):
    """What the offsets of an `OffsetsImage` are."""

    FINISHED = 0
    READY = 1
    REOPENED = 2
    AHEAD = 3


class OffsetsImage(_Record, frozen=True, tag=21):
    """Some of the offsets of one kind."""

    offsets_are: OffsetsKind
    runs: Runs


class LeaseImage(_Record, frozen=True, tag=22):
    """A term of a lease."""

    lease: int
    member: str
    runs: Runs
    duration_ms: int
    at_ns: int


class FailureImage(msgspec.Struct, frozen=True, array_like=True):
    """The history of a message that failed before. `wait_ms` is the rest of its delay, or -1."""

    offset: int
    attempts: int
    first_delivery_ns: int
    last_delivery_ns: int
    member: str
    error: str
    wait_ms: int


class FailuresImage(_Record, frozen=True, tag=23):
    """Some of the messages that failed before."""

    failures: tuple[FailureImage, ...]


class AckedImage(_Record, frozen=True, tag=24):
    """Offsets that were acked under a lease, so that a repeated ack is recognised."""

    lease: int
    runs: Runs


class ReleasedImage(_Record, frozen=True, tag=25):
    """Some of the messages that a member released without an answer, and no other has got since."""

    member: str
    runs: Runs


class ClaimImage(_Record, frozen=True, tag=26):
    """Messages of one lease that belong to a transaction."""

    producer_id: int
    number: int
    answer: ClaimKind
    lease: int
    member: str
    at_ns: int
    duration_ms: int
    runs: Runs
    error: str
    delay_ms: int
    is_disowned: bool


ClaimRecord = Claimed | CommitClaimed | ClaimsEnded | Disowned | ClaimImage
DeliveryRecord = (
    Leased
    | Acked
    | Retried
    | Released
    | Extended
    | Buried
    | Expired
    | Committed
    | Rewound
    | Reopened
    | Overtaken
    | Absent
    | Moved
    | AckedLate
    | GroupImage
    | OffsetsImage
    | LeaseImage
    | FailuresImage
    | AckedImage
    | ReleasedImage
    | ClaimRecord
)
