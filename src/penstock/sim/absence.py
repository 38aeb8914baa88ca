"""Files that are lost while a node is down, and parts put back from an earlier moment: told, and never served as true.

A start is tried on a copy of the disk with one such fault, beside one on the disk as it is. The node must refuse, or
say which partition it does not serve, or tell what is gone; what it shows nevertheless must not contradict what was
there. Then the operator puts the original back, and the run goes on as if nothing had been.

Some losses are found out by the real node instead: it serves the other partitions for some seconds, until the operator
stops it and puts back what was lost.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from random import Random
from typing import NamedTuple

from ..api.health import RecoveryEvent
from ..broker.node import Node
from ..broker.partition import Now, Partition
from ..broker.topics import TopicRecord, Topics
from ..codec import batches_in, decode_messages
from ..config import LogConfig
from ..errors import Damaged, Refused
from ..log import Log, open_log
from ..log.journal import Journal
from ..log.layout import LOG
from ..log.records import RecordFormat
from ..model import LogId
from .disk import SimDisk
from .operations import Tree
from .twin import state_of
from .violation import Checker, Violation

LOST, OLDER = "file lost", "older part"
# An end that was durable, in a life that was killed before meta heard of it.
UNKNOWABLE = "not told, cannot be known"
_READ_BYTES = 1 << 20
_TREES_KEPT = 4
# How many of the starts after a proper close go on without something.
_OUTAGE_SHARE = 0.3
_PARTITION = re.compile(r"topics/[^/]+/partition-\d+")
Place = tuple[str, int]
Promised = Mapping[Place, tuple[int, int, int]]
"""How many messages, how much state and how many delayed messages a client was told to be durable."""


class Loss(NamedTuple):
    """One fault: its kind, what it was done to, and the disk with it."""

    kind: str
    path: str
    tree: Tree


class Outage(NamedTuple):
    """A loss that a node lives with: which partitions it does not serve, and what was on the disk before."""

    loss: Loss
    original: Tree
    places: frozenset[Place]

    def restored(self, tree: Tree) -> Tree:
        """A disk as it is now, with what was lost put back. Violation: what was left of the partitions has changed."""
        for place in {
            _partition_of(path) for path in _below(self.original, _partition_of(self.loss.path))
        }:
            left = _below(self.loss.tree, place)
            if left != _below(tree, place):
                story = f"{self.loss.path} was lost, and the node changed other files of {place}"
                raise Violation(Checker.DAMAGE_TOLD, story)
        directories = {one for one in self.original.directories if _is_in(one, self.loss.path)}
        files = {**tree.files, **_below(self.original, self.loss.path)}
        return Tree(files, tree.directories | directories)


class Absences:
    """Tries such faults at the starts of one world. Draws its own lots, so that the world goes on as without them."""

    def __init__(self, seed: int) -> None:
        self._entropy = Random(f"absence {seed}")  # noqa: S311  # A simulation has to be repeatable.
        # What was on the disk before each of the last lives, oldest first.
        self._earlier: deque[Tree] = deque(maxlen=_TREES_KEPT)
        self._promised: Promised = {}
        # How often each kind was tried, and what came of it.
        self.tried: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def try_some(self, tree: Tree, now: Now, promised: Promised, *, count: int) -> None:
        """Try so many faults of each kind on a disk that a node is about to start on."""
        self._promised = promised
        disk = SimDisk(tree)
        usual = _started(disk, now)
        if isinstance(usual, Node):
            # A sweep that was interrupted is finished by any start.
            leftovers = tree.files.keys() - disk.tree().files.keys()
            for _ in range(count):
                self._try(lose(tree, self._entropy), usual, now, leftovers)
                if len(self._earlier) > 1:
                    # Not the last one: a life that was killed may have told no other part how far it came.
                    before = self._entropy.choice([*self._earlier][:-1])
                    self._try(put_back(tree, before, self._entropy), usual, now, leftovers)
        self._earlier.append(tree)

    def _try(self, loss: Loss | None, usual: Node, now: Now, leftovers: Set[str]) -> None:
        if loss is None:
            return
        self.tried[loss.kind] += 1
        disk = SimDisk(loss.tree)
        found = _started(disk, now)
        outcome = _outcome(loss, usual, found, self._promised)
        self.outcomes[f"{loss.kind}: {outcome}"] += 1
        if isinstance(found, Node):
            found.tick(now)
            found.pump(now)
            found.close()
        _require_kept(loss, disk.tree(), leftovers)
        if outcome == "faulty" and not isinstance(_started(disk, now), Node | Damaged):
            raise Violation(Checker.DAMAGE_TOLD, f"{loss.kind}, {loss.path}: no second start")

    def outage(self, tree: Tree, now: Now) -> Outage | None:
        """In some starts: a loss that leaves partitions faulty and all others as they were."""
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
        if _outcome(loss, usual, found, self._promised) != "faulty":
            return None
        self.tried[loss.kind] += 1
        self.outcomes[f"{loss.kind}: lived with"] += 1
        return Outage(loss, tree, frozenset((one.topic, one.number) for one in found.faults()))


def lose(tree: Tree, entropy: Random) -> Loss | None:
    """A file or a directory with all that is in it disappears; directories as often as files."""
    paths = sorted(tree.files if entropy.random() < 0.6 else tree.directories)
    if not paths:
        return None
    path = entropy.choice(paths)
    return Loss(LOST, path, _without(tree, path))


def put_back(tree: Tree, earlier: Tree, entropy: Random) -> Loss | None:
    """A log, a partition, a topic or meta as it was in an earlier tree. None: nothing is different."""
    parts = [
        path
        for path in sorted(earlier.directories)
        if path in tree.directories
        and path != "topics"
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
    return path == directory or path.startswith(directory + "/")


def _below(tree: Tree, directory: str) -> Mapping[str, bytes]:
    return {path: data for path, data in tree.files.items() if _is_in(path, directory)}


def _without(tree: Tree, gone: str) -> Tree:
    files = {path: data for path, data in tree.files.items() if not _is_in(path, gone)}
    directories = frozenset(path for path in tree.directories if not _is_in(path, gone))
    return Tree(files, directories)


def _started(disk: SimDisk, now: Now) -> Node | Damaged | Refused:
    """A node on a disk, or why it refuses."""
    entropy = Random(0)  # noqa: S311  # Only for what the copy does, which is next to nothing.
    try:
        return Node(disk, now=now, entropy=entropy)
    except (Damaged, Refused) as error:
        return error


def _outcome(loss: Loss, usual: Node, found: Node | Damaged | Refused, promised: Promised) -> str:
    """How the loss was met: refused, faulty, told, harmless. Violation: not at all.

    An end that no client was told of may go as in a crash, and one that meta has not recorded yet cannot be missed.
    """
    if not isinstance(found, Node):
        _require_named(loss, str(found))
        return "refused"
    told = [one for one in found.recovery if one not in usual.recovery]
    served = {(one.topic, one.number): one for one in found.partitions()}
    outcome = "harmless"
    for partition in usual.partitions():
        place = (partition.topic, partition.number)
        directory = partition.messages.directory.rpartition("/")[0]
        now = served.pop(place, None)
        difference = "it is not served" if now is None else _difference(partition, now)
        if now is not None:
            _require_no_contradiction(loss, partition, now)
        if not difference:
            continue
        if _is_told(told, loss, directory):
            outcome = "faulty" if now is None else "told"
        elif now is not None and _is_shorter(partition, now, promised.get(place, (0, 0, 0))):
            outcome = "as a crash"
        elif now is not None and _is_shorter(partition, now, _recorded(loss.tree, partition)):
            outcome = UNKNOWABLE
        else:
            story = f"{loss.kind}, {loss.path}: {directory}: {difference}, and no event says so"
            raise Violation(Checker.DAMAGE_TOLD, story)
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
    """Whether only an end is missing, and nothing below these ends: a crash may take that as well."""
    ends, end = _ends(now), now.messages.end_offset
    kept = {offset: value for offset, value in _values(before.messages).items() if offset < end}
    is_whole = kept == _values(now.messages, before.messages.start_offset) and ends != _ends(before)
    return is_whole and all(one >= known for one, known in zip(ends, least, strict=True))


def _recorded(tree: Tree, partition: Partition) -> tuple[int, int, int]:
    """The ends of a partition that meta on this disk knows."""
    log, _ = open_log(SimDisk(tree), "meta", log_id=LogId(1), config=LogConfig())
    topics, form = Topics(), RecordFormat[TopicRecord](TopicRecord)
    Journal(log, form).recover(topics, message_end=log.end)
    found = topics.ends.get((partition.identity.topic_id, partition.number))
    if found is None:
        return 0, 0, 0
    messages, state, delayed = (
        one[1] if one else 0 for one in (found.messages, found.state, found.delayed)
    )
    return messages, state, delayed


def _require_kept(loss: Loss, after: Tree, leftovers: Set[str]) -> None:
    """Every segment that there was is still there, in its place or set aside, or what was cut off it is beside it.

    State goes with its snapshots.
    """
    contents = {*after.files.values()}
    for path, data in loss.tree.files.items():
        if not path.endswith(LOG) or "/state/" in path or path in leftovers or not data:
            continue
        now = after.files.get(path)
        # A length that reached the disk before its bytes is cut, and there is nothing in it to keep.
        is_longer = now is not None and now.startswith(data.rstrip(b"\0"))
        cuts = [one for one in after.files if one.startswith(path.removesuffix(LOG) + ".cut-")]
        if not is_longer and data not in contents and not cuts:
            story = f"{loss.kind}, {loss.path}: {path} with {len(data)} bytes is gone"
            raise Violation(Checker.DAMAGE_TOLD, story)


def _require_named(loss: Loss, text: str) -> None:
    part = "/".join(loss.path.split("/")[:3])
    if part not in text and loss.path.partition("/")[0] not in text:
        story = f"{loss.kind}, {loss.path}: the refusal names something else: {text}"
        raise Violation(Checker.DAMAGE_TOLD, story)


def _is_told(told: list[RecoveryEvent], loss: Loss, directory: str) -> bool:
    """Whether an event names the partition, or what is wrong with all of its topic or with meta."""
    topic = directory.rpartition("/")[0]
    is_about_more = not _is_in(loss.path, topic) or loss.path == topic
    return any(
        _is_in(one.path, directory) or (is_about_more and one.path in {topic, "topics", "meta"})
        for one in told
    )


def _difference(partition: Partition, now: Partition) -> str:
    """What of a partition is not as it was; empty if everything is."""
    before, after = state_of(partition), state_of(now)
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    if changed:
        name = changed[0]
        return f"{name} {after.get(name)} instead of {before.get(name)}"
    if _values(partition.messages) != _values(now.messages):
        return "messages cannot be read"
    return ""


def _require_no_contradiction(loss: Loss, partition: Partition, now: Partition) -> None:
    """What is served is a part of what was there, told or not."""
    name = f"{loss.kind}, {loss.path}: {partition.topic}/{partition.number}"
    # What retention has removed since is true as well.
    start = partition.messages.start_offset
    before, after = _values(partition.messages), _values(now.messages, start)
    for offset, value in after.items():
        if before.get(offset) != value:
            story = f"{name}: offset {offset} is {value!r} instead of {before.get(offset)!r}"
            raise Violation(Checker.DAMAGE_TOLD, story)
    for number, delivery in now.machine.groups.items():
        known = partition.machine.groups.get(number)
        if known is None:
            raise Violation(Checker.DAMAGE_TOLD, f"{name}: group {number} came out of nothing")
        if delivery.progress.floor > known.progress.floor:
            story = f"{name}: the floor of {number} is beyond {known.progress.floor}"
            raise Violation(Checker.DAMAGE_TOLD, story)


def _values(log: Log, start: int = 0) -> dict[int, bytes | None]:
    """All messages from `start` on that can be read, by offset."""
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
        for head, batch in batches_in(run.data, seed=log.seed):
            for number, message in enumerate(decode_messages(batch, head), head.base_offset):
                yield number, message.value
        offset = run.next_offset
