"""Files that are lost while a node is down, and parts that are put back from an earlier time.

`FileLossTrials` starts a node on a copy of the disk with one such fault, and compares it with a node on the disk as it
is. The node must refuse to start, or leave a partition out, or report what is missing; what it serves must not
contradict what was there. The run then goes on with the original disk.

Some losses stay for the real node: it serves the other partitions for some seconds, until the operator stops it and
puts back what was lost.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from functools import lru_cache
from random import Random
from typing import NamedTuple

from ..api.health import RecoveryEvent
from ..broker.meta import read_meta
from ..broker.node import Node
from ..broker.partition import Now, Partition
from ..codec import Head, decode_columns
from ..errors import Damaged, Refused
from ..log import Log
from ..log.layout import LOG
from ..model import TopicPartition
from .disk import SimDisk
from .driver import name_of
from .operations import Tree
from .recovery import state_of
from .violation import Checker, Violation

LOST, OLDER = "file lost", "older part"
# An end that was durable, of a node that was killed before meta recorded it: of an older part, or of a lost file that
# a full disk kept a checkpoint from naming.
UNKNOWABLE = "not told, cannot be known"
_READ_BYTES = 1 << 20
_TREES_KEPT = 4
# The share of starts after a proper close that go on with a lost file.
_OUTAGE_SHARE = 0.3
_PARTITION = re.compile(r"topics/[^/]+/[^/]+/partition-\d+")
Values = dict[int, bytes | None]
"""The values of messages by offset."""

Promised = Mapping[TopicPartition, tuple[int, int, int]]
"""How many messages, how much state and how many delayed messages a client was told to be durable."""


class Loss(NamedTuple):
    """One fault: its kind, what it was done to, and the disk with it."""

    kind: str
    path: str
    tree: Tree


class PartitionOutage(NamedTuple):
    """A loss that stays for a while: which partitions the node does not serve, and the disk before the loss."""

    loss: Loss
    original: Tree
    partitions: frozenset[TopicPartition]

    def restored(self, tree: Tree) -> Tree:
        """Returns the disk with the lost files put back. Violation: the node changed other files of the partitions."""
        for directory in {
            _partition_of(path) for path in _below(self.original, _partition_of(self.loss.path))
        }:
            if _below(self.loss.tree, directory) != _below(tree, directory):
                story = f"{self.loss.path} was lost, and the node changed files of {directory}"
                raise Violation(Checker.DAMAGE_TOLD, story)
        directories = {one for one in self.original.directories if _is_in(one, self.loss.path)}
        files = {**tree.files, **_below(self.original, self.loss.path)}
        return Tree(files, tree.directories | directories)


class Usual:
    """A node on the disk as it is, and the values of its messages, which are read once."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.values = {name_of(one): _values(one.messages) for one in node.partitions()}


