"""Answers for consumed messages, and offsets of groups, inside of transactions: they count once it is committed."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, NamedTuple

from .answers import LeaseAnswer, check_answers
from .bounds import NAMES_MAX, items
from .command import Command
from .principals import Action
from .transactions import OfProducer


class StageAnswers(OfProducer, Command[None], frozen=True):
    """Ack, nack or reject leased messages in the open transaction of a producer, which begins with this; all or none.

    They belong to the transaction until it ends: no lease of them expires, and no other answer for them is taken. Its
    commit carries the answers out, its abort gives the messages back to their leases. A repeat changes nothing.

    NotFound, ProducerFenced, TransactionInProgress; StaleReceipt: a lease holds one of the messages no more. Refused:
    a message is answered twice, or with something else.
    """

    action: ClassVar[Action] = Action.ANSWER
    is_durable: ClassVar[bool] = True
    answers: Annotated[Sequence[LeaseAnswer], items(NAMES_MAX)]

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.answers}

    def check_sums(self) -> None:
        check_answers(self.answers)


class StagedOffset(NamedTuple):
    """Up to where a transaction finishes a partition for a group.

    With a note, a text of the client's own, the commit may also move the group back.
    """

    topic: str
    partition: int
    offset: int
    note: str | None = None


class StageOffsets(OfProducer, Command[None], frozen=True):
    """Commit offsets of a group in the open transaction of a producer, which begins with this; all or none.

    Until the transaction ends, the group gets nothing more of these partitions. `member`, `generation` and `instance`
    are those of the member that reads the partitions; a group without members needs none.

    NotFound, OffsetOutOfRange, ProducerFenced, TransactionInProgress, TooManyGroups, ShareFull; NotOwner,
    UnknownMember, StaleGeneration, RebalanceInProgress, FencedMember: the partitions are not this member's.
    """

    action: ClassVar[Action] = Action.COMMIT
    is_durable: ClassVar[bool] = True
    group: str
    offsets: Annotated[tuple[StagedOffset, ...], items(NAMES_MAX)]
    member: str = ""
    generation: int | None = None
    instance: str = ""

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.offsets}
