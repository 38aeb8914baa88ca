"""Named commits: messages that are staged for a sequence of a name, and the commit that publishes them once."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import NotFound, PartitionFaulty
from ..model import Buffer, Message
from .answers import LeaseAnswer, check_answers
from .bounds import DISTINCT, MESSAGES_MAX, NAMES_MAX, PAGE_MAX, PUBLISH_MESSAGES_MAX, Within, items
from .command import EVERY_TOPIC, Command
from .forms import Http, Named
from .principals import Action
from .publish import Delayed
from .transactions import MESSAGES_STAGED, Participant, Places, Staged

R = TypeVar("R")


class OpenStaging(Command[str], frozen=True):
    """Begin a staging of an attempt for one sequence of a name; its id, which lives 24 hours.

    The first one of a node makes the topic in which commits are decided. Refused: the name, the sequence, the writer or
    the attempt is out of its limits. Forbidden: another key has the name. CommitNameTaken, SequenceCommitted,
    OverCommitQuota, PartitionFaulty.
    """

    action: ClassVar[Action] = Action.PUBLISH
    is_structural: ClassVar[bool] = True
    name: str
    sequence: int
    writer: str
    # What the writer calls this attempt, for those who look; nothing depends on it.
    attempt: str = ""


class StageNamed(Command[Sequence[Staged]], frozen=True):
    """Stage messages, or delayed ones, for a named commit, which schedules these; all or none.

    With a partition and a sequence, which is that of the first message, a repeat is recognised. UnknownStaging,
    NotFound, OutOfSequence; Refused: a message has an idempotency key.
    """

    action: ClassVar[Action] = Action.PUBLISH
    packed_bytes_max: ClassVar[int | None] = None
    is_repeatable: ClassVar[bool] = False
    staging: str
    topic: str
    messages: Annotated[Sequence[Message], items(PUBLISH_MESSAGES_MAX)]
    partition: int | None = None
    sequence: int | None = None
    delayed: Annotated[Sequence[Delayed], items(PUBLISH_MESSAGES_MAX)] = ()

    def topics(self) -> Iterable[str]:
        return (self.topic,)

    def check_sums(self) -> None:
        MESSAGES_STAGED.check(len(self.messages) + len(self.delayed))


class StageNamedBatch(Command[Staged], frozen=True):
    """Stage a batch that a client encoded, without a producer's marks, for a named commit.

    `sequence` is that of its first message, counted in this partition from 0 for each staging: a repeat is recognised.
    As `StageNamed`; the reply is about its first message.
    """

    action: ClassVar[Action] = Action.PUBLISH
    staging: str
    topic: str
    partition: int
    sequence: int
    batch: Buffer

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class StageNamedAnswers(Command[None], frozen=True):
    """Ack, nack or reject leased messages with a named commit; all or none.

    They belong to the staging until it ends: no lease of them expires, and no other answer for them is taken. A commit
    that lists the staging carries the answers out; once it is dropped the messages are with their leases again. Another
    staging of the same sequence and writer may answer the same messages, and the commit lists one of the two. A repeat
    changes nothing.

    UnknownStaging, NotFound, OverCommitQuota; StaleReceipt: a lease holds one of the messages no more. Refused: one is
    answered twice, or with something else.
    """

    action: ClassVar[Action] = Action.ANSWER
    is_durable: ClassVar[bool] = True
    staging: str
    answers: Annotated[Sequence[LeaseAnswer], items(NAMES_MAX)]

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.answers}

    def check_sums(self) -> None:
        check_answers(self.answers)


class StagingRef(NamedTuple):
    """A staging that a commit publishes, and how many messages it has: all that were answered, and no others."""

    staging: str
    messages: int


class NamedCommit(NamedTuple):
    """Where a named commit is.

    Drivers answer with it when it is complete; before that only if a partition cannot take its part now. Then the
    decision stands, and the same command tells later what came of it. `places` is where its messages are, if it is the
    last of its name. `is_repeat`: this sequence was committed before, and nothing was published now.
    """

    name: str
    sequence: int
    last_sequence: int
    is_repeat: Annotated[bool, Named("already_committed")]
    is_complete: bool
    places: Places


class CommitStagings(Command[NamedCommit], frozen=True):
    """Publish exactly these stagings of a name, once, for ever, and drop all others of this sequence and lower ones.

    A sequence at or below the last one is answered, and publishes nothing. `fingerprint` is what the commit holds, in
    words of its client. RepeatDiffers: the sequence is the last one, and was committed with another one. NotFound:
    nothing was ever staged under the name; CommitNameTaken; UnknownStaging; StagingMismatch: one is of another name,
    sequence or writer, or holds another number of messages, or answers what another one of the list does;
    CommitInProgress; OverCommitQuota: too many at once; PartitionFaulty.
    """

    action: ClassVar[Action] = Action.PUBLISH
    takes_steps: ClassVar[bool] = True
    name: str
    sequence: int
    writer: str
    stagings: Annotated[Sequence[StagingRef], items(MESSAGES_MAX)]
    # No other commit of this name comes: it is forgotten after 24 hours, and can never publish these stagings again.
    is_one_off: bool = False
    fingerprint: str = ""

    def end_of(self) -> int | str:
        return self.name


class DropStagings(Command[int], frozen=True):
    """Give stagings up before their commit; how many there were. Unknown ones are gone already."""

    action = Action.PUBLISH
    http = Http("POST", "/stagings/drop", "Give stagings up before their commit", items="dropped")
    tag = "commits"
    errors = (PartitionFaulty,)
    stagings: Annotated[Sequence[str], items(MESSAGES_MAX), DISTINCT]


class StagingFacts(msgspec.Struct, frozen=True):
    """A staging that waits for its commit."""

    staging: str
    sequence: int
    writer: str
    attempt: str
    age_ms: int
    participants: tuple[Participant, ...]


class CommitNameFacts(msgspec.Struct, frozen=True):
    """A name: its last commit, and what is staged for the next ones."""

    name: str
    owner: str
    # Of the last commit; None if there was none.
    sequence: int | None
    writer: str | None
    age_ms: int | None
    # Whether all partitions have published their part.
    is_complete: bool
    is_one_off: bool
    places: Places
    staging_count: int
    staged_messages: int
    staged_bytes: int
    # What the last commit holds, in words of its client; empty if it said none.
    fingerprint: str = ""
    # Of one name that is asked for; not in a list.
    stagings: tuple[StagingFacts, ...] | UnsetType = UNSET


class _SeeNames(Command[R], frozen=True):
    action = Action.SEE_TRANSACTIONS
    is_query = True
    tag = "commits"

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC


class ListCommitNames(_SeeNames[list[CommitNameFacts]], frozen=True):
    """Names of commits, ordered by name."""

    is_walk = True
    http = Http(
        "GET",
        "/commits",
        "Names of commits: the last commit of each, and what is staged",
        items="commits",
        cursor="name",
    )
    after: Annotated[str, Named("cursor")] = ""
    limit: Annotated[int, Within(1, PAGE_MAX + 1, is_cut=True)] = 1000


class DescribeCommitName(_SeeNames[CommitNameFacts], frozen=True):
    """One name, with its stagings. NotFound."""

    http = Http("GET", "/commits/{commit=name}", "One name of commits, with its stagings")
    errors = (NotFound, PartitionFaulty)
    name: str


class ResetCommitName(Command[CommitNameFacts], frozen=True):
    """Forget a name; the reply is what it was. Its stagings are dropped, and any writer may begin with any sequence.

    For administrators. NotFound; CommitInProgress: its last commit is being applied.
    """

    action: ClassVar[Action] = Action.ABORT_TRANSACTION
    audit_line: ClassVar[str] = (
        "commit name {command.name} forgotten, its last sequence was {reply.sequence}"
    )
    name: str

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC
