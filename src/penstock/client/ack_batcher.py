"""What a consumer says about its messages, gathered until it is sent; and which of them nothing was said about yet.

No I/O. Safe to use from several threads: handlers say, and somebody else sends.
"""

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from ..api.answers import Kind, LeaseAnswer, encode_answers
from ..api.arguments import type_name
from ..api.units import Duration, duration_ms
from ..errors import PenstockError, Refused
from .calls import BATCH_TYPE, Call, reader
from .failures import rebuilt
from .leased_messages import LeasedPart, Polled, Received

# Of what one request may carry, half: there is room for what is said meanwhile.
_MESSAGES_A_REQUEST = 50_000
_REASON_CHARACTERS_MAX = 4096


class PendingAnswer(NamedTuple):
    """One answer to many messages, before it is written."""

    part: LeasedPart
    kind: Kind
    reason: str = ""
    ms: int | None = None

    def written(self, offsets: list[int]) -> LeaseAnswer:
        part = self.part
        place = part.topic, part.partition, part.group, part.lease
        return LeaseAnswer(self.kind, *place, offsets, self.reason, self.ms)


class Delivered(Received, frozen=True, gc=False):
    """A message that a consumer delivered. What is said about it is sent a moment later, with others.

    Each returns False if it was answered already; then nothing happens.
    """

    def ack(self) -> bool:
        """Finish it."""
        return self._answers.ack(self.part, self.offset)

    def nack(self, reason: str = "", *, delay: Duration | None = None) -> bool:
        """Failed: try again after the backoff, or after `delay`; a dead letter if that was the last attempt."""
        ms = None if delay is None else duration_ms(delay)
        return self._answers.add(
            PendingAnswer(self.part, Kind.NACK, shortened(reason), ms), self.offset
        )

    def reject(self, reason: str = "") -> bool:
        """No attempt will ever succeed: a dead letter, at once."""
        return self._answers.add(
            PendingAnswer(self.part, Kind.REJECT, shortened(reason)), self.offset
        )

    def extend(self, timeout: Duration) -> bool:
        """Still working on it: the lease ends so long from now."""
        said = PendingAnswer(self.part, Kind.EXTEND, ms=duration_ms(timeout))
        return self._answers.extend(said, self.offset)

    def give_back(self) -> bool:
        """Not looked at: somebody else may have it at once, and no attempt counts."""
        return self._answers.add(PendingAnswer(self.part, Kind.RELEASE), self.offset)

    @property
    def is_answered(self) -> bool:
        return self._answers.is_answered(self.part, self.offset)

    @property
    def _answers(self) -> "AnswerBuffer":
        found = self.part.answers
        assert found is not None, "a consumer delivers what it keeps account of"
        return found


def reason_text(reason: object) -> str:
    """A reason that can be sent. The name of a file, say, may have letters that UTF-8 cannot hold."""
    if not isinstance(reason, str):
        raise Refused(
            f"a reason is text, not {type_name(reason)}; str(error) makes one of an error"
        )
    return reason if reason.isascii() else reason.encode(errors="backslashreplace").decode()


def shortened(reason: str) -> str:
    """Within the limit of the server: an error message can be of any length."""
    return reason_text(reason)[:_REASON_CHARACTERS_MAX]