class FileLossTrials:
    """Tries losses at the starts of one world. Has its own entropy, so that the world goes on as without them."""

    def __init__(self, seed: int, *, has_room: bool) -> None:
        # Whether the first sync of a segment always finds room for the checkpoint that names it.
        self._has_room = has_room
        self._entropy = Random(f"absence {seed}")  # noqa: S311  # A simulation has to be repeatable.
        # The disk before each of the last starts, oldest first, and the files that any start on it removes.
        self._earlier: deque[tuple[Tree, Set[str]]] = deque(maxlen=_TREES_KEPT)
        self._promised: Promised = {}
        # How often each kind was tried, and how often each outcome came.
        self.tried: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def try_some(self, tree: Tree, now: Now, promised: Promised, *, count: int) -> None:
        """Try `count` losses of each kind on a disk that a node is about to start on."""
        self._promised = promised
        disk = SimDisk(tree)
        started = _started(disk, now)
        # Any start finishes an interrupted sweep.
        leftovers = tree.files.keys() - disk.tree().files.keys()
        if isinstance(started, Node):
            usual = Usual(started)
            for _ in range(count):
                self._try(lose(tree, self._entropy), usual, now, leftovers)
                if len(self._earlier) > 1:
                    # Not the last one: a killed node may have recorded nowhere else how far it came.
                    before, others = self._entropy.choice([*self._earlier][:-1])
                    older = put_back(tree, before, self._entropy)
                    if older is not None:
                        of_older = {path for path in others if _is_in(path, older.path)}
                        self._try(older, usual, now, leftovers | of_older)
        self._earlier.append((tree, leftovers))

    def _try(self, loss: Loss | None, usual: "Usual", now: Now, leftovers: Set[str]) -> None:
        if loss is None:
            return
        self.tried[loss.kind] += 1
        disk = SimDisk(loss.tree)
        found = _started(disk, now)
        outcome = _outcome(loss, usual, found, self._promised)
        if outcome == UNKNOWABLE and loss.kind == LOST and self._has_room:
            raise Violation(Checker.DAMAGE_TOLD, f"{loss.path} is lost, and no event says so")
        self.outcomes[f"{loss.kind}: {outcome}"] += 1
        if isinstance(found, Node):
            found.tick(now)
            found.pump(now)
            found.close()
        _require_kept(loss, disk.tree(), leftovers)
        if outcome == "faulty" and not isinstance(_started(disk, now), Node | Damaged):
            raise Violation(Checker.DAMAGE_TOLD, f"{loss.kind}, {loss.path}: no second start")

    def outage(self, tree: Tree, now: Now) -> PartitionOutage | None:
        """Returns at some starts a loss that leaves partitions faulty and all others as they were, or None."""
        if self._entropy.random() > _OUTAGE_SHARE:
            return None
        paths = [
            path for path in sorted((*tree.files, *tree.directories)) if _PARTITION.match(path)
        ]
        if not paths:
            return None
        path = self._entropy.choice(paths)
        loss = Loss(LOST, path, _without(tree, path))
        usual, found = _started(SimDisk(tree), now), _started(SimDisk(loss.tree), now)
        if not isinstance(usual, Node) or not isinstance(found, Node):
            return None
        if _outcome(loss, Usual(usual), found, self._promised) != "faulty":
            return None
        self.tried[loss.kind] += 1
        self.outcomes[f"{loss.kind}: lived with"] += 1
        faulty = frozenset(TopicPartition(one.topic, one.number) for one in found.faults())
        return PartitionOutage(loss, tree, faulty)


def lose(tree: Tree, entropy: Random) -> Loss | None:
    """Returns the disk without one file or one directory, or None if it is empty."""
    paths = sorted(tree.files if entropy.random() < 0.6 else tree.directories)
    if not paths:
        return None
    path = entropy.choice(paths)
    return Loss(LOST, path, _without(tree, path))


def put_back(tree: Tree, earlier: Tree, entropy: Random) -> Loss | None:
    """Returns the disk with a log, a partition, a topic or meta of an earlier tree, or None if nothing differs."""
    parts = [
        path
        for path in sorted(earlier.directories)
        if path in tree.directories
        and path not in {"topics", "topics/default"}
        and _below(tree, path) != _below(earlier, path)
    ]
    if not parts:
        return None
    path = entropy.choice(parts)
    kept = _without(tree, path)
    directories = {one for one in earlier.directories if _is_in(one, path)}
    return Loss(
        OLDER,
        path,
        Tree({**kept.files, **_below(earlier, path)}, kept.directories | directories),
    )


def _partition_of(path: str) -> str:
    found = _PARTITION.match(path)
    return found[0] if found else path


def _is_in(path: str, directory: str) -> bool:
    return path.startswith(directory) and path[len(directory) :][:1] in {"", "/"}


def _below(tree: Tree, directory: str) -> Mapping[str, bytes]:
    return {path: data for path, data in tree.files.items() if _is_in(path, directory)}


