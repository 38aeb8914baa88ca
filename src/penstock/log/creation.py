"""Creates new logs, many at once: all are written before any is synced, so that the disk syncs them together."""

from collections.abc import Iterable, Sequence
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


class NewLogs:
    """Logs that are being made. Their identities are written last, once all else of them is durable: a log with an
    identity was made whole, and one without was never used.

    The files stay open until `files` closes them, because the system tells of a write that failed to those that had it
    open.
    """

    def __init__(self, disk: Disk, files: ExitStack) -> None:
        self._disk, self._files = disk, files
        self._directories: list[str] = []
        self._checkpoints: list[File] = []
        self._identities: list[tuple[File, bytes]] = []

    def create(
        self,
        directory: str,
        *,
        log_id: LogId,
        config: LogConfig,
        reign: Reign = ALONE,
        at: int = 0,
        epochs: Sequence[EpochStart] = (),
    ) -> Log:
        """Returns an empty log in a new directory; it may be written to once `sync` has returned, and once the caller
        has told its reign of it.

        A copy of another node's log begins `at` its start, with the `epochs` that it has up to there. The log counts as
        closed until its first sync, so that closing one that was never written to writes nothing.
        """
        first = reign.next_epoch(_BEFORE_ALL)
        start = Offset(at)
        begun = tuple(epochs) or (EpochStart(first, start),)
        checkpoint = Checkpoint(start, start, 0, start, 0, start, begun, is_closed=True)
        log = Log(self._disk, directory, log_id, config, checkpoint, reign=reign)
        self._disk.make_directories(directory, is_synced=False)
        self._directories.append(directory)
        self._identities.append((self._file(directory, IDENTITY), identity_bytes(log_id)))
        file = self._file(directory, CHECKPOINT)
        file.append(checkpoint.to_bytes(log.seed))
        self._checkpoints.append(file)
        segment = log.new_segment(start)
        segment.create()
        log.segments.append(segment)
        log.saved_checkpoint = checkpoint
        log.changed_checkpoint()
        return log

    def _file(self, directory: str, name: str) -> File:
        file = self._disk.create(f"{directory}/{name}")
        self._files.callback(file.close)
        return file

    def sync(self, parents: Iterable[str]) -> None:
        """Return once the logs, and the directories that theirs are in, are durable."""
        self._disk.sync_all(self._checkpoints, [*self._directories, *parents])
        for file, content in self._identities:
            file.append(content)
        self._disk.sync_all([file for file, _ in self._identities], [])
