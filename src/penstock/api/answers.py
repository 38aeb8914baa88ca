"""Answers of consumers for messages that they hold: ack, nack, reject, extend, release.

Columns for many messages of one lease, and no receipt written out (docs/formats/answers.md); whether the consumer still
holds them is decided by the broker.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Annotated, ClassVar, Self

import msgspec

from ..errors import MalformedBatch, PenstockError, Refused, StaleReceipt, TooLarge
from ..model import Buffer
from .bounds import MESSAGES_MAX, NAMES_MAX, Bound, Unit, items
from .command import Command
from .principals import Action
from .receipts import Place, Receipt, write_receipt
from .units import Duration, duration_ms

_MAGIC = b"PAN1"
REASON_CHARACTERS_MAX = 4096
_MESSAGES = Bound("messages", Unit.ITEMS, 0, MESSAGES_MAX)
# Each is a record of its own.
_ANSWERS_A_PIECE = 32
# 366 days: longer than any schedule, and far from where times overflow.
DELAY_MS_MAX = 366 * 24 * 3600 * 1000


class Kind(Enum):
    """What is said of messages. A release gives back what was never looked at: it costs no attempt."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"
    RELEASE = "release"


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One answer for some messages of one lease. `group` is the group's number on the partition.

    `attempts`, where they are said, are the deliveries that the receipts of these messages count, in their order: the
    answer for a message with another count is stale. `ms` is the delay of a nack (None: the backoff of the topic), or
    how long an extend lasts.
    """

    kind: Kind
    topic: str
    partition: int
    group: int
    lease: int
    offsets: Sequence[int]
    reason: str = ""
    ms: int | None = None
    attempts: Sequence[int] | None = None


class LeaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a `LeaseAnswer`, and how the group stands on the partition now.

    Messages that the lease does not hold any more are `stale`, those that the partition does not have are `missing`;
    `repeated` were acked under this lease before. `retry_in_ms` has the failed messages that wait for their retry,
    `finished` those that do not come again, and `given_up` what becomes of them: "dlq" (dead letters), "dropped" (the
    topic keeps none), or "kept" (they are dead letters already, and stay where they are).
    """

    floor: int = 0
    has_floor_moved: bool = False
    in_flight: int = 0
    repeated: frozenset[int] = frozenset()
    stale: frozenset[int] = frozenset()
    missing: frozenset[int] = frozenset()
    retry_in_ms: dict[int, int] = {}
    finished: frozenset[int] = frozenset()
    given_up: str = "dlq"


class Answer(Command[list[LeaseOutcome | PenstockError]], frozen=True):
    """Answers, carried out one after the other; an outcome or an error for each."""

    action: ClassVar[Action] = Action.ANSWER
    is_divisible: ClassVar[bool] = True
    counted: ClassVar[str] = "answered"
    answers: Annotated[Sequence[LeaseAnswer], items(NAMES_MAX)]

    def topics(self) -> Iterable[str]:
        return {answer.topic for answer in self.answers}

    def counts(self) -> Iterable[tuple[str, int]]:
        """How many messages it answers, by what it says of them."""
        return [(answer.kind.value, len(answer.offsets)) for answer in self.answers]

    def check_sums(self) -> None:
        check_answers(self.answers)

    def may_be_repeated(self) -> bool:
        # A second nack finds its lease over, which would look like a failure.
        return all(answer.kind in {Kind.ACK, Kind.EXTEND} for answer in self.answers)

    def pieces(self) -> Sequence[Self]:
        answers = self.answers
        if len(answers) <= _ANSWERS_A_PIECE:
            return (self,)
        return [
            msgspec.structs.replace(self, answers=answers[first : first + _ANSWERS_A_PIECE])
            for first in range(0, len(answers), _ANSWERS_A_PIECE)
        ]


class TakeBack(Answer, frozen=True):
    """Answers that an administrator gives instead of the consumers that hold the messages."""

    action: ClassVar[Action] = Action.CHANGE_GROUP
    audit_line: ClassVar[str] = "{command.where}: messages taken back"

    @property
    def where(self) -> str:
        """Topics of the messages."""
        return ", ".join(sorted(self.topics()))


class OffsetKind(Enum):
    """What a consumer that keeps no receipts says of an offset; UP_TO acks it with everything before it."""

    ACK = "ack"
    NACK = "nack"
    ACK_UP_TO = "ack_up_to"