def _without(tree: Tree, lost: str) -> Tree:
    files = {path: data for path, data in tree.files.items() if not _is_in(path, lost)}
    directories = frozenset(path for path in tree.directories if not _is_in(path, lost))
    return Tree(files, directories)


def _started(disk: SimDisk, now: Now) -> Node | Damaged | Refused:
    """Returns a node on this disk, or the error with which it refuses to start."""
    entropy = Random(0)  # noqa: S311  # A node that only starts needs next to no chance.
    try:
        return Node(disk, now=now, entropy=entropy)
    except (Damaged, Refused) as error:
        return error


def _outcome(loss: Loss, usual: Usual, found: Node | Damaged | Refused, promised: Promised) -> str:
    """Returns how the node met the loss: refused, faulty, told, harmless. Violation: it did not notice.

    An end that no client was told of may be lost as in a crash; one that meta has not recorded cannot be missed.
    """
    if not isinstance(found, Node):
        _require_named(loss, str(found))
        return "refused"
    told = [one for one in found.recovery if one not in usual.node.recovery]
    served = {name_of(one): one for one in found.partitions()}
    outcome = "harmless"
    for partition in usual.node.partitions():
        name = name_of(partition)
        directory = partition.messages.directory.rpartition("/")[0]
        now = served.pop(name, None)
        difference = "it is not served"
        if now is not None:
            # A put-back part may show messages again that retention has removed.
            before, after = (
                usual.values[name],
                _values(now.messages, partition.messages.start_offset),
            )
            difference = _difference(partition, now)
            if not difference and before != after:
                difference = "messages cannot be read"
            _require_no_contradiction(loss, partition, now, before, after)
        if not difference:
            continue
        if _is_told(told, loss, directory):
            outcome = "faulty" if now is None else "told"
        elif now is not None and _is_shorter(partition, now, promised.get(name, (0, 0, 0))):
            outcome = "as a crash"
        elif now is not None and _is_shorter(partition, now, _recorded(loss.tree, partition)):
            outcome = UNKNOWABLE
        else:
            story = f"{loss.kind}, {loss.path}: {directory}: {difference}, and no event says so"
            raise Violation(Checker.DAMAGE_TOLD, story)
    if found.keys.by_id != usual.node.keys.by_id and not told:
        raise Violation(Checker.DAMAGE_TOLD, f"{loss.kind}, {loss.path}: other keys, and no event")
    if served:
        story = f"{loss.kind}, {loss.path}: {sorted(served)} came out of nothing"
        raise Violation(Checker.DAMAGE_TOLD, story)
    return outcome


def _ends(partition: Partition) -> tuple[int, int, int]:
    return (
        partition.messages.end_offset,
        partition.journal.log.end_offset,
        partition.delayed.end_offset,
    )


def _is_shorter(before: Partition, now: Partition, least: tuple[int, int, int]) -> bool:
    """Whether only an end is missing, and nothing below `least`: a crash may take that as well."""
    ends, end = _ends(now), now.messages.end_offset
    kept = {offset: value for offset, value in _values(before.messages).items() if offset < end}
    is_whole = kept == _values(now.messages, before.messages.start_offset) and ends != _ends(before)
    return is_whole and all(one >= known for one, known in zip(ends, least, strict=True))


def _recorded(tree: Tree, partition: Partition) -> tuple[int, int, int]:
    """Returns the ends of a partition that meta on this disk has recorded."""
    machine, _ = read_meta(SimDisk(tree))
    found = machine.topics.ends.get((partition.identity.topic_id, partition.number))
    if found is None:
        return 0, 0, 0
    messages, state, delayed = (
        one[1] if one else 0 for one in (found.messages, found.state, found.delayed)
    )
    return messages, state, delayed


