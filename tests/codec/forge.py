"""Hostile batches: seeded, so that every one of them can be made again from two numbers.

A batch is taken apart into its head and its unpacked body, something in it is changed, and it is put together
again: half of them with every checksum, length and padding made right, so that only the parser can refuse
them.
"""

import random
import struct
from collections.abc import Callable

import cramjam
from crc32c import crc32c

from penstock.codec import HEAD_BYTES, Compression, Head, Marks, Origin
from penstock.model import Message

from . import twin

FIELDS = struct.Struct(twin.HEAD)
FIELD_NAMES = Head._fields[:-1]
FIELD_FORMATS = dict(zip(FIELD_NAMES, twin.HEAD[1:], strict=True))
PADDING_BITS = 0b111 << 11
EDGES = [
    0, 1, 2, 3, 7, 8, 15, 16, 255, 256, 65_535, 65_536, 2**18, 2**18 + 1, 2**20, 2**24, 2**31 - 1,
    2**31, 2**32 - 1, 2**32, 2**33, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1,
]  # fmt: skip
BITS = {"I": 32, "B": 8, "H": 16, "q": 64, "i": 32, "Q": 64}

Parts = tuple[dict[str, int], bytearray]


def valid_batches() -> list[bytes]:
    """One or more of every feature, small so that a single change matters."""
    rng = random.Random(2024)
    batches = [twin.encode([], place=twin.Place(base_offset=5, last_offset=9, empty_timestamp=3))]
    for count in (1, 2, 3, 8, 9, 40):
        for _ in range(5):
            messages = [_message(rng, index, features=rng.randrange(256)) for index in range(count)]
            batches.append(twin.encode(messages))
            features = rng.choice([0, 3, 7, 255])
            same = [_message(rng, 3 * index, features=features) for index in range(count)]
            place = twin.Place(last_offset=3 * count, unsynced=0)
            batches.append(twin.encode(same, place=place, marks=Marks(origin=Origin.DELAY)))
    return batches


def _message(rng: random.Random, offset: int, *, features: int) -> Message:
    """Each bit of `features` brings one column in."""

    def blob(bit: int) -> bytes | None:
        return (
            rng.choice([None, b"", b"\0", rng.randbytes(rng.randrange(9))])
            if features & bit
            else None
        )

    names = rng.choices(["a", "é", "漢字", "trace"], k=rng.randrange(3)) if features & 4 else []
    return Message(
        value=blob(1),
        key=blob(2),
        headers=tuple((name, rng.randbytes(rng.randrange(3))) for name in names),
        priority=rng.randrange(5) if features & 8 else 2,
        timestamp=rng.choice([0, 5, 300, 2**33, 2**63 - 1, -(2**63)]) if features & 16 else 7,
        expires_at=rng.choice([None, 1, 2**63 - 1]) if features & 32 else None,
        idempotency_key=blob(64),
        schema_id=rng.choice([None, 1, 2**32 - 1]) if features & 128 else None,
        offset=offset,
    )


def apart(batch: bytes) -> Parts:
    fields = dict(zip(FIELD_NAMES, FIELDS.unpack_from(batch), strict=True))
    return fields, bytearray(batch[HEAD_BYTES : HEAD_BYTES + fields["body_size"]])


def together(fields: dict[str, int], body: bytes, kind: Compression = Compression.NONE) -> bytes:
    """The batch of these parts as an honest writer would seal it."""
    stored = body
    if kind is Compression.LZ4:
        stored = bytes(cramjam.lz4.compress_block(body, store_size=False))
    elif kind is Compression.ZSTD:
        stored = bytes(cramjam.zstd.compress(body, 1))
    padding = -len(stored) % 8
    fields["attributes"] = fields["attributes"] & ~(PADDING_BITS | 7) | padding << 11 | kind
    fields["length"] = HEAD_BYTES + len(stored) + padding
    fields["body_size"] = len(body)
    return sealed(fields, stored)


def sealed(fields: dict[str, int], stored: bytes) -> bytes:
    """These fields over these bytes, with both checksums right and the padding zero."""
    fields["body_checksum"] = crc32c(stored)
    head = FIELDS.pack(*fields.values())
    return head + struct.pack("<I", crc32c(head)) + stored + bytes(-len(stored) % 8)


def number_for(rng: random.Random, letter: str) -> int:
    """A number that fits a field, most often from the edge of some range."""
    bits = BITS[letter]
    number = rng.choice(EDGES) if rng.random() < 0.8 else rng.getrandbits(bits)
    number &= (1 << bits) - 1
    return number - (1 << bits) if letter in "qi" and number >> bits - 1 else number


# Each of these changes the parts in place.


def flip_bits(rng: random.Random, parts: Parts) -> None:
    body = parts[1]
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def overwrite_form(rng: random.Random, parts: Parts) -> None:
    known = rng.random() < 0.9
    parts[1][rng.randrange(14 if known else 16)] = rng.randrange(16 if known else 256)