class AnswerBuffer:
    """What was said and is not sent, and what nothing was said about."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._said: dict[PendingAnswer, list[int]] = {}
        # Apart from the others, because nearly everything is acked, one by one.
        self._acked: dict[LeasedPart, list[int]] = {}
        self._held: dict[LeasedPart, None] = {}
        self._unsent: list[LeaseAnswer] = []

    @property
    def is_idle(self) -> bool:
        """Nothing to send, and nothing in anybody's hands."""
        return not (self._said or self._acked or self._held or self._unsent)

    def track(self, parts: Iterable[LeasedPart], now_s: float) -> None:
        """Keep account of parts that have just come."""
        with self._guard:
            for part in parts:
                part.answers, part.leased_at_s = self, now_s
                self._held[part] = None

    def add(self, said: PendingAnswer, offset: int) -> bool:
        """Whether that was the first word on this message."""
        with self._guard:
            is_first = self._takes(said.part, offset)
            if is_first:
                self._note(said, [offset])
        return is_first

    def ack(self, part: LeasedPart, offset: int) -> bool:
        """The same for an ack."""
        with self._guard:
            if not self._takes(part, offset):
                return False
            gathered = self._acked.get(part)
            if gathered is None:
                self._acked[part] = [offset]
            else:
                gathered.append(offset)
        return True

    def _takes(self, part: LeasedPart, offset: int) -> bool:
        left = part.unanswered
        if left is None:
            left = part.unanswered = set(part.offsets)
        if offset not in left:
            return False
        left.remove(offset)
        if not left:
            self._held.pop(part, None)
        return True

    def add_all(self, part: LeasedPart, kind: Kind, reason: str = "", ms: int | None = None) -> int:
        """The same for everything of a part that nothing was said about; how many those were."""
        with self._guard:
            if self._held.pop(part, _ABSENT) is _ABSENT:
                return 0
            offsets = part.offsets if part.unanswered is None else sorted(part.unanswered)
            part.unanswered = set()
            self._note(PendingAnswer(part, kind, reason, ms), offsets)
        return len(offsets)

    def _note(self, said: PendingAnswer, offsets: Sequence[int]) -> None:
        gathered = self._said.get(said)
        if gathered is None:
            self._said[said] = [*offsets]
        else:
            gathered.extend(offsets)

    def extend(self, said: PendingAnswer, offset: int) -> bool:
        with self._guard:
            is_ours = said.part in self._held and _is_unanswered(said.part, offset)
            if is_ours:
                self._note(said, [offset])
        return is_ours

    def extend_held(self, ms: int, oldest_s: float, youngest_s: float) -> None:
        """Ask for more time for everything that was taken between two moments."""
        with self._guard:
            for part in self._held:
                if oldest_s <= part.leased_at_s <= youngest_s:
                    offsets = part.offsets if part.unanswered is None else sorted(part.unanswered)
                    self._note(PendingAnswer(part, Kind.EXTEND, ms=ms), offsets)

    def is_answered(self, part: LeasedPart, offset: int) -> bool:
        with self._guard:
            return part not in self._held or not _is_unanswered(part, offset)

    def is_held(self, part: LeasedPart) -> bool:
        """Whether there is anything of a part that nothing was said about."""
        return part in self._held

    def held_partitions(self) -> set[str]:
        """The partitions of which messages are in somebody's hands."""
        with self._guard:
            return {part.place for part in self._held}

    def forget(self, places: Iterable[str]) -> None:
        """Partitions that are ours no more: what was held there is another's now."""
        gone = set(places)
        with self._guard:
            for part in [one for one in self._held if one.place in gone]:
                del self._held[part]
                part.unanswered = set()

    def drop_stale(self, error: PenstockError) -> None:
        """The server says that a message is not ours any more."""
        receipt = str(error.fields.get("receipt", ""))
        with self._guard:
            for part in [*self._held]:
                if receipt.startswith(f"{part.topic}:{part.partition}:") and receipt.endswith(
                    f":{part.group:x}.{part.lease:x}"
                ):
                    left = set(part.offsets) if part.unanswered is None else part.unanswered
                    part.unanswered = left - {error.fields.get("offset")}
                    if not part.unanswered:
                        del self._held[part]

    def finish_below(self, place: str, offset: int) -> None:
        """A commit finished everything below an offset."""
        with self._guard:
            for part in [one for one in self._held if one.place == place]:
                left = part.offsets if part.unanswered is None else part.unanswered
                part.unanswered = {one for one in left if one >= offset}
                if not part.unanswered:
                    del self._held[part]

    def take(self) -> list[LeaseAnswer]:
        """What is to be sent next, in the order in which it was said; no more than fits into one request."""
        with self._guard:
            taken, self._unsent = self._unsent, []
            if taken:
                return taken
            count = 0
            for said in [*self._said]:
                if taken and count + len(self._said[said]) > _MESSAGES_A_REQUEST:
                    break
                offsets = self._said.pop(said)
                count += len(offsets)
                taken.append(said.written(offsets))
            # Last, so that nobody is told that a message which was extended and then acked is not lent any more.
            for part in [] if self._said else [*self._acked]:
                if taken and count + len(self._acked[part]) > _MESSAGES_A_REQUEST:
                    break
                offsets = self._acked.pop(part)
                count += len(offsets)
                taken.append(PendingAnswer(part, Kind.ACK).written(offsets))
        return taken

    def put_back(self, answers: list[LeaseAnswer]) -> None:
        """They could not be sent: they come first the next time."""
        with self._guard:
            self._unsent = answers


_ABSENT: Any = object()


def _is_unanswered(part: LeasedPart, offset: int) -> bool:
    return offset in part.offsets if part.unanswered is None else offset in part.unanswered


class AnswersReply(msgspec.Struct):
    """What the server made of answers."""

    answered: int
    failed: list[dict[str, Any]]

    def errors(self) -> Iterator[PenstockError]:
        """Why some were not taken. Topic, partition and offset are in the fields of each."""
        return (rebuilt(one) for one in self.failed)


_read = reader(AnswersReply)


def send_answers(answers: Sequence[LeaseAnswer]) -> Call[AnswersReply]:
    return Call("POST", "/messages/answers", _read, encode_answers(answers), BATCH_TYPE)


OneOrMany = Delivered | Polled[Delivered] | Iterable[Delivered]
"""One message of a consumer, or many."""


def messages_of(told: OneOrMany) -> Iterable[Delivered]:
    """One message, or several that were looked at, all of them before the first is answered.

    Those of an iterator come one by one: what makes them may get no more before some are answered.
    """
    if isinstance(told, Received):
        return (told,)
    if not isinstance(told, Iterable):
        raise _not_a_message(told)
    if isinstance(told, Iterator):
        return _checked(told)
    return [*_checked(told)]


def _checked(found: Iterable[Any]) -> Iterator[Delivered]:
    for one in found:
        if not isinstance(one, Received):
            raise _not_a_message(one)
        yield one  # type: ignore[misc]  # One of a client has no consumer, and says so.


def _not_a_message(found: object) -> Refused:
    return Refused(f"a message of this consumer, or several, not {type_name(found)}")
