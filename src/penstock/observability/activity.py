"""Counts what clients did, from commands and their replies, over all protocols."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..api.answers import Answer, AnswerOffset, OffsetKind, TakeBack
from ..api.command import Command
from ..api.consume import Poll
from ..api.members import PollMember
from ..api.publish import (
    Publish,
    PublishBatch,
    PublishEach,
    PublishRecords,
    PublishValues,
    Schedule,
    ScheduleValues,
)
from ..errors import PartlyPublished, PenstockError


class Activity:
    """An observer of a node, which calls `observe` one command after the other. A reader may see one more or less."""

    def __init__(self) -> None:
        self.published = self.delivered = 0
        self.publish_errors: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def observe(self, command: Command[Any], reply: object) -> None:
        """Count a command; `reply` is the error if it was refused."""
        count = _COUNTS.get(type(command))
        if count is not None:
            count(self, command, reply)

    def refuse(self, error: PenstockError, count: int = 1) -> None:
        """Count messages that were refused, also by a protocol that did not ask the node."""
        self.publish_errors[error.code] += count

    def _publish(self, command: Publish, reply: Any) -> None:
        self._store(reply, len(command.messages))

    def _schedule(self, command: Schedule, reply: Any) -> None:
        self._store(reply, len(command.delayed))

    def _schedule_values(self, command: ScheduleValues, reply: Any) -> None:
        self._store(reply, len(command.values))

    def _store(self, reply: Any, count: int) -> None:
        if isinstance(reply, PartlyPublished):
            self._outcomes(reply.results)
        elif isinstance(reply, PenstockError):
            self.refuse(reply, count)
        else:
            self.published += count

    def _publish_each(self, command: PublishEach, reply: Any) -> None:
        if isinstance(reply, PenstockError):
            self.refuse(reply, len(command.messages))
        else:
            self._outcomes(reply)

    def _outcomes(self, outcomes: Any) -> None:
        failed = [one for one in outcomes if isinstance(one, PenstockError)]
        self.published += len(outcomes) - len(failed)
        for one in failed:
            self.refuse(one)

    def _publish_values(self, command: PublishValues, reply: Any) -> None:
        # The publish coalescer publishes refused ones again, each by itself.
        if not isinstance(reply, PenstockError):
            self.published += len(command.values)

    def _publish_batch(self, _command: PublishBatch | PublishRecords, reply: Any) -> None:
        if isinstance(reply, PenstockError):
            self.refuse(reply)
        else:
            self.published += len(reply.stored)

    def _poll(self, _command: Poll | PollMember, reply: Any) -> None:
        if not isinstance(reply, PenstockError):
            self.delivered += len(reply)

    def _answer(self, command: Answer, reply: Any) -> None:
        if not isinstance(reply, PenstockError):
            for one in command.answers:
                self.answers[one.kind.value] += len(one.offsets)

    def _answer_offset(self, command: AnswerOffset, reply: Any) -> None:
        if not isinstance(reply, PenstockError):
            self.answers["nack" if command.kind is OffsetKind.NACK else "ack"] += 1


_COUNTS: Mapping[type[Command[Any]], Callable[[Activity, Any, Any], None]] = {
    Publish: Activity._publish,
    PublishEach: Activity._publish_each,
    PublishValues: Activity._publish_values,
    PublishBatch: Activity._publish_batch,
    PublishRecords: Activity._publish_batch,
    Schedule: Activity._schedule,
    ScheduleValues: Activity._schedule_values,
    Poll: Activity._poll,
    PollMember: Activity._poll,
    Answer: Activity._answer,
    TakeBack: Activity._answer,
    AnswerOffset: Activity._answer_offset,
}