class AnswerOffset(Command[None], frozen=True):
    """An answer by offset. With `owner`, only if that member holds the message.

    NotFound, OffsetOutOfRange, WrongOwner, NotHeld: nothing has happened.
    """

    action: ClassVar[Action] = Action.ANSWER
    counted: ClassVar[str] = "answered"
    kind: OffsetKind
    topic: str
    partition: int
    group: str
    offset: int
    owner: str | None = None
    reason: str = ""

    def topics(self) -> Iterable[str]:
        return (self.topic,)

    def counts(self) -> Iterable[tuple[str, int]]:
        """One message, by what it says of it."""
        return [("nack" if self.kind is OffsetKind.NACK else "ack", 1)]


class ReleaseMember(Command[None], frozen=True):
    """A member went away: everything that it holds of a topic is ready again at once.

    The oldest of its messages keeps its attempt, unless the member has seen none of them (`is_unseen`).
    """

    action: ClassVar[Action] = Action.CONSUME
    topic: str
    group: str
    member: str
    is_unseen: bool = False

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class ReceiptsByLease:
    """The offsets and attempts of receipts, by the place and number of their lease."""

    def __init__(self) -> None:
        self._leases: dict[tuple[Place, int], tuple[list[int], list[int]]] = {}

    def add(self, receipts: Iterable[Receipt]) -> None:
        for place, offset, attempts, lease in receipts:
            columns = self._leases.setdefault((place, lease), ([], []))
            columns[0].append(offset)
            columns[1].append(attempts)

    def require_within_bounds(self) -> None:
        """TooLarge: more leases than a request may answer."""
        if len(self._leases) > NAMES_MAX:
            raise TooLarge("leases in one request", found=len(self._leases), limit=NAMES_MAX)

    def answers(
        self, kind: Kind, reason: str = "", ms: int | None = None
    ) -> dict[tuple[Place, int], LeaseAnswer]:
        """One answer for the messages of each lease."""
        return {
            (place, lease): LeaseAnswer(kind, *place, lease, offsets, reason, ms, attempts)
            for (place, lease), (offsets, attempts) in self._leases.items()
        }


def answers_of(
    receipts: Iterable[Receipt], kind: Kind, reason: str = "", ms: int | None = None
) -> dict[tuple[Place, int], LeaseAnswer]:
    """One answer for the messages of receipts, by the place and number of their lease."""
    leases = ReceiptsByLease()
    leases.add(receipts)
    return leases.answers(kind, reason, ms)


def stale_receipt(answer: LeaseAnswer, offset: int) -> StaleReceipt:
    place = Place(answer.topic, answer.partition, answer.group)
    return StaleReceipt(write_receipt(place, offset, 0, answer.lease))


def check_answers(answers: Iterable[LeaseAnswer]) -> None:
    """TooLarge: they are of too many messages, or a reason is too long."""
    _MESSAGES.check(sum(len(answer.offsets) for answer in answers))
    for answer in answers:
        checked_reason(answer.reason)


def checked_reason(reason: str) -> str:
    if len(reason) > REASON_CHARACTERS_MAX:
        raise TooLarge("reason in characters", found=len(reason), limit=REASON_CHARACTERS_MAX)
    return reason


def check_delay(delay_ms: int) -> None:
    """Refused, unless a nack may put a message off that long."""
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise Refused(f"delay must be in 0..{DELAY_MS_MAX} ms (366 days), got {delay_ms}")


def nack_delay_ms(delay: Duration | None) -> int | None:
    """The delay of a nack in milliseconds; None: the backoff of the topic. Refused if it is none, or too long."""
    if delay is None:
        return None
    delay_ms = duration_ms(delay, "delay")
    check_delay(delay_ms)
    return delay_ms


_DECODE = msgspec.msgpack.Decoder(list[LeaseAnswer]).decode


def decode_answers(data: Buffer) -> list[LeaseAnswer]:
    """Answers that a client encoded. MalformedBatch: the bytes are no answers; TooLarge: of too many messages."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise MalformedBatch(f"answers begin with {_MAGIC.decode()}")
    try:
        found = _DECODE(data[len(_MAGIC) :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBatch(f"answers: {str(error)[:200]}") from None
    _MESSAGES.check(sum(len(answer.offsets) for answer in found))
    return found
