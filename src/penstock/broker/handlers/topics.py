"""Topics: created, configured, described, listed, grown, swept and deleted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.topics import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeLayouts,
    DescribeTopic,
    DescribeTopics,
    FinishTopics,
    ListTopics,
    PartitionFacts,
    SweepDue,
    SweepTopics,
    Swept,
    TopicDescription,
    TopicLayout,
    TrimPartition,
)
from ...errors import NotFound
from ..catalogue import Topic
from ..partition import Now, Partition, removal
from ..partition.changes import Handler
from ..partition.dead_letters import dead_letter_topic
from ..partition.slots import Fault
from ..partition.start import visible_end
from ..sweeps import Sweep, sweep_due, sweep_topics
from ..topics import config_from, settings_of
from ..validation import bind_topic
from ..walks import Pieces, Slices, slots_in

if TYPE_CHECKING:
    from ..node import Node


def create_topic(node: "Node", command: CreateTopic, now: Now) -> Pieces[None]:
    config = config_from(command.settings)
    making = node.create_topic(command.name, command.partitions, config, now)
    yield from node.works.attend(making)
    making.check()
    yield from node.works.rebalanced([command.name])


def configure_topic(node: "Node", command: ConfigureTopic, now: Now) -> TopicDescription:
    topic = node.configure_topic(command.name, command.changes, now)
    node.sweeps.plan(command.name, topic.facts.config, now.monotonic_ns)
    bind_topic(node, command.name)
    if node.open_damaged(topic, now):
        node.topic_changed(command.name, now)
    return _description(topic)


def add_partitions(node: "Node", command: AddPartitions, now: Now) -> Pieces[int]:
    making = node.works.grow(command.name, command.total, now)
    yield from node.works.attend(making)
    making.check()
    yield from node.works.rebalanced([command.name, dead_letter_topic(command.name)])
    return making.before


def delete_topic(node: "Node", command: DeleteTopic, now: Now) -> Pieces[None]:
    yield from node.delete_topic(command.name, now)


def finish_topics(node: "Node", _command: FinishTopics, _now: Now) -> Pieces[None]:
    while (work := node.works.unattended()) is not None:
        yield from node.works.attend(work)


def sweep(node: "Node", command: SweepTopics, _now: Now) -> Slices[dict[str, Swept]]:
    chosen = [*node.open] if command.name is None else [node.topic(command.name).facts.name]
    wanted = dict.fromkeys(chosen, (*Sweep,))
    swept, refused = yield from sweep_topics(node, wanted, older_than_ns=command.older_than_ns)
    if refused:
        raise next(iter(refused.values()))
    return swept


def trim(node: "Node", command: TrimPartition, now: Now) -> int:
    partition = node.partition(command.topic, command.partition)
    before = partition.messages.end_offset if command.before is None else command.before
    start_offset = removal.trim(partition, before, now)
    node.note_ends([partition], now)
    return start_offset


def list_topics(node: "Node", command: ListTopics, _now: Now) -> Slices[list[str]]:
    names, listed = sorted(node.open), []
    for name in names:
        if name.startswith(command.prefixes or "") and name in node.open:
            listed.append(name)
        # A name is compared with each prefix, of which there may be thousands.
        yield 1 + len(command.prefixes) // 50
    return listed


def describe_topic(node: "Node", command: DescribeTopic, _now: Now) -> Slices[TopicDescription]:
    description = yield from _described(node, node.topic(command.name))
    if description is None:
        raise NotFound("topic", command.name)
    return description


def describe_topics(
    node: "Node", command: DescribeTopics, _now: Now
) -> Slices[list[TopicDescription]]:
    descriptions: list[TopicDescription] = []
    for name in command.names:
        topic = node.open.get(name)
        description = None if topic is None else (yield from _described(node, topic))
        if description is not None:
            descriptions.append(description)
        yield 1
    return descriptions


def describe_layouts(
    node: "Node", command: DescribeLayouts, _now: Now
) -> Slices[list[TopicLayout]]:
    layouts: list[TopicLayout] = []
    for name in command.names:
        topic, epochs = node.open.get(name), []
        for slot in slots_in(node, [name]):
            epochs.append(-1 if isinstance(slot, Fault) else slot.messages.next_epoch)
            yield 1
        if topic is not None and node.open.get(name) is topic:
            layouts.append(TopicLayout(name, topic.facts.topic_id, tuple(epochs)))
        yield 1
    return layouts


def _described(node: "Node", topic: Topic) -> Slices[TopicDescription | None]:
    """None: it was deleted meanwhile."""
    name, partitions = topic.facts.name, []
    for slot in slots_in(node, [name]):
        partitions.append(_partition_facts(slot))
        yield 1
    if node.open.get(name) is not topic:
        return None
    return TopicDescription(name, tuple(partitions), settings_of(topic.facts.config))


def _description(topic: Topic) -> TopicDescription:
    partitions = tuple(map(_partition_facts, topic.partitions.slots))
    return TopicDescription(topic.facts.name, partitions, settings_of(topic.facts.config))


def _partition_facts(slot: Partition | Fault) -> PartitionFacts:
    if isinstance(slot, Fault):
        return PartitionFacts(slot.number, 0, 0, 0, 0, f"{slot.path}: {slot.reason}")
    log = slot.messages
    start, end = log.start_offset, max(log.start_offset, visible_end(log))
    return PartitionFacts(slot.number, start, end, end - start, log.size)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    CreateTopic: create_topic,
    ConfigureTopic: configure_topic,
    AddPartitions: add_partitions,
    DeleteTopic: delete_topic,
    FinishTopics: finish_topics,
    SweepTopics: sweep,
    SweepDue: sweep_due,
    TrimPartition: trim,
    ListTopics: list_topics,
    DescribeTopic: describe_topic,
    DescribeTopics: describe_topics,
    DescribeLayouts: describe_layouts,
}
