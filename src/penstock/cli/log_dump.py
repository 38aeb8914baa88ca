"""The lines of `penstock log dump`."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from ..codec import Head, decode_messages
from ..codec.head import BODY_BYTES_MAX
from ..errors import MalformedBatch, TooLarge
from ..log.doctor.survey import Piece, find_files, pieces_in
from ..ports import Disk, File
from .log_locations import LogLocation
from .log_text import (
    head_fields,
    head_text,
    json_line,
    message_fields,
    message_text,
    size_text,
)


class DumpLine(NamedTuple):
    """One line of output. `is_whole`: what it shows could be read."""

    text: str
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What to print of a log, and in which form."""

    location: LogLocation
    seed: int
    offset: int
    is_heads: bool
    is_json: bool

    def lines(self, disk: Disk) -> Iterator[DumpLine]:
        """Yields a line for everything from `offset` on, file by file."""
        found = find_files(disk, self.location.directory, self.seed)
        files = [file for file in found if file.is_readable]
        for number, file in enumerate(files):
            is_before = number + 1 < len(files) and files[number + 1].rank[0] <= self.offset
            if is_before:
                continue
            with closing(disk.open(file.path)) as handle:
                for piece in pieces_in(handle, file.size, seed=self.seed):
                    yield from self._lines_of(handle, piece)

    def _lines_of(self, file: File, piece: Piece) -> Iterator[DumpLine]:
        head = piece.head
        if head is not None and head.next_offset <= self.offset:
            return
        if piece.kind is not None or head is None:
            yield self._unreadable(file.path, piece, piece.reason)
        elif self.is_heads:
            location = {"file": self.location.show(file.path), "position": piece.position}
            yield DumpLine(
                json_line(location | head_fields(head)) if self.is_json else head_text(head)
            )
        else:
            yield from self._messages(file, piece, head)

    def _messages(self, file: File, piece: Piece, head: Head) -> Iterator[DumpLine]:
        batch = file.read(piece.position, head.length)
        try:
            messages = decode_messages(batch, head, size_max=BODY_BYTES_MAX)
        except (MalformedBatch, TooLarge) as error:
            yield self._unreadable(file.path, piece, str(error))
            return
        for message in messages:
            if message.offset < self.offset:
                continue
            if self.is_json:
                yield DumpLine(json_line(message_fields(message, head)))
            else:
                yield DumpLine(message_text(message, head))

    def _unreadable(self, path: str, piece: Piece, reason: str) -> DumpLine:
        shown, size = self.location.show(path), piece.end - piece.position
        if not self.is_json:
            text = f"  unreadable  {shown} at byte {piece.position}, {size_text(size)}: {reason}"
            return DumpLine(text, is_whole=False)
        fields = {"unreadable": reason, "file": shown, "position": piece.position, "size": size}
        return DumpLine(json_line(fields), is_whole=False)
