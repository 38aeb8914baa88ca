"""Limits at side entrances, and what is left behind: of every command that changes something."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.api import commits, delays, groups, keys, members, queries, schedules, schemas, topics
from penstock.api.command import Command
from penstock.api.publish import Publish
from penstock.api.topics import ConfigureTopic
from penstock.errors import PenstockError
from penstock.model import Message
from tests.server.rigs import InProcess, in_process

from .commands import CHANGING, EXAMPLES
from .disks import recovered
from .scene import GROUP, KEY, MEMBER, Scene

# Dead letters were in the topic before, and an administrator has them come back.
LET_IN_BEFORE = frozenset({"RedriveDeadLetters"})


async def test_no_command_stores_a_message_where_the_backlog_is_full(tmp_path: Path) -> None:
    async with in_process(tmp_path) as broker:
        scene, stored = Scene(broker.driver), set[str]()
        for kind in CHANGING:
            command = EXAMPLES[kind](scene)
            full = [one for one in broker.driver.node.partitions() if one.topic in command.topics()]
            for partition in full:
                scene.run(Publish(partition.topic, [Message(b"unread")], partition.number))
            for partition in full:
                scene.run(ConfigureTopic(partition.topic, {"max_backlog_messages": 1}))
            ends = [partition.messages.end_offset for partition in full]
            with suppress(PenstockError):
                scene.run(command)
            broker.driver.settle()
            if ends != [partition.messages.end_offset for partition in full]:
                stored.add(kind.__name__)
        assert stored <= LET_IN_BEFORE, "room is required of a publish"


Round = Callable[[Scene], list[Command[Any]]]


def _delayed(scene: Scene) -> list[Command[Any]]:
    return [topics.DeleteTopic(scene.delayed())]


def _left(scene: Scene) -> list[Command[Any]]:
    group, topic = scene.joined()
    leave = members.LeaveGroup(group, MEMBER)
    return [leave, groups.CloseGroup(group), topics.DeleteTopic(topic)]


def _forgotten(scene: Scene) -> list[Command[Any]]:
    subject = scene.subject()
    delete = schemas.DeleteSubject
    return [delete(subject), delete(subject, permanent=True)]


def _recurring(scene: Scene) -> list[Command[Any]]:
    topic = scene.recurring()
    return [schedules.DeleteSchedule(topic, KEY), topics.DeleteTopic(topic)]


def _cancelled(scene: Scene) -> list[Command[Any]]:
    topic = scene.delayed()
    return [delays.CancelDelayed(topic, b"k"), topics.DeleteTopic(topic)]


def _dropped(scene: Scene) -> list[Command[Any]]:
    staging = scene.opened()
    return [commits.DropStagings([staging.id]), topics.DeleteTopic(staging.topic)]


def _reset(scene: Scene) -> list[Command[Any]]:
    staging = scene.opened()
    return [commits.ResetCommitName(staging.name), topics.DeleteTopic(staging.topic)]


def _ended(scene: Scene) -> list[Command[Any]]:
    return [
        groups.CloseGroup(topic=(topic := scene.grouped()), group=GROUP),
        topics.DeleteTopic(topic),
    ]


def _asked(scene: Scene) -> list[Command[Any]]:
    start = scene.start()
    (topic,) = (place.partition("/")[0] for place in start.offsets)
    return [start, queries.ForgetQueryStart(start.query), topics.DeleteTopic(topic)]


# What is made, and the commands that end it.
ROUNDS: dict[str, Round] = {
    "topic": _delayed,
    "member": _left,
    "subject": _forgotten,
    "schedule": _recurring,
    "delay": _cancelled,
    "staging": _dropped,
    "commit name": _reset,
    "group": _ended,
    "key": lambda scene: [keys.RevokeKey(scene.key())],
    "query": _asked,
}


def size_of(broker: InProcess) -> tuple[int, ...]:
    """How many records a start reads, how many files there are, and how much is open."""
    tree, node = broker.disk.tree(), broker.driver.node
    meta, partitions = recovered(tree)
    records = len(meta) + sum(len(known) for _, known in partitions.values())
    return records, len(tree.files), len(node.open), len(node.bindings), len(node.keys.by_id)


@pytest.mark.parametrize("name", ROUNDS)
async def test_nothing_is_left_behind_of_what_has_ended(tmp_path: Path, name: str) -> None:
    async with in_process(tmp_path) as broker:
        scene, sizes = Scene(broker.driver), []
        for _ in range(3):
            for command in ROUNDS[name](scene):
                scene.run(command)
            broker.driver.settle()
            sizes.append(size_of(broker))
        # The first of its kind leaves the topics of the broker's own.
        assert sizes[1] == sizes[2]
