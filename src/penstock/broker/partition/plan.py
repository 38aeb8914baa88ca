"""The plan that makes a partition durable, for a driver to run."""

from contextlib import suppress

import msgspec

from ...errors import NoSpace
from ...log.snapshot import SnapshotPlan
from ...log.sync_plan import SyncPlan


class PartitionPlan(msgspec.Struct, eq=False):
    """What makes a partition durable: first what was appended to its logs, in any order, then what speaks of it.

    A power cut in between may keep what was appended to one log and take what it rests on in another. That is nothing
    new, because the kernel may write any page before it is asked to: a start drops state whose messages are not there,
    and a batch of messages whose delayed ones are not (`append_with_delays`). A checkpoint and a snapshot say what has
    to be there, so they are written when all of it is durable.
    """

    messages: SyncPlan
    state: SyncPlan
    snapshot: SnapshotPlan | None
    delayed: SyncPlan | None = None
    staging: SyncPlan | None = None
    is_snapshot_written: bool = False
    # Messages below it are in the snapshot.
    covers: int = 0

    def logs(self) -> list[SyncPlan]:
        """The plans of its logs, in the order in which they rest on each other."""
        plans = (self.delayed, self.staging, self.messages, self.state)
        return [one for one in plans if one is not None]

    @property
    def has_rest(self) -> bool:
        """Whether `finish` has anything to do."""
        return self.snapshot is not None or any(one.checkpoint is not None for one in self.logs())

    def run(self) -> None:
        for one in self.logs():
            one.sync_files()
        self.finish()

    def finish(self) -> None:
        """Write what speaks of the logs, once all of their files are synced."""
        for one in self.logs():
            one.write_checkpoint()
        if self.snapshot is not None:
            # On a full disk the old one stays: a restart replays more, and nothing is lost.
            with suppress(NoSpace):
                self.snapshot.run()
                self.is_snapshot_written = True
