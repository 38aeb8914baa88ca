"""The end of a node's life: everything durable, with little to read again for the next start."""

from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import DamagedFile, FileMissing, NoSpace
from .partition import Now, Partition, PartitionPlan
from .partition.stopping import plan_close as plan_partition
from .topics import PartitionEnds

if TYPE_CHECKING:
    from .catalogue import Catalogue

# They are written side by side, in less than a second.
_SNAPSHOTS_MAX = 64
Plans = list[tuple[Partition, PartitionPlan]]


def plan_close(node: "Catalogue") -> Plans:
    """The plans of all partitions before they are closed. What lies within the replay budget needs no snapshot,
    where it is in many partitions.

    One partition at least writes a checkpoint, which says how far meta is: an older meta that is put back later is
    noticed, though nothing else may have happened but a change of keys.
    """
    node.works.discard()
    if node.reign.is_over:
        # This process follows next, and is told how far the logs are (`Reign.closing`).
        return [(one, one.plan_sync()) for one in node.changes.to_sync()]
    replay = node.changes.replay
    for one in node.changes.to_sync():
        replay.note(one)
    # A small node leaves nothing to be read again: damage is met by who reads it then, and not by a start.
    few = replay.partitions()
    due = dict.fromkeys(few if len(few) <= _SNAPSHOTS_MAX else ())
    while (most := replay.most()) is not None:
        due[most] = None
        replay.forget(most)
    return [
        (one, plan_partition(one, with_checkpoint=number == 0, with_snapshot=one in due))
        for number, one in enumerate(node.partitions())
    ]


def close(node: "Catalogue") -> None:
    """Run the plans one after the other, and close all files."""
    done: Plans = []
    for partition, plan in plan_close(node):
        try:
            plan.run()
            done.append((partition, plan))
        except (FileMissing, DamagedFile) as error:
            node.fail(partition, error)
    node.synced(done, _last_time(node))
    finish_close(node)


def finish_close(node: "Catalogue") -> None:
    """Close the files of all partitions, whose plans were run, then meta."""
    ends = unknown_ends(node)
    for one in node.partitions():
        for log in (one.messages, one.journal.log, one.delayed.log, one.staging.log):
            if log is not None:
                node.reign.closing(log)
        one.discard()
    if not node.reign.is_over:
        with suppress(NoSpace):
            node.record_meta(ends, _last_time(node))
    node.take_meta_snapshot()
    node.meta.log.close()


def unknown_ends(node: "Catalogue") -> list[PartitionEnds]:
    """How far those partitions are of which meta does not know it."""
    found = [one.ends() for one in node.partitions()]
    known = node.topics.ends
    return [one for one in found if known.get((one.topic_id, one.partition)) != one]


def _last_time(node: "Catalogue") -> Now:
    return Now(node.meta.log.append_time, 0)
