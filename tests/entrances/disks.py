"""A disk that is slow to sync, and what it holds when an answer leaves."""

from collections.abc import Iterable
from random import Random
from threading import Event, Timer

from penstock.broker import Node
from penstock.broker.meta import META, read_meta
from penstock.broker.partition import now_of
from penstock.broker.topics import PartitionEnds
from penstock.runtime.commit_gate import CommitGate
from penstock.runtime.threads import ThreadDriver
from penstock.sim import Call, Model, SimDisk, Tree
from penstock.sim.operations import Change, Truncate, Write, describe
from penstock.sim.replay import Replay
from penstock.testing.clock import START_NS

_PATIENCE_S = 0.002
# More than a message takes that moves between partitions.
_STEPS_MAX = 20


class SlowDisk(SimDisk):
    """While it `is_slow`, a sync takes a moment, unless an answer leaves: one that does not wait is always first."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self._answered = Event()
        # Operations before it have been waited for: the files of one sync are slow together.
        self._waited = 0

    def begin(self, call: Call, path: str) -> bool:
        if self.is_slow and call in {Call.SYNC, Call.SYNC_DIRECTORY}:
            changed = self.operations[self._waited :]
            self._waited = len(self.operations)
            if any(isinstance(operation, Write | Truncate) for operation in changed):
                self.wait_for_answer()
        return super().begin(call, path)

    def wait_for_answer(self) -> None:
        self._answered.wait(_PATIENCE_S)

    def ask(self) -> None:
        self.is_slow, self._waited = True, len(self.operations)
        self._answered.clear()

    def answer(self) -> int:
        """An answer leaves; how many operations the disk has seen by then."""
        self._answered.set()
        return len(self.operations)


class PeerCommits:
    """The leader of a pair, as a `CommitGate` sees it: the peer has what was synced here a moment later."""

    in_sync, is_begun = 2, True

    def __init__(self, disk: SlowDisk) -> None:
        self._disk, self.committed = disk, 0
        self.gate = CommitGate(self, 2, 60_000, lambda: 0)
        # Hears of what the peer has confirmed.
        self.driver: ThreadDriver | None = None
        self._sent, self._has_moved = 0, False

    @property
    def sequence(self) -> int:
        """Behind the last operation that a peer is sent: no sync of a file is."""
        operations = self._disk.operations
        end = len(operations)
        while end and not isinstance(operations[end - 1], Write | Truncate):
            end -= 1
        return end

    def advance(self) -> bool:
        end = self.sequence
        if not self._disk.is_slow:
            self._confirm(end)
        elif end > self._sent:
            self._sent = end
            peer = Timer(0, self._confirm_late, (end,))
            peer.daemon = True
            peer.start()
        has_moved, self._has_moved = self._has_moved, False
        return has_moved

    def _confirm_late(self, end: int) -> None:
        self._disk.wait_for_answer()
        assert self.driver is not None
        with self.driver.lock:
            self._confirm(end)
            self._has_moved = True
            self.driver.confirmed()

    def _confirm(self, end: int) -> None:
        self.committed = max(self.committed, end)
        self.gate.settle()


class Judge:
    """Says what a power cut at an answer loses."""

    def __init__(self, disk: SlowDisk) -> None:
        self._disk, self._replay, self._position = disk, Replay(disk.start, Model.STRICT), 0

    def lost(self, at: int) -> list[str]:
        """What had been written before `at` and is missed after a power cut there; nothing: all of it is durable."""
        self._advance(at)
        volatile = self._replay.volatile
        cut = self._replay.tree(dict.fromkeys(volatile))
        return _missed(volatile.values(), cut, self._replay.tree({}))

    def missing(self, began: int, committed: int, at: int) -> list[str]:
        """What a peer misses that has all before `committed`."""
        peer = Replay(self._disk.start, Model.STRICT)
        for number, operation in enumerate(self._disk.operations[:committed]):
            peer.advance(number, operation)
        self._advance(at)
        operations = self._disk.operations[max(began, committed) : at]
        changes = [one for one in operations if isinstance(one, Write | Truncate)]
        return _missed(changes, peer.tree({}), self._replay.tree({}))

    def _advance(self, at: int) -> None:
        for number in range(self._position, at):
            self._replay.advance(number, self._disk.operations[number])
        self._position = max(self._position, at)


def _missed(changes: Iterable[Change], cut: Tree, whole: Tree) -> list[str]:
    """The changes, if a node that starts without them does not come to what it comes to with them."""
    # Indexes are made anew from their logs.
    missing = [text for text in map(describe, changes) if "index " not in text]
    if not missing:
        return []
    # Mostly meta has noted where partitions end, and to open them all takes long.
    know = known_to_meta if all(f" {META}/" in text for text in missing) else recovered
    return [] if know(cut) == know(whole) else missing


def known_to_meta(tree: Tree) -> object:
    """All but where a partition ended when that was noted last, which is no promise."""
    machine, _ = read_meta(SimDisk(tree))
    records = machine.snapshot()
    return sorted(repr(record) for record in records if not isinstance(record, PartitionEnds))


def recovered(tree: Tree) -> object:
    """All that a node knows that has started on these files, once it has gone on with what was under way."""
    now = now_of((START_NS, 0))
    disk = SimDisk(tree)
    node = Node(disk, now=now, entropy=Random(1))
    for _ in range(_STEPS_MAX):
        for partition in node.partitions():
            partition.sync()
        if not node.pump(now):
            break
    partitions = {
        (partition.topic, partition.number): (
            partition.messages.end_offset,
            sorted(map(repr, partition.machine.snapshot())),
        )
        for partition in node.partitions()
    }
    return known_to_meta(disk.tree()), partitions