def _require_kept(loss: Loss, after: Tree, leftovers: Set[str]) -> None:
    """Violation: the node removed a segment, instead of keeping it, setting it aside or saving what it cut off.

    Segments of state may go: snapshots replace them.
    """
    contents = {*after.files.values()}
    for path, data in loss.tree.files.items():
        if not path.endswith(LOG) or "/state/" in path or path in leftovers or not data:
            continue
        now = after.files.get(path)
        # Zeros at the end are a length that reached the disk before its bytes: a start may cut them.
        is_longer = now is not None and now.startswith(data.rstrip(b"\0"))
        if is_longer or data in contents:
            continue
        cut = path.removesuffix(LOG) + ".cut-"
        if not any(one.startswith(cut) for one in after.files):
            story = f"{loss.kind}, {loss.path}: {path} with {len(data)} bytes is gone"
            raise Violation(Checker.DAMAGE_TOLD, story)


def _require_named(loss: Loss, text: str) -> None:
    part = "/".join(loss.path.split("/")[:4])
    if part not in text and loss.path.partition("/")[0] not in text:
        story = f"{loss.kind}, {loss.path}: the refusal names something else: {text}"
        raise Violation(Checker.DAMAGE_TOLD, story)


def _is_told(told: list[RecoveryEvent], loss: Loss, directory: str) -> bool:
    """Whether an event names the partition; or its topic or meta, if the loss is there."""
    topic = directory.rpartition("/")[0]
    is_about_more = not _is_in(loss.path, topic) or loss.path == topic
    return any(
        _is_in(one.path, directory) or (is_about_more and one.path in {topic, "topics", "meta"})
        for one in told
    )


def _difference(partition: Partition, now: Partition) -> str:
    """Returns what of the state of a partition differs, or an empty text."""
    before, after = state_of(partition), state_of(now)
    start, was_at = now.messages.start_offset, partition.messages.start_offset
    if start < was_at:
        # Retention had removed what an older part shows again, and will once more: nothing is missing.
        after["ends"] = (was_at, now.messages.end_offset, now.journal.log.end_offset)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    if not changed:
        return ""
    name = changed[0]
    return f"{name} {after.get(name)} instead of {before.get(name)}"


def _require_no_contradiction(
    loss: Loss, partition: Partition, now: Partition, before: Values, after: Values
) -> None:
    """Violation: the node serves a message or a group that was not there, or a higher floor.

    Of a state log that is shorter a reset may be missing, and then the floor was higher: the caller judges that.
    """
    name = f"{loss.kind}, {loss.path}: {partition.topic}/{partition.number}"
    for offset, value in after.items():
        if before.get(offset) != value:
            story = f"{name}: offset {offset} is {value!r} instead of {before.get(offset)!r}"
            raise Violation(Checker.DAMAGE_TOLD, story)
    for number, delivery in now.machine.groups.items():
        known = partition.machine.groups.get(number)
        if known is None:
            raise Violation(Checker.DAMAGE_TOLD, f"{name}: group {number} came out of nothing")
        is_shorter = now.journal.log.end_offset < partition.journal.log.end_offset
        if delivery.progress.floor > known.progress.floor and not is_shorter:
            story = f"{name}: the floor of {number} is beyond {known.progress.floor}"
            raise Violation(Checker.DAMAGE_TOLD, story)


def _values(log: Log, start: int = 0) -> Values:
    """Returns the values of all messages from `start` on that can be read, by offset."""
    return {offset: value for offset, value in _read(log) if offset >= start}


def _read(log: Log) -> Iterator[tuple[int, bytes | None]]:
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            run = log.read(offset, bytes_max=_READ_BYTES)
        except Damaged as error:
            following = getattr(error, "next_offset", None)
            if following is None:
                return
            offset = following
            continue
        position = 0
        for head in run.heads:
            yield from _values_in(bytes(run.data[position : position + head.length]), head)
            position += head.length
        offset = run.next_offset


@lru_cache(maxsize=4096)
def _values_in(batch: bytes, head: Head) -> list[tuple[int, bytes | None]]:
    """Returns the values of a batch by offset. The nodes of all trials read the same batches."""
    columns = decode_columns(batch, head)
    return [*zip(columns.offsets, columns.values, strict=True)]
