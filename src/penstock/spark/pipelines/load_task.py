"""Sends the rows of a file as numbered messages, so that the broker stores each of them once. Runs in tasks."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ...api.publish import Acks, PublishBatch
from ...client.producer_batch import partition_of
from ...codec import Columns, Marks, encode
from ...errors import OutOfSequence, PenstockError, Refused
from .model import FileFormat
from .remote import Remote

if TYPE_CHECKING:
    from ...client import Client

# How many rows become messages at once, and how many bytes one request may carry.
CHUNK_ROWS = 10_000
BATCH_BYTES = 4 << 20
LINE_BYTES_MAX = 10 << 20


def _time_text(one: Any) -> str:
    """Returns a time or a span of pandas, which has nanoseconds, as text. Refused: it is none."""
    if not hasattr(one, "isoformat"):
        raise Refused(f"a cell is a {type(one).__name__}, which JSON does not have")
    text: str = one.isoformat()
    return text.replace("+00:00", "Z")


_JSON = msgspec.json.Encoder(decimal_format="string", enc_hook=_time_text).encode
_OBJECT = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or some of its row groups: one task. Each `number` has its own producer id."""

    path: str
    format: FileFormat
    number: int
    first_group: int
    groups: int
    identity: str
    topic: str
    partitions: int
    key: str
    value: str

    @property
    def producer_id(self) -> int:
        words = f"{self.topic}\0{self.path}\0{self.identity}\0{self.number}"
        digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 2


@dataclass(frozen=True, slots=True)
class LoadTask:
    remote: Remote

    def __call__(self, part: FilePart) -> bytes:
        with self.remote.connect() as client:
            return msgspec.json.encode(load_part(client, part))


def load_part(client: "Client", part: FilePart) -> int:
    """Send every row of a part. Returns how many there are. A repetition stores nothing twice."""
    sequences = [0] * part.partitions
    rows = 0
    for chunk in chunks_of(part):
        for partition, messages in sorted(by_partition(chunk, part, rows).items()):
            for few in pieces(messages):
                _send(client, part, partition, sequences[partition], few)
                sequences[partition] += len(few)
        rows += len(chunk)
    return rows


Pair = tuple[bytes | None, bytes | None]
"""The key and the value of a message."""


def chunks_of(part: FilePart) -> Iterator[list[Pair]]:
    """Yields rows in the order of the file, in the same chunks every time. Refused: the file has another format."""
    try:
        if part.format is FileFormat.JSON:
            yield from _of_lines(part)
            return
        for batch in _of_csv(part) if part.format is FileFormat.CSV else _of_parquet(part):
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                yield _pairs(batch.slice(start, CHUNK_ROWS), part)
    except (ValueError, pa.ArrowTypeError, OSError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise Refused(f"{part.path} cannot be read as {part.format.value}: {reason}") from None


def _of_parquet(part: FilePart) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    groups = range(part.first_group, part.first_group + part.groups)
    with pq.ParquetFile(part.path) as file:
        yield from file.iter_batches(batch_size=CHUNK_ROWS, row_groups=list(groups))


def _of_csv(part: FilePart) -> Iterator[pa.RecordBatch]:
    """Yields all columns as text: types guessed from the first lines may be wrong in the last, and 007 is not 7."""
    from pyarrow import csv

    # Otherwise a quoted line break at the end of a block would end the row.
    parsing = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(part.path, parse_options=parsing) as reader:
        names = reader.schema.names
    as_text = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    with csv.open_csv(part.path, parse_options=parsing, convert_options=as_text) as reader:
        yield from reader


def _of_lines(part: FilePart) -> Iterator[list[Pair]]:
    """Yields one JSON object a line. Without a column for the value the line itself is the value."""
    chunk: list[Pair] = []
    with Path(part.path).open("rb") as file:
        for number in count(1):
            line = file.readline(LINE_BYTES_MAX + 1)
            if not line:
                break
            if len(line) > LINE_BYTES_MAX:
                raise Refused(f"{part.path}, line {number}: over {LINE_BYTES_MAX} bytes")
            if line.strip():
                chunk.append(_of_line(line.strip(), part, number))
            if len(chunk) == CHUNK_ROWS:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _of_line(line: bytes, part: FilePart, number: int) -> Pair:
    try:
        found = _OBJECT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(
            f"{part.path}, line {number}: not a JSON object: {str(error)[:100]}"
        ) from None
    for name in (part.key, part.value):
        if name and name not in found:
            raise Refused(f"{part.path}, line {number}: there is no {name!r}")
    key = _text(found[part.key]) if part.key else None
    return key, _text(found[part.value]) if part.value else line


def _text(one: object) -> bytes | None:
    if one is None:
        return None
    return one.encode() if isinstance(one, str) else _JSON(one)


def _pairs(batch: pa.RecordBatch, part: FilePart) -> list[Pair]:
    rows = pa.Table.from_batches([batch])
    keys = contents(rows, part.key) if part.key else [None] * len(rows)
    values = contents(rows, part.value) if part.value else [_JSON(one) for one in rows.to_pylist()]
    return list(zip(keys, values, strict=True))


def by_partition(chunk: Sequence[Pair], part: FilePart, first_row: int) -> dict[int, list[Pair]]:
    """Returns the messages of a chunk by partition: by key, or all messages without a key to one partition."""
    turn = (first_row // CHUNK_ROWS + part.number) % part.partitions
    found: dict[int, list[Pair]] = {}
    for key, value in chunk:
        partition = turn if key is None else partition_of(key, part.partitions)
        found.setdefault(partition, []).append((key, value))
    return found


def contents(chunk: pa.Table, name: str) -> list[bytes | None]:
    """Returns a column as bytes: binary unchanged, other types as text. Refused: it is missing, or is no text."""
    if name not in chunk.schema.names:
        raise Refused(f"there is no column {name!r}; there are {', '.join(chunk.schema.names)}")
    column = chunk.column(name)
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        try:
            column = column.cast(pa.string())
        except pa.ArrowNotImplementedError:
            raise Refused(f"column {name!r} is {column.type}, which is not text") from None
        return [None if one is None else one.encode() for one in column.to_pylist()]
    found: list[bytes | None] = column.to_pylist()
    return found


def pieces(messages: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """Yields messages in portions that one request can carry, at least one in each."""
    start = size = 0
    for place, (key, value) in enumerate(messages):
        more = len(key or b"") + len(value or b"")
        if place > start and size + more > BATCH_BYTES:
            yield messages[start:place]
            start, size = place, 0
        size += more
    if start < len(messages):
        yield messages[start:]


def _send(
    client: "Client", part: FilePart, partition: int, sequence: int, messages: Sequence[Pair]
) -> None:
    while messages:
        marks = Marks(producer_id=part.producer_id, producer_epoch=0, first_sequence=sequence)
        columns = Columns(
            values=[value for _, value in messages],
            keys=[key for key, _ in messages],
            timestamps=time.time_ns(),
        )
        command = PublishBatch(part.topic, partition, encode(columns, marks=marks).to_bytes())
        try:
            client.connector.execute(command, acks=Acks.ALL, may_repeat=True)
        except OutOfSequence as error:
            stored = stored_of(error, sequence)
            messages, sequence = messages[stored:], sequence + stored
        else:
            return


def stored_of(error: PenstockError, sequence: int) -> int:
    """Returns how many messages an earlier attempt has stored. Raises the error again if there are none."""
    expected = error.fields.get("next_sequence")
    if not isinstance(expected, int) or expected <= sequence:
        raise error
    return expected - sequence
