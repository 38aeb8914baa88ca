"""The batch format a second time: one message after the other, nothing clever, no numpy.

Written from docs/formats/batch.md. The fast codec has to write the same bytes and read the same messages.
It knows no compression and believes what it reads: it is for batches that are whole.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock.codec import Marks
from penstock.model import Message

HEAD = "<IIBBHIqIIIIqqqqiiQQQI"
HEAD_BYTES = 112
WIDTHS = {2: "B", 3: "H", 4: "I", 5: "Q"}


@dataclass(frozen=True)
class Place:
    """Where a batch stands in a log; as it leaves an encoder if nothing is said."""

    base_offset: int = 0
    last_offset: int | None = None  # None: dense, as many offsets as messages.
    epoch: int = 0
    append_time: int = 0
    unsynced: int = 2**32 - 1
    empty_timestamp: int = 0
    log_id: int | None = None


NOWHERE = Place()


def pad(raw: bytes) -> bytes:
    return raw + b"\0" * (-len(raw) % 8)


def write_column(numbers: Sequence[int], default: int | None) -> tuple[int, bytes]:
    if all(number == numbers[0] for number in numbers):
        if numbers[0] == default:
            return 0, b""
        return 1, struct.pack("<Q", numbers[0])
    for form, letter in WIDTHS.items():
        if max(numbers) < 1 << 8 * struct.calcsize(letter):
            return form, pad(b"".join(struct.pack("<" + letter, number) for number in numbers))
    raise AssertionError("a number of more than 64 bits")


def write_blobs(items: Sequence[bytes | None]) -> tuple[int, bytes, bytes]:
    """Form, lengths with their bitmap, and the blob."""
    if all(item is None for item in items):
        return 0, b"", b""
    form, column = write_column([len(item or b"") for item in items], None)
    if any(item is None for item in items):
        form += 8
        bits = bytearray((len(items) + 7) // 8)
        for index, item in enumerate(items):
            if item is not None:
                bits[index // 8] |= 1 << index % 8
        column += pad(bytes(bits))
    return form, column, b"".join(item or b"" for item in items)


def write_body(messages: Sequence[Message], place: Place = NOWHERE) -> bytes:
    if not messages:
        return bytes(16)
    base = min(message.timestamp for message in messages)
    pairs = [pair for message in messages for pair in message.headers]
    deltas = [message.offset - place.base_offset for message in messages]
    is_dense = place.last_offset is None or deltas == list(
        range(place.last_offset - place.base_offset + 1)
    )
    columns: list[tuple[int, bytes, bytes]] = [
        (*write_column([message.timestamp - base for message in messages], 0), b""),
        write_blobs([message.key for message in messages]),
        write_blobs([message.value for message in messages]),
        (*write_column([len(message.headers) for message in messages], 0), b""),
        write_blobs([name.encode() for name, _ in pairs]),
        write_blobs([value for _, value in pairs]),
        (*write_column([message.priority for message in messages], 2), b""),
        (*write_column([message.expires_at or 0 for message in messages], 0), b""),
        write_blobs([message.idempotency_key for message in messages]),
        (*write_column([message.schema_id or 0 for message in messages], 0), b""),
        (0, b"", b"") if is_dense else (*write_column(deltas, None), b""),
    ]
    forms = bytes(form for form, _, _ in columns) + bytes(5)  # No delays: those are a broker's.
    numbers = b"".join(column for _, column, _ in columns)
    return forms + numbers + b"".join(blob for _, _, blob in columns)


def encode(
    messages: Sequence[Message], *, marks: Marks | None = None, place: Place = NOWHERE
) -> bytes:
    marks = Marks() if marks is None else marks
    body = write_body(messages, place)
    attributes = 8 * marks.control + (int(marks.origin) << 4) + (-len(body) % 8 << 11)
    for priority in {message.priority for message in messages}:
        attributes += 1 << 6 + priority
    last = len(messages) - 1 if place.last_offset is None else place.last_offset - place.base_offset
    times = [message.timestamp for message in messages] or [place.empty_timestamp]
    head = struct.pack(
        HEAD,
        struct.unpack("<I", b"PNSB")[0],
        HEAD_BYTES + len(pad(body)),
        2,
        0,
        attributes,
        len(messages),
        place.base_offset,
        last,
        place.unsynced,
        place.epoch,
        len(body),
        place.append_time,
        min(times),
        max(times),
        marks.producer_id,
        marks.producer_epoch,
        marks.first_sequence,
        marks.transaction_id,
        marks.origin_source,
        marks.origin_sequence,
        crc32c(body),
    )
    log = b"" if place.log_id is None else struct.pack("<Q", place.log_id)
    return head + struct.pack("<I", crc32c(log + head)) + pad(body)


class Reader:
    def __init__(self, body: bytes, count: int) -> None:
        self.body, self.count, self.position = body, count, 16

    def take(self, size: int) -> bytes:
        self.position += size
        assert self.position <= len(self.body)
        return self.body[self.position - size : self.position]

    def take_padded(self, size: int) -> bytes:
        return self.take(size + -size % 8)[:size]

    def numbers(self, column: int, items: int, default: int) -> list[int]:
        width = self.body[column] & 7
        if width == 0:
            return [default] * items
        if width == 1:
            return [struct.unpack("<Q", self.take(8))[0]] * items
        letter = WIDTHS[width]
        raw = self.take_padded(struct.calcsize(letter) * items)
        return [number for (number,) in struct.iter_unpack("<" + letter, raw)]

    def lengths(self, column: int, items: int) -> list[int | None]:
        """None for a null."""
        if self.body[column] == 0:
            return [None] * items
        found = self.numbers(column, items, 0)
        bits = b"\xff" * (items // 8 + 1)
        if self.body[column] & 8:
            bits = self.take_padded((items + 7) // 8)
        return [
            length if bits[index // 8] >> index % 8 & 1 else None
            for index, length in enumerate(found)
        ]

    def blob(self, lengths: Sequence[int | None]) -> list[bytes | None]:
        return [None if length is None else self.take(length) for length in lengths]


def decode(batch: bytes) -> list[Message]:
    fields = struct.unpack_from(HEAD, batch)
    attributes, count, base_offset = fields[4:7]
    base_timestamp = fields[12]
    reader = Reader(batch[HEAD_BYTES : len(batch) - (attributes >> 11 & 7)], count)
    times = reader.numbers(0, count, 0)
    key_lengths = reader.lengths(1, count)
    value_lengths = reader.lengths(2, count)
    header_counts = reader.numbers(3, count, 0)
    name_lengths = reader.lengths(4, sum(header_counts))
    header_value_lengths = reader.lengths(5, sum(header_counts))
    priorities = reader.numbers(6, count, 2)
    expiries = reader.numbers(7, count, 0)
    idempotency_lengths = reader.lengths(8, count)
    schema_ids = reader.numbers(9, count, 0)
    deltas = reader.numbers(10, count, 0) if reader.body[10] else list(range(count))
    reader.numbers(11, count, 0)
    delay_key_lengths = reader.lengths(12, count)
    reader.numbers(13, count, 0)
    keys, values = reader.blob(key_lengths), reader.blob(value_lengths)
    names, header_values = reader.blob(name_lengths), reader.blob(header_value_lengths)
    idempotency_keys = reader.blob(idempotency_lengths)
    reader.blob(delay_key_lengths)
    assert reader.position == len(reader.body)
    pairs = [(name.decode(), value) for name, value in zip(names, header_values, strict=True)]
    messages, used = [], 0
    for index in range(count):
        headers = tuple(pairs[used : used + header_counts[index]])
        used += header_counts[index]
        messages.append(
            Message(
                value=values[index],
                key=keys[index],
                headers=headers,
                priority=priorities[index],
                timestamp=base_timestamp + times[index],
                expires_at=expiries[index] or None,
                idempotency_key=idempotency_keys[index],
                schema_id=schema_ids[index] or None,
                offset=base_offset + deltas[index],
            )
        )
    return messages
