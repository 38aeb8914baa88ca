"""docs/formats/batch.md says what the code does, and its example is a batch of today."""

import re
from pathlib import Path

from penstock.codec import (
    COUNT_MAX,
    HEAD_BYTES,
    Head,
    body,
    encode_messages,
    read_head,
    seed_of,
    stamp,
)
from penstock.codec.body import HEADERS_MAX
from penstock.config import MIB, LimitsConfig
from penstock.model import LogId, Message

from .golden_cases import LOG_ID, NOON
from .test_memory import READ_MIB_MAX, REFUSED_MIB_MAX

PAGE = (Path(__file__).parents[2] / "docs/formats/batch.md").read_text()
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "i64": 8}
HEAD_ROW = re.compile(r"^\| (\d+) \| ([ui]\d+) \| ([a-z ]+) \|", re.MULTILINE)
COLUMN_ROW = re.compile(r"^\| (\d+) \| ([a-z ]+) \| (?:numbers|blobs)", re.MULTILINE)

BODY_PIECES = [
    (16, "forms: times u16, keys u8 with nulls, values u8"),
    (8, "timestamps: 0, 1500"),
    (8, "key lengths: 1, 0"),
    (8, "keys that are not null: the first"),
    (8, "value lengths: 5, 3"),
    (1, "keys: k"),
    (8, "values: hello, hey"),
    (7, "padding"),
]


def example() -> bytes:
    messages = [
        Message(b"hello", b"k", timestamp=NOON),
        Message(b"hey", None, timestamp=NOON + 1500),
    ]
    batch = encode_messages(messages).to_bytes()
    head = stamp(
        read_head(batch),
        base_offset=42,
        epoch=3,
        append_time=NOON + 2_000_000,
        unsynced=2,
        seed=seed_of(LogId(LOG_ID)),
    )
    return head + batch[HEAD_BYTES:]


def head_pieces() -> list[tuple[int, str]]:
    values = dict(zip(Head._fields, read_head(example(), seed=seed_of(LOG_ID)), strict=True))
    pieces = []
    for _, kind, name in HEAD_ROW.findall(PAGE):
        value = values[name.replace(" ", "_")]
        is_bits = "checksum" in name or name in ("magic", "attributes")
        pieces.append((SIZES[kind], f"{name}: {value:#x}" if is_bits else f"{name}: {value}"))
    return pieces


def listing() -> str:
    batch, position, lines = example(), 0, []
    for size, meaning in head_pieces() + BODY_PIECES:
        raw = batch[position : position + size]
        for start in range(0, size, 8):
            shown = meaning if start == 0 else ""
            line = f"{position + start:4}  {raw[start : start + 8].hex(' '):23}  {shown}"
            lines.append(line.rstrip())
        position += size
    assert position == len(batch)
    return "\n".join(lines)


def test_the_example_on_the_page_is_a_batch_of_today():
    shown = PAGE.split("<!-- example -->")[1].split("<!-- /example -->")[0]
    assert shown.strip() == f"```\n{listing()}\n```"


def test_the_head_on_the_page_is_the_head_of_the_code():
    position = 0
    rows = HEAD_ROW.findall(PAGE)
    for at, kind, _ in rows:
        assert int(at) == position
        position += SIZES[kind]
    assert position == HEAD_BYTES
    assert tuple(name.replace(" ", "_") for _, _, name in rows) == Head._fields


def test_the_columns_on_the_page_are_those_of_the_code():
    for number, name in COLUMN_ROW.findall(PAGE):
        assert getattr(body.Column, name.strip().upper().replace(" ", "_")) == int(number)
    assert len(COLUMN_ROW.findall(PAGE)) == len(body.RULES)


def test_the_limits_on_the_page_are_those_of_the_code():
    limits = LimitsConfig()
    assert f"| messages of a batch | {COUNT_MAX:,} |" in PAGE
    assert f"| headers of a batch | {HEADERS_MAX:,} |" in PAGE
    assert f"{limits.batch_bytes_max // MIB} MiB by default" in PAGE
    assert f"less than {READ_MIB_MAX} MiB of Python objects" in PAGE
    assert f"costs less than {REFUSED_MIB_MAX} MiB" in PAGE
