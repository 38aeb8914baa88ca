"""Counts what clients did, from commands and their replies, over all protocols."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..api.command import Command
from ..errors import PartlyPublished, PenstockError


class Activity:
    """An observer of a node, which calls `observe` one command after the other. A reader may see one more or less."""

    def __init__(self) -> None:
        self.published = self.delivered = 0
        self.publish_errors: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def observe(self, command: Command[Any], reply: object) -> None:
        """Count a command; `reply` is the error if it was refused."""
        if command.counted:
            _COUNTS[command.counted](self, command, reply)

    def refuse(self, error: PenstockError, count: int = 1) -> None:
        """Count messages that were refused, also by a protocol that did not ask the node."""
        self.publish_errors[error.code] += count

    def _publish(self, command: Any, reply: Any) -> None:
        field = command.content_field
        count = 1 if field == "batch" else len(getattr(command, field))
        if isinstance(reply, PartlyPublished):
            self._outcomes(reply.results)
        elif isinstance(reply, PenstockError):
            if not command.is_tried_again:
                self.refuse(reply, count)
        elif field == "batch":
            self.published += len(reply.stored)
        elif command.is_each_answered:
            self._outcomes(reply)
        else:
            self.published += count

    def _outcomes(self, outcomes: Any) -> None:
        failed = [one for one in outcomes if isinstance(one, PenstockError)]
        self.published += len(outcomes) - len(failed)
        for error in failed:
            self.refuse(error)

    def _poll(self, _command: Any, reply: Any) -> None:
        if not isinstance(reply, PenstockError):
            self.delivered += len(reply)

    def _answer(self, command: Any, reply: Any) -> None:
        if not isinstance(reply, PenstockError):
            for kind, count in command.counts():
                self.answers[kind] += count


_COUNTS: Mapping[str, Callable[[Activity, Any, Any], None]] = {
    "published": Activity._publish,
    "delivered": Activity._poll,
    "answered": Activity._answer,
}
