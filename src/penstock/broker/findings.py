"""What is to be told of a node besides its figures: what its start found and did, and what is damaged now."""

from collections.abc import Sequence
from typing import NamedTuple

from ..api.principals import Principal
from .catalogue import Catalogue
from .damage import Damage
from .recovery import EventKind, RecoveryEvent


class Findings(NamedTuple):
    """`recovery` is what the start did; `faulty` and `damaged` are there now. `damaged` lists the newest batches of
    `damaged_batches`."""

    recovery: list[RecoveryEvent]
    faulty: list[RecoveryEvent]
    damaged: list[Damage]
    damaged_batches: int

    @property
    def is_damaged(self) -> bool:
        """Whether a person has to look at something."""
        return bool(self.damaged_batches) or any(one.is_damage for one in self.recovery)

    @property
    def cut_bytes(self) -> int:
        return sum(one.size_bytes for one in self.recovery if one.kind is EventKind.TAIL_CUT)

    def recovery_text(self) -> str:
        """How many things the start did, in words; `ok` if it had nothing to do."""
        if not self.recovery:
            return "ok"
        return f"{_counted(self.recovery, 'event')} at the start, {self.cut_bytes} bytes cut off"

    def damage_text(self) -> str:
        """How much is damaged, in words; `ok` if nothing is known to be."""
        others = [
            one
            for one in self.recovery
            if one.is_damage and one.kind is not EventKind.PARTITION_FAULTY
        ]
        words = [
            _counted(self.faulty, "faulty partition"),
            f"{self.damaged_batches} damaged batch{'es' if self.damaged_batches != 1 else ''}",
            _counted(others, "other finding"),
        ]
        found = [word for word in words if not word.startswith("0 ")]
        return ", ".join(found) or "ok"

    def seen_by(self, principal: Principal) -> "Findings":
        """What is theirs to see. Under a prefix, what belongs to no topic is not."""
        if not principal.prefixes:
            return self
        damaged = [one for one in self.damaged if principal.reaches(one.topic)]
        return Findings(
            [one for one in self.recovery if one.topic and principal.reaches(one.topic)],
            [one for one in self.faulty if principal.reaches(one.topic)],
            damaged,
            len(damaged),
        )


def findings_of(node: Catalogue) -> Findings:
    """What there is to tell. What the start found of a topic that is deleted since is of no use to anyone."""
    recovery = [one for one in node.recovery if not one.topic or _is_there(node, one)]
    faulty = [one for one in recovery if one.kind is EventKind.PARTITION_FAULTY]
    return Findings(recovery, faulty, node.damage.newest(), node.damage.batches.total())


def _is_there(node: Catalogue, event: RecoveryEvent) -> bool:
    """Whether the topic of an event is there; of damage: the one that has it, and not a later one of that name."""
    topic = node.open.get(event.topic)
    if topic is None:
        return False
    return not event.is_damage or event.path.startswith(f"{topic.facts.directory}/")


def _counted(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}{'s' if len(found) != 1 else ''}"
