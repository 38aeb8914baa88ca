"""Files that are lost while a node is down, and parts put back from an earlier moment: told, and never served as true.

A start is tried on a copy of the disk with one such fault, beside one on the disk as it is. The node must refuse, or
say which partition it does not serve, or tell what is gone; what it shows nevertheless must not contradict what was
there. Then the operator puts the original back, and the run goes on as if nothing had been.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from ..broker.node import Node
from ..broker.partition import Now, Partition
from ..broker.recovery import RecoveryEvent
from ..codec import decode_messages
from ..errors import Damaged, Refused
from ..log import Log
from ..log.records import batches_in
from .disk import SimDisk
from .operations import Tree
from .twin import state_of
from .violation import Checker, Violation

LOST, OLDER = "file lost", "older part"
_READ_BYTES = 1 << 20
_TREES_KEPT = 4
Place = tuple[str, int]


class Loss(NamedTuple):
    """One fault: its kind, what it was done to, and the disk with it."""

    kind: str
    path: str
    tree: Tree


class Absences:
    """Tries such faults at the starts of one world. Draws its own lots, so that the world goes on as without them."""

    def __init__(self, seed: int) -> None:
        self._entropy = Random(f"absence {seed}")  # noqa: S311  # A simulation has to be repeatable.
        # What was on the disk before each of the last lives, oldest first.
        self._earlier: deque[Tree] = deque(maxlen=_TREES_KEPT)
        # How often each kind was tried, and what came of it.
        self.tried: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def try_some(self, tree: Tree, now: Now, *, count: int) -> None:
        """Try so many faults of each kind on a disk that a node is about to start on."""
        usual = _started(tree, now)
        if isinstance(usual, Node):
            for _ in range(count):
                self._try(lose(tree, self._entropy), usual, now)
                if len(self._earlier) > 1:
                    # Not the last one: a life that was killed may have told no other part how far it came.
                    before = self._entropy.choice([*self._earlier][:-1])
                    self._try(put_back(tree, before, self._entropy), usual, now)
        self._earlier.append(tree)

    def _try(self, loss: Loss | None, usual: Node, now: Now) -> None:
        if loss is None:
            return
        self.tried[loss.kind] += 1
        found = _started(loss.tree, now)
        outcome = _outcome(loss, usual, found)
        self.outcomes[f"{loss.kind}: {outcome}"] += 1


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


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def _below(tree: Tree, directory: str) -> Mapping[str, bytes]:
    return {path: data for path, data in tree.files.items() if _is_in(path, directory)}


def _without(tree: Tree, gone: str) -> Tree:
    files = {path: data for path, data in tree.files.items() if not _is_in(path, gone)}
    directories = frozenset(path for path in tree.directories if not _is_in(path, gone))
    return Tree(files, directories)


def _started(tree: Tree, now: Now) -> Node | Damaged | Refused:
    """A node on a disk with this content, or why it refuses."""
    entropy = Random(0)  # noqa: S311  # Only for what the copy does, which is nothing.
    try:
        return Node(SimDisk(tree), now=now, entropy=entropy)
    except (Damaged, Refused) as error:
        return error


def _outcome(loss: Loss, usual: Node, found: Node | Damaged | Refused) -> str:
    """How the loss was met: refused, faulty, told, harmless. Violation: not at all."""
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
        if not _is_told(told, loss, directory):
            story = f"{loss.kind}, {loss.path}: {directory}: {difference}, and no event says so"
            raise Violation(Checker.DAMAGE_TOLD, story)
        outcome = "faulty" if now is None else "told"
    if served:
        story = f"{loss.kind}, {loss.path}: {sorted(served)} came out of nothing"
        raise Violation(Checker.DAMAGE_TOLD, story)
    return outcome


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
    before, after = _values(partition.messages), _values(now.messages)
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


def _values(log: Log) -> dict[int, bytes | None]:
    """All messages that can be read, by offset."""
    return dict(_read(log))


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
