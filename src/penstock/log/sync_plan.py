"""What has to be synced to make a log durable, in its order: segments, the directory, then the checkpoint."""

from contextlib import suppress

import msgspec

from ..errors import FileMissing, NoSpace
from ..model import Offset
from ..ports import Disk
from .checkpoint import Checkpoint
from .index import Index
from .layout import CHECKPOINT, replace_file
from .segment import Segment


class SyncPlan(msgspec.Struct, eq=False):
    """The syncs that make a log durable up to an offset. May be run in another thread; one at a time."""

    disk: Disk
    directory: str
    up_to: Offset
    segments: tuple[tuple[Segment, int], ...]
    directory_changes: int
    is_directory_dirty: bool
    checkpoint: Checkpoint | None
    seed: int
    bytes_appended: int
    checkpoint_changes: int
    active: Segment
    # Of the active segment, as it was: saved with the checkpoint. To write two files takes long beside a plan.
    index: Index | None
    is_checkpoint_written: bool = False

    def run(self) -> None:
        """Sync everything. FileMissing: a file was removed or renamed, so its bytes cannot be found any more."""
        self.sync_files()
        self.write_checkpoint()

    @property
    def has_files(self) -> bool:
        """Whether `sync_files` has anything to do."""
        return bool(self.segments) or self.is_directory_dirty

    def sync_files(self) -> None:
        """Sync what was appended. FileMissing, as `run`."""
        for segment, _ in self.segments:
            file = segment.opened or segment.file
            file.sync()
            if not file.is_there():
                raise FileMissing(segment.path)
        if self.is_directory_dirty:
            self.disk.sync_directory(self.directory)

    def write_checkpoint(self) -> None:
        """Write the checkpoint, if there is to be one, and the index. What it speaks of is durable."""
        if self.checkpoint is not None:
            # A segment that was sealed meanwhile has saved its whole index.
            if self.index is not None and self.active.last_time_known is None:
                self.active.save_index(self.index)
            # On a full disk the old one stays: a restart reads more, and nothing is lost.
            with suppress(NoSpace):
                content = self.checkpoint.to_bytes(self.seed)
                replace_file(self.disk, self.directory, CHECKPOINT, content)
                self.is_checkpoint_written = True
