"""Every file of a data directory is removed, emptied, cut, changed by a bit or replaced by an older one, one at a time.

What is whole stays readable, what is not is named, and repair, `--forget-progress` and adoption bring back whatever is
there.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.api.start import Start
from penstock.broker.adoption import adopt
from penstock.broker.lost_state import forget_state, log_id_at, lost_states
from penstock.codec import decode_messages, seed_of, verify
from penstock.errors import Damaged, DamagedBatch, MalformedBatch, PenstockError
from penstock.log.scan import find_heads
from penstock.sim import SimDisk, Tree

from .losses import flipped, tree_with
from .test_delay import later
from .test_lost_ends import repair
from .world import TOPIC, World, messages_of

PARTITIONS = 2
Values = dict[tuple[int, int], bytes | None]
Change = Callable[[dict[str, bytes], Tree], None]


def lived(*, is_closed: bool) -> tuple[Tree, Tree]:
    """The files of a broker that did a bit of everything: as they are, and as they were some time ago."""
    world = World()
    world.topic(PARTITIONS, max_retries=7, segment_size_bytes=1000)
    world.group()
    for number in range(12):
        world.publish(b"%d" % number, partition=number % PARTITIONS)
    later(world, b"later", 10**9, partition=0)
    world.ack(*world.poll(3))
    world.take_snapshots()
    world.sync()
    older = world.disk.tree()
    for number in range(12, 24):
        world.publish(b"%d" % number, partition=number % PARTITIONS)
        world.sync()
    world.ack(*world.poll(5))
    world.sync()
    if is_closed:
        world.node.close()
    return world.disk.tree(), older


def removed(path: str) -> Change:
    return lambda files, _: files.pop(path) and None


def emptied(path: str) -> Change:
    return lambda files, _: files.update({path: b""})


def cut(path: str) -> Change:
    """In the middle of a batch: at a border, behind the checkpoint, it would look like a kill before the write."""
    return lambda files, _: files.update({path: files[path][: len(files[path]) // 2 + 1]})


def changed(path: str) -> Change:
    return lambda files, _: flipped(files, path, len(files[path]) // 2) if files[path] else None


def aged(path: str) -> Change:
    return lambda files, older: files.update({path: older.files.get(path, files[path])})


def readable(world: World) -> tuple[Values, bool]:
    """All messages that can be read, and whether any is refused by name."""
    values: Values = {}
    is_refused = bool(world.node.faults()) or TOPIC not in world.topics()
    for partition in () if TOPIC not in world.topics() else world.node.topic(TOPIC).partitions:
        offset = partition.messages.start_offset
        while offset < partition.messages.end_offset:
            try:
                found = world.fetch(Start.at_offset(offset), partition.number)
            except DamagedBatch as damage:
                is_refused, offset = True, damage.next_offset or partition.messages.end_offset
                continue
            values |= {(partition.number, one.offset): one.value for one in messages_of(found)}
            offset = found.next_offset
    return values, is_refused


def whole(tree: Tree, values: Values) -> Values:
    """The messages whose batches are there, whole."""
    disk, there = SimDisk(tree), {}
    for path in tree.files:
        directory, _, name = path.rpartition("/")
        if directory.endswith("/messages") and name.endswith(".log") and f"/{TOPIC}.1/" in path:
            log_id = log_id_at(directory)
            assert log_id is not None
            file, number = disk.open(path), int(directory.split("partition-")[1][0])
            for position, head in find_heads(file, 0, file.size(), seed=seed_of(log_id)):
                data = memoryview(file.read(position, head.length))
                with suppress(MalformedBatch):
                    verify(data, seed=seed_of(log_id))
                    found = decode_messages(data, head)
                    there |= {(number, one.offset): one.value for one in found}
    assert there.items() <= values.items()
    return there


def mended(tree: Tree) -> World:
    """What commands make of it: all logs repaired, lost states begun anew, topics adopted."""
    disk = SimDisk(tree)
    directories = {path.rpartition("/")[0] for path in tree.files}
    for directory in sorted(directories):
        log_id = log_id_at(directory)
        if log_id is not None:
            repair(disk, directory, log_id=log_id)
    try:
        world = World(disk)
    except Damaged:
        # Without meta: docs/operations.md.
        world = World(tree_with(disk.tree(), beside_no_meta))
    for fault in lost_states(world.node):
        forget_state(world.node, fault, world.now())
    world.restart()
    if world.node.faults():
        adopt(world.node, f"topics/default/{TOPIC}.1", world.now())
        world.restart()
    for entry in world.disk.list("set-aside"):
        if entry == f"{TOPIC}.1":
            adopt(world.node, f"set-aside/{entry}", world.now())
    world.restart()
    return world


def beside_no_meta(files: dict[str, bytes]) -> None:
    for path in [*files]:
        data = files.pop(path)
        if path.startswith("topics/default/"):
            files[path.replace("topics/default/", "set-aside/")] = data


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("accident", [removed, emptied, cut, changed, aged])
def test_what_is_whole_is_read_what_is_not_is_named_and_bytes_come_back(
    accident, is_closed, effort
):
    tree, older = lived(is_closed=is_closed)
    values = {(number % PARTITIONS, number // PARTITIONS): b"%d" % number for number in range(24)}
    count = min(len(tree.files), effort(check=8, test=1000, torture=1000))
    bad: list[tuple[object, ...]] = []
    for path in random.Random(accident.__name__).sample(sorted(tree.files), count):
        damaged = tree_with(tree, lambda files, path=path: accident(path)(files, older)).tree()
        there = whole(damaged, values)
        try:
            world = World(SimDisk(damaged))
        except Damaged:
            if not path.startswith("meta/"):
                raise
        else:
            found, is_refused = readable(world)
            is_told = is_refused or bool(world.node.recovery)
            elsewhere = {place for place in there if f"partition-{place[0]}/" not in path}
            if not found.items() <= values.items():
                bad.append((path, "wrong"))
            if found != values and not is_told:
                bad.append((path, "silent", sorted(values.keys() - found.keys())))
            if not path.startswith("meta/") and elsewhere - found.keys():
                bad.append((path, "others", sorted(elsewhere - found.keys())))
        try:
            world = mended(damaged)
            found, _ = readable(world)
            if found != there:
                bad.append((path, "not back", sorted(there.keys() ^ found.keys())))
        except PenstockError as error:
            bad.append((path, "raises", repr(error)))
    assert not bad, "\n".join(map(str, bad))
