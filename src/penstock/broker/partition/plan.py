"""The plan that makes a partition durable, for a driver to run."""

from contextlib import suppress

import msgspec

from ...errors import NoSpace
from ...log.snapshot import SnapshotPlan
from ...log.sync_plan import SyncPlan


class PartitionPlan(msgspec.Struct, eq=False):
    """What makes a partition durable: delayed messages, stagings, messages, then state, then perhaps a snapshot of all.

    A batch of messages may name delayed ones that it came with (`append_with_delays`): these have to be there first.
    """

    messages: SyncPlan
    state: SyncPlan
    snapshot: SnapshotPlan | None
    delayed: SyncPlan | None = None
    staging: SyncPlan | None = None
    is_snapshot_written: bool = False
    # Messages below it are in the snapshot.
    covers: int = 0

    def run(self) -> None:
        if self.delayed is not None:
            self.delayed.run()
        if self.staging is not None:
            self.staging.run()
        self.messages.run()
        self.state.run()
        if self.snapshot is not None:
            # On a full disk the old one stays: a restart replays more, and nothing is lost.
            with suppress(NoSpace):
                self.snapshot.run()
                self.is_snapshot_written = True
