"""Creates new logs for a caller that makes many at once: it writes their files first and syncs them together."""

from collections.abc import Sequence
from contextlib import ExitStack

from ..config import LogConfig
from ..model import Epoch, LogId, Offset
from ..ports import Disk, File
from .checkpoint import Checkpoint, EpochStart
from .identity import identity_bytes
from .layout import CHECKPOINT, IDENTITY
from .log import Log
from .reign import ALONE, Reign

_BEFORE_ALL = Epoch(0)


def create_log(
    disk: Disk,
    directory: str,
    files: ExitStack,
    *,
    log_id: LogId,
    config: LogConfig,
    reign: Reign = ALONE,
    at: int = 0,
    epochs: Sequence[EpochStart] = (),
) -> tuple[Log, list[File]]:
    """Returns an empty log in a new directory, and the files that the caller has to sync before the directory.

    A copy of another node's log begins `at` its start, with the `epochs` that it has up to there.

    The files stay open until `files` closes them, because the system tells of a write that failed to those that had it
    open. The log counts as closed until its first sync, so that closing one that was never written to writes nothing.
    """
    first = reign.next_epoch(_BEFORE_ALL)
    start = Offset(at)
    begun = tuple(epochs) or (EpochStart(first, start),)
    checkpoint = Checkpoint(start, start, 0, start, 0, start, begun, is_closed=True)
    log = Log(disk, directory, log_id, config, checkpoint, reign=reign)
    disk.make_directories(directory, is_synced=False)
    contents = {IDENTITY: identity_bytes(log_id), CHECKPOINT: checkpoint.to_bytes(log.seed)}
    written: list[File] = []
    for name, content in contents.items():
        file = disk.create(f"{directory}/{name}")
        files.callback(file.close)
        file.append(content)
        written.append(file)
    segment = log.new_segment(start)
    segment.create()
    log.segments.append(segment)
    log.saved_checkpoint = checkpoint
    log.changed_checkpoint()
    reign.opened(log)
    return log, written
