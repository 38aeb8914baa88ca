"""One file of batches and its index."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ..codec import HEAD_BYTES, Head, read_head
from ..errors import (
    Damaged,
    DamagedBatch,
    DamagedFile,
    FileMissing,
    MalformedBatch,
    NoSpace,
    Refused,
)
from ..model import Buffer, Offset
from ..ports import Disk, File
from .index import HEADER_BYTES, Index, IndexEntry, read_header, read_index
from .layout import INDEX, LOG, TIME_INDEX, read_file, segment_path
from .scan import BrokenBatch, HeadPosition, next_head, walk_around

# Some milliseconds of walking.
HEADS_MAX = 1024
# Smaller batches are read as quickly as their heads are, one by one.
_STRETCH_BATCH_BYTES_MIN = 64 * 1024


class Stretch(NamedTuple):
    """Consecutive whole batches in a file. Their heads are good; of their bodies nothing is known."""

    file: File
    position: int
    size: int
    next_offset: Offset


@dataclass(slots=True, eq=False)
class Segment:
    """Batches from `base_offset` on.

    `size` is where the log ends in this file; `synced_size` is how much of that is durable.
    """

    disk: Disk
    directory: str
    base_offset: int
    seed: int
    interval_bytes: int
    size: int = 0
    synced_size: int = 0
    opened: File | None = None
    loaded: Index | None = None
    last_time_known: int | None = None
    is_index_saved: bool = True
    messages_known: int | None = None
    # No message of a sealed segment has a later timestamp of its own; None: not known yet.
    latest_known: int | None = None

    @property
    def path(self) -> str:
        return self.path_of(LOG)

    def path_of(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix)

    @property
    def file(self) -> File:
        """The open file. DamagedFile: it is missing though the log has it."""
        if self.opened is None:
            try:
                self.opened = self.disk.open(self.path)
            except FileMissing:
                raise DamagedFile(self.path, "the segment is missing") from None
        return self.opened

    def create(self) -> None:
        self.opened = self.disk.create(self.path)
        self.loaded = self._blank()

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()
        self.opened = self.loaded = None

    def append(self, head: Head, *parts: Buffer) -> None:
        """Write a stamped batch at the end."""
        (self.opened or self.file).append(*parts)
        if self.loaded is not None:
            self.loaded.add(head, self.size)
        self.size += head.length

    def append_run(self, heads: Sequence[Head], parts: Sequence[Buffer]) -> None:
        """Write stamped batches at the end, with one write."""
        (self.opened or self.file).append(*parts)
        for head in heads:
            if self.loaded is not None:
                self.loaded.add(head, self.size)
            self.size += head.length

    def index(self) -> Index:
        """The index of the whole segment, loaded or built when first needed."""
        if self.loaded is None:
            self.loaded = self._restored() or self._built()
        return self.loaded

    def is_index_whole(self, next_offset: int) -> bool:
        """Whether the saved index says that the segment is as long as it is and ends at `next_offset`.

        Reads only the header of the file; an index with wrong entries is found when it is used.
        """
        path = self.path_of(INDEX)
        try:
            with closing(self.disk.open(path)) as file:
                header = read_header(file.read(0, HEADER_BYTES))
        except (Damaged, Refused):
            return False
        if header is None or not self.disk.exists(self.path_of(TIME_INDEX)):
            return False
        found = (header.base_offset, header.next_offset, header.size)
        return found == (self.base_offset, next_offset, self.size)

    def last_time(self, next_offset: int) -> int:
        """Returns the append time of the last batch of a sealed segment; does not keep the index in memory.

        0: its end, before `next_offset`, is damaged.
        """
        if self.last_time_known is None:
            was_loaded, index = self.loaded is not None, self.index()
            self.last_time_known = index.last_time if index.next_offset == next_offset else 0
            self.loaded = self.loaded if was_loaded else None
        return self.last_time_known

    def messages(self) -> int:
        """Messages in a sealed segment."""
        if self.messages_known is None:
            self.messages_known = self.messages_from(0)
        return self.messages_known

    def messages_from(self, position: int) -> int:
        """Returns the number of messages in the batches from a position on: some are counted, the others estimated."""
        count = 0
        for number, found in enumerate(self._walk(position)):
            if number >= HEADS_MAX:
                seen = found.position - position
                return count + count * (self.size - found.position) // seen
            count += 0 if isinstance(found, BrokenBatch) else found.head.message_count
        return count

    def heads_from(self, position: int) -> Iterator[Head]:
        """Returns the heads of the whole batches from a position on."""
        for found in self._walk(position):
            if isinstance(found, HeadPosition):
                yield found.head

    def unload_index(self) -> None:
        """Free the memory of the index. One that had to be built is saved first."""
        if self.loaded is not None and not self.is_index_saved:
            self.save_index()
        self.loaded = None

    @property
    def has_saved_index(self) -> bool:
        """Whether there are files of an index, which may be an older one."""
        return self.disk.exists(self.path_of(INDEX))

    def save_index(self, index: Index | None = None) -> None:
        """Save the index, or one that was copied earlier, if that is possible: without room, without the right, or with
        a link or a directory in its place, it is built anew when it is needed."""
        with suppress(NoSpace, Damaged, Refused):
            self.write_index(index)

    def copied_index(self) -> Index | None:
        """A copy of the index, for another thread to save. None: the file cannot be read."""
        with suppress(Damaged, Refused):
            return self.index().copy()
        return None

    def write_index(self, index: Index | None = None) -> None:
        """Save the index. Neither synced nor renamed into place: a torn one is recognised and rebuilt."""
        contents = (index or self.index()).to_files(self.seed)
        for suffix, content in zip((INDEX, TIME_INDEX), contents, strict=True):
            with closing(self.disk.create(self.path_of(suffix))) as file:
                file.append(content)
        self.is_index_saved = True

    def _blank(self) -> Index:
        return Index(self.base_offset, self.interval_bytes)

    def _built(self) -> Index:
        self.is_index_saved = False
        return self._extended(self._blank())

    def _restored(self) -> Index | None:
        """Returns the saved index, extended to the end; or None if the segment does not have its last entry."""
        index = self._saved_index()
        entry = None if index is None else index.pop_entry(below=self.size)
        if index is None or entry is None:
            return None
        first, last = self._head_at(0), self._head_at(entry.position)
        if first is not None and first.append_time != index.first_time:
            return None
        if last is None or entry != IndexEntry(last.base_offset, last.append_time, entry.position):
            return None
        return self._extended(index)

    def _saved_index(self) -> Index | None:
        paths = [self.path_of(suffix) for suffix in (INDEX, TIME_INDEX)]
        if not all(map(self.disk.exists, paths)):
            return None
        try:
            by_offset, by_time = (read_file(self.disk, path) for path in paths)
        except (Damaged, Refused):  # A link or a directory: as good as none.
            return None
        index = read_index(by_offset, by_time, interval_bytes=self.interval_bytes, seed=self.seed)
        return index if index is not None and index.base_offset == self.base_offset else None

    def _extended(self, index: Index) -> Index:
        """Add the batches beyond the index, by heads alone. Broken ones get no entry. Returns the index."""
        for found in self._walk(index.size):
            # An offset below the first is that of another segment: a file was copied or renamed.
            if isinstance(found, HeadPosition) and found.head.base_offset >= self.base_offset:
                index.add(found.head, found.position)
        return index

    def _head_at(self, position: int) -> Head | None:
        try:
            return read_head(self.file.read(position, HEAD_BYTES), seed=self.seed)
        except MalformedBatch:
            return None

    def stretch(self, position: int, offset: int, *, bytes_max: int, limit: int) -> Stretch | None:
        """Returns the batches from `position` on, where the first holds `offset`, for `sendfile`.

        None: the batches are small, or the first is damaged. Then `read` is as fast, and says what is wrong.
        """
        last = self._whole_at(position)
        if last is None or last.length < _STRETCH_BATCH_BYTES_MIN:
            return None
        if not last.base_offset <= offset <= last.last_offset:
            return None
        end = position + last.length
        while last.next_offset < offset + limit:
            following = self._whole_at(end)
            if following is None or following.base_offset != last.next_offset:
                break
            if end + following.length > position + bytes_max:
                break
            last, end = following, end + following.length
        return Stretch(self.file, position, end - position, Offset(last.next_offset))

    def _whole_at(self, position: int) -> Head | None:
        """Returns the head of a batch that fits into the file, or None."""
        head = self._head_at(position)
        return head if head is not None and position + head.length <= self.size else None

    def find_offset(self, offset: int, *, end_offset: int) -> HeadPosition | None:
        """Returns the batch whose range holds `offset`, or None past the end.

        DamagedBatch: it is damaged. The segment reaches to `end_offset`.
        """
        start = 0
        if offset > self.base_offset:
            start = self._start(
                lambda index: index.position_before(offset), lambda head: head.base_offset <= offset
            )
        broken: BrokenBatch | None = None
        reached: int | None = None
        for found in self._walk(start):
            if isinstance(found, BrokenBatch):
                broken = broken or found
            elif found.head.base_offset > offset:
                break
            elif found.head.last_offset >= offset:
                return found
            else:
                broken, reached = None, found.head.next_offset
        if broken is not None:
            # Without a whole batch before it, only a walk from the start of the file knows where the damage begins.
            first = self.base_offset if start == 0 else offset
            first = first if reached is None else reached
            raise self.damaged(broken, offset=offset, end_offset=end_offset, first=first)
        return None

    def offset_at(self, time_ns: int) -> int | None:
        """Returns the first offset that was appended at `time_ns` or later, or None.

        A broken batch before it may have been the first, so then it is the offset of that one.
        """
        start = self._start(
            lambda index: index.position_before_time(time_ns),
            lambda head: head.append_time < time_ns,
        )
        offset, is_broken = self.base_offset, False
        for found in self._walk(start):
            if isinstance(found, BrokenBatch):
                is_broken = True
            elif found.head.append_time >= time_ns:
                return offset if is_broken else found.head.base_offset
            else:
                offset, is_broken = found.head.next_offset, False
        return offset if is_broken else None

    def _start(self, look_up: Callable[[Index], int], is_before: Callable[[Head], bool]) -> int:
        """Returns the position to walk from. Builds the index anew if its entry is wrong."""
        start = look_up(self.index())
        if start == 0:
            return 0
        head = self._head_at(start)
        if head is None or not is_before(head):
            self.loaded = self._built()
            start = look_up(self.loaded)
        return start

    def _walk(self, position: int) -> Iterator[HeadPosition | BrokenBatch]:
        return walk_around(
            self.file, position, self.size, seed=self.seed, next_offset=self.base_offset
        )

    def damaged(
        self, broken: BrokenBatch, *, offset: int, end_offset: int, first: int | None = None
    ) -> DamagedBatch:
        """Returns the error for the broken batch that should hold `offset`, with the offset at which reading can go on.

        `first` is where its offsets begin, if not at `offset`.
        """
        following = next_head(
            self.file, broken.position + 1, self.size, seed=self.seed, offset_min=offset + 1
        )
        return DamagedBatch(
            self.path,
            broken.position,
            broken.reason,
            offset=offset if first is None else first,
            next_offset=end_offset if following is None else following.head.base_offset,
        )
