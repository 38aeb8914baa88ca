"""The kinds of damage that a power cut does to operations that were not synced."""

from collections.abc import Callable, Iterator
from enum import Enum

from ..ports import Entropy
from .durability import Damage
from .operations import Change, Write

SECTOR_BYTES = 512


class CrashKind(Enum):
    """How the states at one boundary are chosen."""

    ALL = "all"  # A killed process: the system still writes everything out.
    DURABLE = "durable only"
    DROP_ONE = "drop one"
    TORN = "torn"
    ZEROED = "zeroed"
    SUBSETS = "subset"


def damages(
    kind: CrashKind, volatile: dict[int, Change], *, subsets: int, entropy: Entropy
) -> Iterator[Damage]:
    """Every damage of a kind; for SUBSETS a sample of `subsets`."""
    match kind:
        case CrashKind.ALL:
            yield {}
        case CrashKind.DURABLE:
            yield dict.fromkeys(volatile)
        case CrashKind.DROP_ONE:
            yield from ({number: None} for number in volatile)
        case CrashKind.TORN:
            yield from _each_write(volatile, torn)
        case CrashKind.ZEROED:
            yield from _each_write(volatile, zeroed)
        case CrashKind.SUBSETS:
            # A single operation can only be there or not; ALL and DURABLE have tried both.
            if len(volatile) > 1:
                yield from (random_damage(volatile, entropy) for _ in range(subsets))


def torn(write: Write) -> list[bytes]:
    """A write cut short: at the first and last byte, in the middle, and where sectors end."""
    size = len(write.data)
    cuts = {1, size // 2, size - 1, *_sector_edges(write)}
    return [write.data[:cut] for cut in sorted(cuts) if 0 < cut < size]


def zeroed(write: Write) -> list[bytes]:
    """A write whose length arrived before its bytes: all of them, or the sectors on one side of an edge."""
    size = len(write.data)
    edges = _sector_edges(write)
    pieces = [bytes(size)]
    if edges:
        edge = edges[len(edges) // 2]
        pieces += [bytes(edge) + write.data[edge:], write.data[:edge] + bytes(size - edge)]
    return pieces


def random_damage(volatile: dict[int, Change], entropy: Entropy) -> Damage:
    """Half of the operations lost, and some of the writes that are not torn or zeroed."""
    damage: dict[int, bytes | None] = {}
    for number, change in volatile.items():
        lot = entropy.getrandbits(3)
        if lot < 4:
            damage[number] = None
        elif lot >= 6 and isinstance(change, Write):
            pieces = torn(change) if lot == 6 else zeroed(change)
            if pieces:
                damage[number] = pieces[entropy.randint(0, len(pieces) - 1)]
    return damage


def _each_write(
    volatile: dict[int, Change], pieces: Callable[[Write], list[bytes]]
) -> Iterator[Damage]:
    for number, change in volatile.items():
        if isinstance(change, Write):
            yield from ({number: piece} for piece in pieces(change))


def _sector_edges(write: Write) -> list[int]:
    """Where sectors of the disk end inside a write: the first, the middle and the last such place."""
    first = -write.position % SECTOR_BYTES or SECTOR_BYTES
    edges = range(first, len(write.data), SECTOR_BYTES)
    return sorted({edges[0], edges[len(edges) // 2], edges[-1]}) if edges else []
