"""Tries a power cut at every operation of a scenario, and checks everything that may be left.

    def scenario(disk): ...             does something, and marks what it promised: disk.mark("17 acked")
    def check(disk, marks): ...         recovers from what is left, and asserts that the promises hold
    check_crashes(scenario, check, entropy=random.Random(1))

A mark counts from the operation before it on. So a promise is marked after the operation that earned it, and a
permission (this may be gone) before the operation that uses it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ..errors import PenstockError
from ..ports import Entropy
from .damage import CrashKind, damages, random_damage
from .disk import SimDisk
from .durability import Damage, Model
from .operations import EMPTY, Change, Mark, Operation, Tree, Write, describe
from .replay import Replay

# How many operations before and after the cut a report shows. Crash bugs are about a few neighbours.
_SHOWN_AROUND = 6
_DamageOf = Callable[[dict[int, Change], Entropy], Damage]


@dataclass(slots=True)
class CrashCounts:
    """How many places to cut were tried, how many states there, and how many of the states are distinct."""

    boundaries: int = 0
    enumerated: int = 0
    distinct: int = 0

    def add(self, other: "CrashCounts") -> None:
        self.boundaries += other.boundaries
        self.enumerated += other.enumerated
        self.distinct += other.distinct


@dataclass(frozen=True, slots=True)
class PowerCut:
    """Where the power was cut, and what was lost."""

    model: Model
    kind: CrashKind
    boundary: int
    damage: Damage


class CrashState:
    """What one power cut may leave."""

    __slots__ = ("_entries", "cut", "marks", "tree")

    def __init__(
        self, cut: PowerCut, tree: Tree, marks: tuple[object, ...], entries: list[Operation | Mark]
    ) -> None:
        self.cut, self.tree, self.marks = cut, tree, marks
        self._entries = entries

    @property
    def boundary(self) -> int:
        """Operations that were done before the cut, marks not counted."""
        return self.cut.boundary

    @property
    def kind(self) -> CrashKind:
        return self.cut.kind

    def disk(self) -> SimDisk:
        """Returns a disk with what is left; everything on it is durable."""
        return SimDisk(self.tree)

    def describe(self) -> str:
        """Model, kind, boundary, what was lost, and the operations around the cut."""
        cut = self.cut
        lost = [self._describe_loss(number) for number in sorted(cut.damage)] or ["nothing"]
        return "\n".join(
            [
                f"{cut.model.value} model, {cut.kind.value}, after {cut.boundary} operations",
                f"lost: {'; '.join(lost)}",
                *self._describe_neighbours(),
            ]
        )

    def _describe_loss(self, number: int) -> str:
        operation, left = self._entries[number], self.cut.damage[number]
        text = f"#{number} {describe(operation)}"
        if left is None or not isinstance(operation, Write):
            return text
        if len(left) < len(operation.data):
            return f"{text} all but {len(left)} bytes"
        return f"{text} zeros in place of its bytes"

    def _describe_neighbours(self) -> Iterator[str]:
        place = _place_of(self.cut.boundary, self._entries)
        for number in range(max(0, place - _SHOWN_AROUND), len(self._entries)):
            if number == place:
                yield "  -- power cut --"
            if number == place + _SHOWN_AROUND:
                return
            yield f"  #{number} {describe(self._entries[number])}"
        if place == len(self._entries):
            yield "  -- power cut --"


class CrashStates:
    """All states that a power cut at any operation of a disk may leave, each once.

    Two states are the same if the bytes are and if the same marks came before: a state that was fine before a
    promise may break it afterwards. Iterating fills `counts`.
    """

    def __init__(
        self,
        disk: SimDisk,
        model: Model,
        *,
        entropy: Entropy,
        kinds: Collection[CrashKind] = tuple(CrashKind),
        subsets: int = 4,
    ) -> None:
        self.counts = CrashCounts()
        self._start, self._entries = disk.start, list(disk.operations)
        self._model, self._kinds = model, kinds
        self._entropy, self._subsets = entropy, subsets
        self._seen: set[tuple[int, int]] = set()

    def __iter__(self) -> Iterator[CrashState]:
        self.counts = CrashCounts()
        self._seen.clear()
        replay = Replay(self._start, self._model)
        marks: list[object] = []
        for number, entry in enumerate(self._entries):
            if isinstance(entry, Mark):
                marks.append(entry.what)
                continue
            yield from self._states_here(replay, tuple(marks))
            replay.advance(number, entry)
        yield from self._states_here(replay, tuple(marks))

    def _states_here(self, replay: Replay, marks: tuple[object, ...]) -> Iterator[CrashState]:
        boundary = self.counts.boundaries
        self.counts.boundaries += 1
        for kind in self._kinds:
            found = damages(kind, replay.volatile, subsets=self._subsets, entropy=self._entropy)
            for damage in found:
                self.counts.enumerated += 1
                tree = replay.tree(damage)
                key = (len(marks), tree.fingerprint())
                if key in self._seen:
                    continue
                self._seen.add(key)
                self.counts.distinct += 1
                cut = PowerCut(self._model, kind, boundary, damage)
                yield CrashState(cut, tree, marks, self._entries)


def check_crashes(
    scenario: Callable[[SimDisk], None],
    check: Callable[[SimDisk, tuple[object, ...]], None],
    *,
    entropy: Entropy,
    models: Collection[Model] = tuple(Model),
    kinds: Collection[CrashKind] = tuple(CrashKind),
    subsets: int = 4,
    start: Tree = EMPTY,
) -> CrashCounts:
    """Run a scenario once and check every state that a power cut in it may leave. Returns what was tried.

    An AssertionError or PenstockError of `check` becomes an AssertionError that describes the state; any other
    exception passes with the description as its note.
    """
    disk = SimDisk(start)
    scenario(disk)
    counts = CrashCounts()
    for model in models:
        states = CrashStates(disk, model, entropy=entropy, kinds=kinds, subsets=subsets)
        for state in states:
            _check_state(state, check)
        counts.add(states.counts)
    return counts


def _check_state(state: CrashState, check: Callable[[SimDisk, tuple[object, ...]], None]) -> None:
    try:
        check(state.disk(), state.marks)
    except (AssertionError, PenstockError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise AssertionError(f"{reason}\n{state.describe()}") from error
    except Exception as error:
        error.add_note(state.describe())
        raise


def power_cut(disk: SimDisk, model: Model, *, entropy: Entropy) -> SimDisk:
    """Turn a disk off now. Returns a disk with what is left: some unsynced operations are lost, torn or zeroed."""
    return _power_off(disk, model, random_damage, entropy)


def aimed_power_cut(disk: SimDisk, model: Model, *, entropy: Entropy) -> SimDisk:
    """Turn a disk off now, as it hurts most. Returns a disk with what is left.

    Often only one file loses its end, and the records that speak of it stay.
    """
    damage_of = _AIMED[entropy.randint(0, len(_AIMED) - 1)]
    return _power_off(disk, model, damage_of, entropy)


def _power_off(disk: SimDisk, model: Model, damage_of: _DamageOf, entropy: Entropy) -> SimDisk:
    replay = Replay(disk.start, model)
    for number, entry in enumerate(disk.operations):
        if not isinstance(entry, Mark):
            replay.advance(number, entry)
    disk.power_off()
    return SimDisk(replay.tree(damage_of(replay.volatile, entropy)))


def _one_file(volatile: dict[int, Change], entropy: Entropy) -> Damage:
    """One file loses everything that was not synced, the others nothing."""
    inodes = sorted({change.inode for change in volatile.values() if isinstance(change, Write)})
    if not inodes:
        return {}
    lost = inodes[entropy.randint(0, len(inodes) - 1)]
    return {
        number: None
        for number, change in volatile.items()
        if isinstance(change, Write) and change.inode == lost
    }


def _everything(volatile: dict[int, Change], _: Entropy) -> Damage:
    return dict.fromkeys(volatile)


def _newest(volatile: dict[int, Change], entropy: Entropy) -> Damage:
    """The last operations are lost, as if the power had gone a little earlier."""
    numbers = sorted(volatile)
    return dict.fromkeys(numbers[entropy.randint(0, len(numbers)) :])


_AIMED: tuple[_DamageOf, ...] = (
    random_damage,
    random_damage,
    _one_file,
    _one_file,
    _everything,
    _newest,
)


def _place_of(boundary: int, entries: list[Operation | Mark]) -> int:
    """Returns the place of the cut in the list: after `boundary` operations and the marks behind them."""
    done = 0
    for place, entry in enumerate(entries):
        if isinstance(entry, Mark):
            continue
        if done == boundary:
            return place
        done += 1
    return len(entries)