def overwrite_number(rng: random.Random, parts: Parts) -> None:
    """An aligned number of the columns: a constant, a length, a count, a delta."""
    letter = rng.choice("BHIQ")
    size = struct.calcsize(letter)
    place = 16 + size * rng.randrange(max((len(parts[1]) - 16) // size, 1))
    if place + size <= len(parts[1]):
        struct.pack_into("<" + letter, parts[1], place, number_for(rng, letter))


def truncate(rng: random.Random, parts: Parts) -> None:
    del parts[1][rng.randrange(16, len(parts[1]) + 1) :]


def repeat(rng: random.Random, parts: Parts) -> None:
    start = rng.randrange(16, len(parts[1]) + 1)
    piece = parts[1][start : start + 8 * rng.randrange(1, 4)]
    parts[1][start:start] = piece or bytes(8)


def splice(rng: random.Random, parts: Parts) -> None:
    """The start of this body and the end of another."""
    cut = 8 * rng.randrange(len(parts[1]) // 8 + 1)
    other = apart(rng.choice(VALID))[1]
    parts[1][cut:] = other[8 * rng.randrange(len(other) // 8 + 1) :]
    parts[1].extend(bytes(max(16 - len(parts[1]), 0)))


def overwrite_field(rng: random.Random, parts: Parts) -> None:
    name = rng.choice(FIELD_NAMES)
    parts[0][name] = number_for(rng, FIELD_FORMATS[name])


def change_count(rng: random.Random, parts: Parts) -> None:
    """Another number of messages, with the range that goes with it."""
    large = rng.random() < 0.002  # A legal one of this size costs a second to decode.
    count = rng.choice([2**18, 2**18 + 1]) if large else rng.randrange(100)
    parts[0]["message_count"] = count
    parts[0]["last_delta"] = max(count - 1, 0)


def claim_priorities(rng: random.Random, parts: Parts) -> None:
    parts[0]["attributes"] = parts[0]["attributes"] & ~(0b11111 << 6) | rng.randrange(32) << 6


def shift_times(rng: random.Random, parts: Parts) -> None:
    """Other times, mostly as far apart as they were."""
    base, fields = number_for(rng, "q"), parts[0]
    apart = fields["max_timestamp"] - fields["base_timestamp"]
    fields["base_timestamp"] = base
    latest = base + rng.choice([apart, apart, 0, 1, 300])
    fields["max_timestamp"] = max(-(2**63), min(latest, 2**63 - 1))


def overwrite_blob(rng: random.Random, parts: Parts) -> None:
    """The end of the body is blobs, where any byte is as good as another."""
    start = max(16, len(parts[1]) - rng.randrange(1, 10))
    parts[1][start:] = rng.randbytes(len(parts[1]) - start)


CHANGES: list[Callable[[random.Random, Parts], None]] = [
    flip_bits,
    overwrite_form,
    overwrite_number,
    overwrite_number,
    truncate,
    repeat,
    splice,
    overwrite_field,
    change_count,
    claim_priorities,
    shift_times,
    overwrite_blob,
]


def hostile(rng: random.Random) -> bytes:
    """One hostile input."""
    kind = rng.random()
    if kind < 0.01:
        return rng.randbytes(rng.randrange(400))
    if kind < 0.03:
        return bomb(rng)
    parts = apart(rng.choice(VALID))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice(CHANGES)(rng, parts)
    fields, body = parts
    if rng.random() < 0.5:
        return sealed_or_forged(rng, fields, bytes(body))
    return damaged(rng, bytearray(together(fields, bytes(body))))


def sealed_or_forged(rng: random.Random, fields: dict[str, int], body: bytes) -> bytes:
    """Right checksums; and mostly, but not always, the length and sizes that go with the body."""
    packing = rng.random()
    if packing < 0.1:
        return sealed(fields, body)
    kind = Compression.NONE
    if packing < 0.3:
        kind = rng.choice([Compression.LZ4, Compression.ZSTD])
    batch = together(fields, body, kind)
    if kind is not Compression.NONE and rng.random() < 0.5:
        stored = bytearray(batch[HEAD_BYTES:])
        stored[rng.randrange(len(stored))] ^= 1 << rng.randrange(8)
        size = fields["length"] - HEAD_BYTES - (fields["attributes"] >> 11 & 7)
        return sealed(fields, bytes(stored[:size]))
    return batch


def damaged(rng: random.Random, raw: bytearray) -> bytes:
    """Bytes changed after the checksums were made, as a disk or a network does it."""
    kind = rng.randrange(5)
    if kind == 0:
        del raw[rng.randrange(len(raw)) :]
    elif kind == 1:
        start = rng.randrange(len(raw))
        raw[start : start + 8] = rng.randbytes(8)
    elif kind == 2:
        other = rng.choice(VALID)
        raw[rng.randrange(len(raw)) :] = other[rng.randrange(len(other)) :]
    else:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def bomb(rng: random.Random) -> bytes:
    """A body that unpacks to far more than it stores, with a head that says so or lies."""
    fields, _ = apart(rng.choice(VALID))
    size = rng.choice([1000, 65_536, 300_000])
    kind = rng.choice([Compression.LZ4, Compression.ZSTD])
    batch = together(fields, bytes(size), kind)
    stored = batch[HEAD_BYTES : len(batch) - (fields["attributes"] >> 11 & 7)]
    fields["body_size"] = rng.choice([size, 16, size - 1, size + 1, 2**24, 2**31 - 1, 2**32 - 1])
    return sealed(fields, stored)


VALID = valid_batches()
