"""Segments that are lost while no broker runs, after a kill: the partition is faulty, and the file is named."""

import pytest

from penstock.api.health import EventKind
from penstock.api.publish import Delayed
from penstock.errors import PartitionFaulty
from penstock.model import Message

from .losses import log_ends, tree_with
from .world import TOPIC, World

LOGS = ("messages", "state", "delayed")


def use(world: World) -> None:
    """Something new in each log of the first partition, synced."""
    world.publish(b"a", partition=0)
    world.schedule([Delayed(Message(b"later"), world.wall_ns + 10**15)], partition=0)
    world.ack(*world.poll(1))
    world.sync()


@pytest.mark.parametrize("content", [None, b""], ids=["removed", "emptied"])
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("is_rolled", [False, True])
def test_the_active_segment_is_missed_after_a_kill(log, is_rolled, content) -> None:
    """Also right after it was begun, with one message in it."""
    world = World()
    world.topic(partitions=2)
    world.group()
    use(world)
    partition = world.node.partition(TOPIC, 0)
    lost = {
        "messages": partition.messages,
        "state": partition.journal.log,
        "delayed": partition.delayed.log,
    }[log]
    assert lost is not None
    if is_rolled:
        lost.roll()
        use(world)
    path, tree = lost.segments[-1].path, world.disk.tree()

    def lose(files: dict[str, bytes]) -> None:
        del files[path]
        if content is not None:
            files[path] = content

    found = World(tree_with(tree, lose))
    (fault,) = found.node.faults()
    assert fault.number == 0
    # Of a log that has no segment at all, its directory is named.
    is_alone = content is None and not is_rolled
    assert fault.path == (lost.directory if is_alone else path)
    told = [(one.kind, one.path) for one in found.node.recovery]
    assert told == [(EventKind.PARTITION_FAULTY, fault.path)]
    with pytest.raises(PartitionFaulty):
        found.publish(b"b", partition=0)
    found.publish(b"b", partition=1)
    # The operator puts it back.
    found.node.close()
    put_back = tree_with(found.disk.tree(), lambda files: files.update({path: tree.files[path]}))
    healed = World(put_back)
    assert healed.node.faults() == []
    assert log_ends(healed.node.partition(TOPIC, 0)) == log_ends(partition)
