"""Publishes of many messages, in slices: other commands have their turn before anything is stored, or in between."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.publish import PublishEach, Published, PublishOutcome, Schedule
from ...errors import NotFound, SchemaViolation
from ...model import Message
from ..partition import Now
from ..partition.changes import Handler
from ..partition.delayed_messages import routed_as
from ..partition.publishing import Router
from ..walks import Slices
from .publish import publish_each, schedule

if TYPE_CHECKING:
    from ..catalogue import Topic
    from ..node import Node

# Of one partition: some two milliseconds. Where all are refused it is thirty times as long: each is tried by itself.
_STORED_AT_ONCE = 500
# As many messages of one partition take as long as the batch of a partition does by itself.
_ENTRIES_A_BATCH = 30
# To make a log syncs files: others have their turn after each.
_WHOLE_SLICE = 1 << 20
_ROUTED_AT_ONCE, _ROUTED_AN_ENTRY = 1000, 4


def publish_each_large(
    node: "Node", command: PublishEach, now: Now
) -> Slices[list[PublishOutcome]]:
    """Partition by partition, so that its batches are as large as they can be."""
    messages = command.messages
    outcomes: dict[int, PublishOutcome] = {}
    routed = yield from _routed(node.topic(command.topic), messages, command.partition)
    for number, indexes in routed.items():
        for first in range(0, len(indexes), _STORED_AT_ONCE):
            some = indexes[first : first + _STORED_AT_ONCE]
            piece = PublishEach(command.topic, [messages[index] for index in some], number)
            try:
                stored = publish_each(node, piece, now)
            except NotFound as error:
                if not outcomes:
                    raise
                stored = [error.fresh()] * len(some)
            for index, outcome in zip(some, stored, strict=True):
                outcomes[index] = outcome
                if isinstance(outcome, SchemaViolation):
                    outcome.fields["index"] = index
            now = yield len(some) + _ENTRIES_A_BATCH
    return [outcomes[index] for index in range(len(messages))]


def schedule_large(node: "Node", command: Schedule, now: Now) -> Slices[Sequence[Published]]:
    """All of them at once, when each partition that they go to has a delay log."""
    messages = [routed_as(delayed) for delayed in command.delayed]
    routed = yield from _routed(node.topic(command.topic), messages, None)
    for number in routed:
        partitions = node.topic(command.topic).partitions
        if number < len(partitions) and partitions[number].delayed.log is None:
            partitions[number].make_delay_log(now)
            now = yield _WHOLE_SLICE
    return schedule(node, command, now)


def _routed(
    topic: "Topic", messages: Sequence[Message], to_partition: int | None
) -> Slices[Mapping[int, Sequence[int]]]:
    """Indexes of messages by partition. Those without any key stay together, whatever other calls come in between."""
    if to_partition is not None:
        return {to_partition: range(len(messages))}
    router, count = Router(topic.router.next_call(topic.partitions).number), len(topic.partitions)
    chosen: dict[int, list[int]] = {}
    for first in range(0, len(messages), _ROUTED_AT_ONCE):
        some = messages[first : first + _ROUTED_AT_ONCE]
        for index, message in enumerate(some, first):
            chosen.setdefault(router.choose(message, count), []).append(index)
        yield len(some) // _ROUTED_AN_ENTRY
    return chosen


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    PublishEach: publish_each_large,
    Schedule: schedule_large,
}
