"""How a broker is: room on the disk, what its start found and did, what is damaged, and what became of deliveries."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple

import msgspec

from .command import Command, ScopedCommand
from .principals import Action, Principal


class EventKind(Enum):
    """What happened. The values are labels of `penstock_recovery_events` and stay stable."""

    TAIL_CUT = "tail_cut"  # A torn end of a log was cut off and kept beside it.
    STATE_DROPPED = "state_dropped"  # State that spoke of messages which a crash took.
    CHECKPOINT_REBUILT = "checkpoint_rebuilt"  # Missing or damaged; the whole log was read instead.
    INDEX_REBUILT = "index_rebuilt"
    SNAPSHOT_SKIPPED = "snapshot_skipped"  # Missing or damaged; an older one and the journal serve.
    SET_ASIDE = "set_aside"  # A directory that meta does not know was moved to set-aside/.
    LEFTOVER_REMOVED = (
        "leftover_removed"  # Files that an intent in meta names: never in use, or deleted.
    )
    SEGMENT_DAMAGED = (
        "segment_damaged"  # A sealed segment is missing or too short; reads there fail.
    )
    PARTITION_FAULTY = "partition_faulty"  # The partition refuses everything; the others serve.


# What needs a person. The rest is told, and the broker is as good as before.
_DAMAGE = frozenset({EventKind.SET_ASIDE, EventKind.SEGMENT_DAMAGED, EventKind.PARTITION_FAULTY})


class RecoveryEvent(msgspec.Struct, frozen=True):
    """What a start found or did, or a partition that failed later. `path` is relative to the data directory."""

    kind: EventKind
    path: str
    reason: str
    topic: str = ""
    partition: int = -1
    position: int = 0
    size_bytes: int = 0
    is_of_start: bool = True

    @property
    def is_damage(self) -> bool:
        return self.kind in _DAMAGE


class Damage(msgspec.Struct, frozen=True):
    """A damaged batch. `offset` to `next_offset` cannot be read; `path` is relative to the data directory."""

    topic: str
    partition: int
    path: str
    position: int
    offset: int | None
    next_offset: int | None
    reason: str


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
        is_found = any(one.is_damage for one in self.recovery)
        return is_found or bool(self.damaged_batches or self.faulty)

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


def _counted(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}{'s' if len(found) != 1 else ''}"


PASS, WARN = "pass", "warn"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: `pass` or `warn`, and what was seen."""

    status: str
    message: str


def status_of(checks: Mapping[str, Check]) -> str:
    return WARN if any(one.status == WARN for one in checks.values()) else PASS


def health_word(status: str) -> str:
    """The status as `/health` says it."""
    return "ok" if status == PASS else "degraded"


class Health(msgspec.Struct, frozen=True):
    """`is_full`: the disk has no room, and publishes are refused."""

    is_full: bool
    findings: Findings
    free_bytes: int = 0

    def checks(self) -> dict[str, Check]:
        """What a probe is told, by name."""
        findings = self.findings
        full = Check(WARN, "full: publishes are refused")
        damage = WARN if findings.is_damaged else PASS
        return {
            "storage": full if self.is_full else Check(PASS, "ok"),
            "recovery": Check(PASS, findings.recovery_text()),
            "damage": Check(damage, findings.damage_text()),
        }


class SeeHealth(Command[Health], frozen=True):
    """How the broker is. The findings are of all topics: `Findings.seen_by` has those that a principal may see."""

    action: ClassVar[Action] = Action.SEE_HEALTH
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class DeliveryFigures(msgspec.Struct, frozen=True):
    """What is lent, waits for a retry, was given up, expired, or was lost to retention or damage."""

    in_flight: int = 0
    waiting: int = 0
    dead: int = 0
    expired: int = 0
    skipped: int = 0


class Sample(NamedTuple):
    """One number of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


class LagFigures(msgspec.Struct, frozen=True):
    """How far a group is behind: in messages, and by the age of the oldest one that it has not finished."""

    lag: int = 0
    lag_seconds: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    dead: int = 0


class SeeLags(ScopedCommand[dict[str, LagFigures]], frozen=True):
    """How far every group is behind, on those of its topics that the command covers."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class Stored(msgspec.Struct, frozen=True):
    """How much there is in topics."""

    topics: int = 0
    partitions: int = 0
    size_bytes: int = 0


class SeeStored(ScopedCommand[Stored], frozen=True):
    """How much there is in the topics that the command covers, all together."""

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class SeeFigures(ScopedCommand[list[Sample]], frozen=True):
    """Figures of the node, and of the topics that the command covers, and their groups.

    Those with the largest lag, at most `groups_max`, are named; the others count as one group `other`.
    """

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    groups_max: int


class SeeReliability(ScopedCommand[dict[str, DeliveryFigures]], frozen=True):
    """What became of deliveries, by group, on the topics that the command covers."""

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
