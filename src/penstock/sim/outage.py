"""Power cuts as they hurt most: often only one file loses its end, and what spoke of it stays."""

from collections.abc import Callable

from ..ports import Entropy
from .damage import random_damage
from .disk import SimDisk
from .durability import Damage, Model
from .operations import Change, Mark, Write
from .replay import Replay


def outage(disk: SimDisk, model: Model, *, entropy: Entropy) -> SimDisk:
    """Turn a disk off now; the one returned holds what is left."""
    replay = Replay(disk.start, model)
    for number, entry in enumerate(disk.operations):
        if not isinstance(entry, Mark):
            replay.advance(number, entry)
    disk.power_off()
    style = _STYLES[entropy.randint(0, len(_STYLES) - 1)]
    return SimDisk(replay.tree(style(replay.loose, entropy)))


def _one_file(loose: dict[int, Change], entropy: Entropy) -> Damage:
    """One file loses everything that was not synced, the others nothing."""
    inodes = sorted({change.inode for change in loose.values() if isinstance(change, Write)})
    if not inodes:
        return {}
    lost = inodes[entropy.randint(0, len(inodes) - 1)]
    return {
        number: None
        for number, change in loose.items()
        if isinstance(change, Write) and change.inode == lost
    }


def _everything(loose: dict[int, Change], _: Entropy) -> Damage:
    return dict.fromkeys(loose)


def _newest(loose: dict[int, Change], entropy: Entropy) -> Damage:
    """What was done last is lost, as if the power had gone a little earlier."""
    numbers = sorted(loose)
    return dict.fromkeys(numbers[entropy.randint(0, len(numbers)) :])


_STYLES: tuple[Callable[[dict[int, Change], Entropy], Damage], ...] = (
    random_damage,
    random_damage,
    _one_file,
    _one_file,
    _everything,
    _newest,
)
