"""What has to be synced to make a log durable, in its order: segments, the directory, then the checkpoint."""

from contextlib import suppress

import msgspec

from ..errors import FileMissing, NoSpace
from ..model import Offset
from ..ports import Disk
from .checkpoint import Checkpoint
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
        """Write the checkpoint, if there is to be one. What it speaks of is durable."""
        if self.checkpoint is not None:
            # On a full disk the old one stays: a restart reads more, and nothing is lost.
            with suppress(NoSpace):
                content = self.checkpoint.to_bytes(self.seed)
                replace_file(self.disk, self.directory, CHECKPOINT, content)
                self.is_checkpoint_written = True
