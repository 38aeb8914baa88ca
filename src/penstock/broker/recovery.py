"""What a start found and did: everything that was cut, skipped, rebuilt, set aside or is missing.

The catalogue collects these events while it opens a data directory. The driver logs each one once, metrics count
them, and `/readyz?verbose` lists them: a start never hides what it did.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..api.health import EventKind, RecoveryEvent
from ..log import Recovery
from ..log.journal import ReplayResult
from ..log.opening import CheckpointState

if TYPE_CHECKING:
    from .partition.opening import Opening


def log_events(
    directory: str, recovery: Recovery, *, topic: str = "", partition: int = -1
) -> Iterator[RecoveryEvent]:
    """The events of opening one log. An ordinary kill -9 that tore nothing gives none."""
    place = (topic, partition)
    if recovery.checkpoint is not CheckpointState.USED and not recovery.is_new:
        is_missing = recovery.checkpoint is CheckpointState.MISSING
        reason = f"it {'is missing' if is_missing else 'could not be read'}; the whole log was read"
        yield RecoveryEvent(EventKind.CHECKPOINT_REBUILT, f"{directory}/checkpoint", reason, *place)
    for damage in recovery.segments_damaged:
        yield RecoveryEvent(
            EventKind.SEGMENT_DAMAGED, damage.path, damage.reason, *place, damage.position
        )
    for path in recovery.indexes_rebuilt:
        yield RecoveryEvent(
            EventKind.INDEX_REBUILT, path, "it was missing, damaged or stale", *place
        )
    if recovery.cut_at is not None:
        path, position = recovery.cut_at
        yield RecoveryEvent(
            EventKind.TAIL_CUT,
            path,
            recovery.cut_reason,
            topic,
            partition,
            position,
            recovery.cut_bytes,
        )


def snapshot_events(
    replayed: ReplayResult, *, topic: str = "", partition: int = -1
) -> Iterator[RecoveryEvent]:
    """The snapshots of a journal that a start did without."""
    for skipped in replayed.snapshots_skipped:
        reason = f"{skipped.reason}; an older one, or the journal alone, served"
        yield RecoveryEvent(EventKind.SNAPSHOT_SKIPPED, skipped.path, reason, topic, partition)


def partition_events(
    directory: str, opening: "Opening", *, topic: str, partition: int
) -> Iterator[RecoveryEvent]:
    """The events of opening one partition: its logs and the replay of its state."""
    logs = {
        "messages": opening.messages,
        "state": opening.state,
        "delayed": opening.delayed,
        "staging": opening.staging,
    }
    for name, recovery in logs.items():
        if recovery is not None:
            yield from log_events(f"{directory}/{name}", recovery, topic=topic, partition=partition)
    for path in opening.journeys_unusable:
        reason = "it was missing, damaged or stale; a look-up makes it again"
        yield RecoveryEvent(EventKind.INDEX_REBUILT, path, reason, topic, partition)
    replayed = opening.replayed
    yield from snapshot_events(replayed, topic=topic, partition=partition)
    if replayed.dropped_from is not None:
        yield RecoveryEvent(
            EventKind.STATE_DROPPED,
            f"{directory}/state",
            f"state from offset {replayed.dropped_from} on spoke of messages that a crash took",
            topic,
            partition,
        )
    if opening.delays_lost_from >= 0:
        yield RecoveryEvent(
            EventKind.STATE_DROPPED,
            f"{directory}/delayed",
            f"it ends at {opening.delays_lost_from}, and messages or state speak of delayed messages beyond: "
            "what waited there is gone",
            topic,
            partition,
        )
