"""The answers of a consumer until they are sent, and the messages that it holds and has not answered.

No I/O. Safe to use from several threads: handlers answer, the consumer's background sends.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, NamedTuple

from ..api.answers import Kind, LeaseAnswer, LeaseOutcome
from ..api.arguments import type_name
from ..api.bounds import NAMES_MAX
from ..errors import PenstockError, Refused, StaleReceipt, Unreachable
from .leased_messages import Delivered, LeasedPart, Polled, Received, shortened
from .poll import refusals_of

_LOG = logging.getLogger("penstock.client")

# Half of what the server takes in one request.
_MESSAGES_A_REQUEST = 50_000
# Each reason that differs is sent. A server that takes less than this in one request could hardly take messages.
_REASON_BYTES_A_REQUEST = 1 << 20

OneOrMany = Delivered | Polled[Delivered] | Iterable[Delivered]
"""One message of a consumer, or many."""


class PendingAnswer(NamedTuple):
    """One answer to many messages of a part, before it is encoded."""

    part: LeasedPart
    kind: Kind
    reason: str = ""
    ms: int | None = None

    def encoded(self, offsets: list[int]) -> LeaseAnswer:
        part = self.part
        lease = part.topic, part.partition, part.group, part.lease
        return LeaseAnswer(self.kind, *lease, offsets, self.reason, self.ms)


class AnswerBuffer:
    """Answers that are not sent yet, and the parts that hold messages without an answer."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pending: dict[PendingAnswer, list[int]] = {}
        # Acks of single messages: nearly all answers are, and a part is a cheaper key than an answer.
        self._acks: dict[LeasedPart, list[int]] = {}
        self._held: dict[LeasedPart, None] = {}
        self._unsent: list[LeaseAnswer] = []
        self._is_closed = False

    def leave_to_parent(self) -> None:
        """After a fork: forget what the parent answers and holds. A thread of it may hold the lock of before."""
        self._lock = Lock()
        for kept in (self._pending, self._acks, self._held, self._unsent):
            kept.clear()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to send, and no message to extend."""
        return not (self._pending or self._acks or self._held or self._unsent)

    def track(self, parts: Iterable[LeasedPart], now_s: float) -> None:
        """Hold parts that a poll has just brought."""
        with self._lock:
            for part in parts:
                part.buffer, part.leased_at_s = self, now_s
                self._held[part] = None

    def close(self) -> None:
        """Drop what is held: the consumer sends no more answers, and a message that has none comes again."""
        with self._lock:
            self._is_closed = True
            for part in [*self._held]:
                self._keep(part, set())

    def add(
        self, part: LeasedPart, offset: int, kind: Kind, reason: str = "", ms: int | None = None
    ) -> bool:
        """Answer one message; False if it was answered before."""
        with self._lock:
            is_first = (
                part.is_unanswered(offset) if kind is Kind.EXTEND else self._claim(part, offset)
            )
            if is_first:
                answer = PendingAnswer(part, kind, reason, ms)
                self._pending.setdefault(answer, []).append(offset)
        return is_first

    def add_many(
        self, messages: OneOrMany, kind: Kind, reason: str = "", ms: int | None = None
    ) -> None:
        """Answer one message, several, or all of a poll that have no answer. Refused if one is no message."""
        reason = shortened(reason)
        if isinstance(messages, Polled):
            for part in messages.parts:
                self.add_all(part, kind, reason, ms)
            return
        for message in messages_of(messages):
            self.add(message.part, message.offset, kind, reason, ms)

    def ack(self, part: LeasedPart, offset: int) -> bool:
        """Ack one message; False if it was answered before."""
        with self._lock:
            is_first = self._claim(part, offset)
            if is_first:
                self._acks.setdefault(part, []).append(offset)
        return is_first

    def _claim(self, part: LeasedPart, offset: int) -> bool:
        if part.unanswered is None:
            part.unanswered = set(part.offsets)
        if offset not in part.unanswered:
            return False
        part.unanswered.remove(offset)
        if not part.unanswered:
            self._held.pop(part, None)
        return True

    def _keep(self, part: LeasedPart, unanswered: set[int]) -> None:
        """From now on only these messages of a part are held."""
        part.unanswered = unanswered
        if not unanswered:
            self._held.pop(part, None)

    def add_all(self, part: LeasedPart, kind: Kind, reason: str = "", ms: int | None = None) -> int:
        """Answer all messages of a part that have no answer; returns how many those were."""
        with self._lock:
            if part not in self._held:
                return 0
            offsets = part.unanswered_offsets()
            self._keep(part, set())
            self._pending.setdefault(PendingAnswer(part, kind, reason, ms), []).extend(offsets)
        return len(offsets)

    def extend_held(self, ms: int, oldest_s: float, youngest_s: float) -> None:
        """Extend every lease that was taken between two moments."""
        with self._lock:
            for part in self._held:
                if oldest_s <= part.leased_at_s <= youngest_s:
                    answer = PendingAnswer(part, Kind.EXTEND, ms=ms)
                    self._pending.setdefault(answer, []).extend(part.unanswered_offsets())

    def is_held(self, part: LeasedPart) -> bool:
        """Whether a part has messages without an answer."""
        return part in self._held

    def held_partitions(self) -> set[str]:
        """The partitions that have messages without an answer."""
        with self._lock:
            return {part.place for part in self._held}

    def forget(self, places: Iterable[str]) -> None:
        """Drop what is held of partitions that belong to other members now."""
        lost = set(places)
        with self._lock:
            for part in [one for one in self._held if one.place in lost]:
                self._keep(part, set())

    def drop_stale(self, error: PenstockError) -> None:
        """Drop the message that an error of the server names: its lease is over."""
        receipt = str(error.fields.get("receipt", ""))
        with self._lock:
            for part in [*self._held]:
                if receipt.startswith(f"{part.topic}:{part.partition}:") and receipt.endswith(
                    f":{part.group:x}.{part.lease:x}"
                ):
                    stale = error.fields.get("offset")
                    self._keep(part, {one for one in part.unanswered_offsets() if one != stale})

    def finish_below(self, place: str, offset: int) -> None:
        """Drop the messages of a partition that a commit finished."""
        with self._lock:
            for part in [one for one in self._held if one.place == place]:
                self._keep(part, {one for one in part.unanswered_offsets() if one >= offset})

    def withhold(self, part: LeasedPart, offsets: set[int]) -> set[int]:
        """Let go of messages without an answer, because a transaction has them; returns those that were held."""
        with self._lock:
            if part not in self._held:
                return set()
            unanswered = set(part.unanswered_offsets())
            self._keep(part, unanswered - offsets)
        return unanswered & offsets

    def restore(self, part: LeasedPart, offsets: set[int]) -> None:
        """Hold messages again that a transaction had, and has given back."""
        with self._lock:
            if offsets and not self._is_closed:
                part.unanswered = offsets.union(part.unanswered or ())
                self._held[part] = None

    def held_parts(self) -> list[LeasedPart]:
        with self._lock:
            return [*self._held]

    def take(self) -> list[LeaseAnswer]:
        """The answers to send next, no more than one request may carry; empty if there are none."""
        with self._lock:
            taken, self._unsent = self._unsent, []
            if taken:
                return taken
            # Acks last: the server refuses to extend a message that was acked.
            acks = {PendingAnswer(part, Kind.ACK): part for part in self._acks}
            count = size = 0
            for answer in [*self._pending, *acks]:
                is_pending = answer in self._pending
                offsets = self._pending[answer] if is_pending else self._acks[answer.part]
                count += len(offsets)
                size += len(answer.reason.encode())
                is_full = count > _MESSAGES_A_REQUEST or size > _REASON_BYTES_A_REQUEST
                if taken and (is_full or len(taken) == NAMES_MAX):
                    break
                taken.append(answer.encoded(offsets))
                if is_pending:
                    del self._pending[answer]
                else:
                    del self._acks[answer.part]
        return taken

    def put_back(self, answers: list[LeaseAnswer]) -> None:
        """Keep answers that could not be sent; `take` returns them next."""
        with self._lock:
            self._unsent = answers


class AnswerReports:
    """Tells the program which of its answers the server did not take."""

    def __init__(
        self, buffer: AnswerBuffer, on_error: Callable[[PenstockError], Any] | None
    ) -> None:
        self._buffer, self.on_error = buffer, on_error or _log
        # Whether the server may have had the answers before: then a nack or reject whose lease is over is no error.
        self.is_repeat = False

    def note_failure(self, error: PenstockError) -> None:
        self.is_repeat |= isinstance(error, Unreachable) and error.is_sent

    def report(
        self, answers: list[LeaseAnswer], outcomes: list[LeaseOutcome | PenstockError]
    ) -> None:
        """The server replied to answers."""
        for answer, outcome in zip(answers, outcomes, strict=True):
            # An ack that the server had before is no refusal: one whose lease is over was never taken.
            is_known = self.is_repeat and answer.kind is not Kind.ACK
            for error in refusals_of([answer], [outcome]):
                self._buffer.drop_stale(error)
                # A message that was only given back needs no report.
                is_quiet = is_known and isinstance(error, StaleReceipt)
                if not is_quiet and answer.kind is not Kind.RELEASE:
                    self.on_error(error)
        self.is_repeat = False


def _log(error: PenstockError) -> None:
    _LOG.warning("an answer was not taken: %s", error)


def messages_of(messages: OneOrMany) -> Iterable[Delivered]:
    """One message, or several, all of them checked before the first is answered. Refused if one is no message.

    An iterator is checked as it goes: what makes its messages may bring no more before some are answered.
    """
    if isinstance(messages, Received) or not isinstance(messages, Iterable):
        return (_checked(messages),)
    checked = map(_checked, messages)
    return checked if isinstance(messages, Iterator) else [*checked]


def _checked(message: Any) -> Delivered:
    if not isinstance(message, Received):
        raise Refused(f"a message of this consumer, or several, not {type_name(message)}")
    return message  # type: ignore[return-value]  # One of `client.poll` has a receipt, too.


def offsets_after(reached: OneOrMany | Mapping[str, int]) -> Mapping[str, int]:
    """The offset behind these messages, by partition; offsets as they are."""
    if isinstance(reached, Mapping):
        return reached
    offsets: dict[str, int] = {}
    for one in messages_of(reached):
        offsets[one.part.place] = max(offsets.get(one.part.place, 0), one.offset + 1)
    return offsets
