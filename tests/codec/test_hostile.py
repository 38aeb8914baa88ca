"""Bytes from an enemy: a typed refusal or the same content again, never anything else."""

import random
import sys
import time
from collections import Counter

import pytest

from penstock.codec import decode_arrow, decode_columns, decode_messages, encode, verify
from penstock.codec.columns import without_empty
from penstock.errors import Refused
from penstock.model import MessageColumns

from . import forge, twin
from .strategies import messages_of
from .test_arrow import messages_of as messages_of_arrow

SHARDS = 16
THOROUGH_EVERY = 16
REPORT_EVERY = 100_000
SECONDS_MAX = 5.0


def judge(raw: bytes, *, thorough: bool) -> str:
    """Feed every decoder. Says how it ended; anything but a typed refusal comes out as it is."""
    try:
        head = verify(raw)
    except Refused as refusal:
        return type(refusal).__name__
    decoders = (decode_columns, decode_messages, decode_arrow)
    decoded, refusals = [], set()
    for decode in decoders:
        try:
            decoded.append(decode(raw, head))
        except Refused as refusal:
            refusals.add((type(refusal), str(refusal)))
    if refusals:
        assert not decoded
        assert len(refusals) == 1
        return refusals.pop()[0].__name__
    columns, messages, table = decoded
    table.validate(full=True)
    assert table.num_rows == len(messages) == len(columns.values) == head.message_count
    assert_same_content(columns, list(messages))
    if thorough:
        assert messages_of_arrow(table) == list(messages)
        if not head.compression:
            assert twin.decode(raw[: head.length]) == list(messages)
    return "read"


def assert_same_content(columns: MessageColumns, messages: list) -> None:
    """What was read can be written again and reads as the same."""
    if not messages:
        return
    assert messages_of(columns) == messages
    batch = encode(without_empty(columns)).to_bytes()
    again = decode_columns(batch, verify(batch))
    assert again._replace(offsets=columns.offsets) == columns


@pytest.mark.parametrize("shard", range(SHARDS))
def test_hostile_bytes_are_refused_or_read_and_nothing_else(shard, effort, tier, capfd):
    count = effort(check=4_000, test=40_000, torture=20_000_000) // SHARDS
    # The gate repeats itself; torture looks for what is new, and a note names what it found.
    seed = shard if tier != "torture" else random.SystemRandom().getrandbits(64)
    rng, endings, slowest = random.Random(seed), Counter(), 0.0
    for number in range(1, count + 1):
        raw = forge.hostile(rng)
        started = time.process_time()
        try:
            endings[judge(raw, thorough=number % THOROUGH_EVERY == 0)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, input {number}: {raw.hex()}")
            raise
        slowest = max(slowest, time.process_time() - started)
        if number % REPORT_EVERY == 0:
            with capfd.disabled():
                sys.stderr.write(f"hostile shard {shard}: {number:,} of {count:,}\n")
    assert slowest < SECONDS_MAX
    # Every way to end is reached, or the forge no longer gets where it should.
    for ending in ("ChecksumMismatch", "MalformedBatch", "read"):
        assert endings[ending] > count // 50
    assert endings["UnsupportedFormat"] > 0
