"""Whether the small files fit the log: its checkpoint, the indexes of its segments, and the snapshots of a journal."""

from collections.abc import Iterator

from ...codec import Head
from ...errors import Damaged, DamagedFile, Refused
from ...model import Offset
from ...ports import Disk
from ..checkpoint import Checkpoint
from ..index import Index, read_index
from ..layout import INDEX, TIME_INDEX, read_file, segment_path
from ..snapshot import SUFFIX, read_snapshot, snapshot_offsets
from .survey import ChainedBatch, LogFile


class CheckpointAudit:
    """Checks whether a checkpoint with a right checksum fits the log."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._places: set[tuple[int, int]] = set()
        self._reason = ""
        self.are_epochs_right = True

    def see(self, kept: ChainedBatch) -> None:
        """Compare with the next batch of the chain."""
        file, position, head = kept
        offset = self._checkpoint.offset
        if head.base_offset < offset < head.next_offset:
            self._reason = f"offset {offset} is inside a batch"
        if head.base_offset == offset:
            self._places.add((file.base_offset, position))
        if head.next_offset == offset:
            self._places.add((file.base_offset, position + head.length))
        if head.base_offset < offset and self._epoch_at(head.base_offset) != head.epoch:
            self._reason = f"it knows another epoch for offset {head.base_offset}"
            self.are_epochs_right = False

    def _epoch_at(self, offset: int) -> int:
        started = [one.epoch for one in self._checkpoint.epochs if one.offset <= offset]
        return started[-1] if started else -1

    def verdict(self, files: list[LogFile]) -> str:
        """Returns what is wrong with the checkpoint, or an empty text."""
        checkpoint = self._checkpoint
        bases = {file.base_offset for file in files}
        place = (checkpoint.segment, checkpoint.position)
        if checkpoint.offset in bases:
            self._places.add((checkpoint.offset, 0))
        if self._places and place not in self._places:
            self._reason = f"offset {checkpoint.offset} is not at byte {place[1]} of {place[0]}.log"
        needed = {checkpoint.start_offset, checkpoint.segment}
        is_fresh = not bases and needed == {checkpoint.offset} and checkpoint.position == 0
        if not is_fresh and (missing := needed - bases):
            self._reason = f"the segment of offset {min(missing)} is missing"
        return self._reason


class IndexAudit:
    """Checks the saved indexes of a segment. They may cover a part of it, and may be missing."""

    def __init__(self, disk: Disk, directory: str, file: LogFile, seed: int) -> None:
        self.reason = ""
        self.is_missing = False
        self._index: Index | None = None
        self._entry = 0
        self._is_end_met = False
        paths = [segment_path(directory, file.base_offset, one) for one in (INDEX, TIME_INDEX)]
        if not all(map(disk.exists, paths)):
            self.is_missing = True
            return
        try:
            contents = [read_file(disk, path) for path in paths]
        except (Damaged, Refused) as error:
            self.reason = str(error)
            return
        self._index = read_index(contents[0], contents[1], interval_bytes=1, seed=seed)
        self._judge_header(file)

    def _judge_header(self, file: LogFile) -> None:
        if self._index is None:
            self.reason = "its checksum or shape is wrong"
        elif self._index.base_offset != file.base_offset:
            self.reason = f"it is the index of {self._index.base_offset}.log"
        elif self._index.size > file.size:
            self.reason = f"it is ahead of the segment: {self._index.size} of {file.size} bytes"

    def see(self, position: int, head: Head) -> None:
        """Compare with the next batch of the segment."""
        index = self._index
        if self.reason or index is None or position >= index.size:
            return
        if position == 0 and index.first_time != head.append_time:
            self.reason = "its first append time is not that of the log"
        while self._entry < len(index.positions) and index.positions[self._entry] <= position:
            self._see_entry(index, position, head)
        if position + head.length == index.size:
            self._is_end_met = True
            if (index.next_offset, index.last_time) != (head.next_offset, head.append_time):
                self.reason = "its end is not that of the log"

    def _see_entry(self, index: Index, position: int, head: Head) -> None:
        entry, self._entry = self._entry, self._entry + 1
        found = (
            index.positions[entry],
            index.offsets[entry] + index.base_offset,
            index.times[entry],
        )
        if found != (position, head.base_offset, head.append_time):
            self.reason = f"no batch of offset {found[1]} starts at byte {found[0]}"

    def verdict(self) -> str:
        """Returns what is wrong with the indexes, or an empty text, also if there are none."""
        index = self._index
        is_whole = index is None or index.size == 0 or self._is_end_met
        if not self.reason and not is_whole:
            self.reason = "it ends inside a batch"
        return self.reason


def audit_snapshots(
    disk: Disk, directory: str, *, seed: int, start_offset: int, end_offset: int
) -> Iterator[tuple[str, str, bool]]:
    """Yields path, reason and whether the journal can do without, for each damaged snapshot."""
    damaged: list[tuple[str, str]] = []
    newest: Offset | None = None
    for offset in reversed(snapshot_offsets(disk, directory)):
        try:
            read_snapshot(disk, directory, offset, seed=seed)
        except DamagedFile as error:
            damaged.append((error.path, error.reason))
            continue
        newest = offset if newest is None else newest
    can_do_without = newest is not None or start_offset == 0
    yield from ((path, reason, can_do_without) for path, reason in damaged)
    if newest is not None and not start_offset <= newest <= end_offset:
        reason = f"its offset is outside of the log, [{start_offset}, {end_offset}]"
        yield segment_path(directory, newest, SUFFIX), reason, False
