"""The bytes of a checkpoint, as docs/formats/log.md has them."""

import pytest

from penstock.codec import seed_of
from penstock.errors import Refused
from penstock.log.checkpoint import Checkpoint, EpochStart, read_checkpoint
from penstock.log.layout import replace_file
from penstock.model import Epoch, LogEnd, LogId, Offset
from penstock.sim import SimDisk

SEED = seed_of(LogId(7))
CHECKPOINT = Checkpoint(
    Offset(10),
    Offset(20),
    300,
    Offset(25),
    1_700_000_000_000_000_000,
    Offset(15),
    (EpochStart(Epoch(1), Offset(10)), EpochStart(Epoch(3), Offset(22))),
    is_closed=True,
    meta_end=LogEnd(Epoch(4), Offset(99)),
)
GOLDEN = (
    "504e4350020000000a0000000000000014000000000000002c01000000000000"
    "190000000000000000002a36fe9c97170f000000000000000200000001000000"
    "0400000000000000630000000000000001000000000000000a00000000000000"
    "03000000000000001600000000000000"
)  # fmt: skip


def test_the_bytes_of_version_2_stay_what_they_are() -> None:
    raw = CHECKPOINT.to_bytes(SEED)
    assert raw[:-4].hex() == GOLDEN
    disk = SimDisk()
    disk.make_directories("log")
    replace_file(disk, "log", "checkpoint", raw)
    assert read_checkpoint(disk, "log", SEED) == CHECKPOINT


def test_other_versions_are_refused_by_their_number() -> None:
    from penstock.codec.checksum import checksum

    disk = SimDisk()
    disk.make_directories("log")
    for version in (1, 3):
        raw = bytearray(CHECKPOINT.to_bytes(SEED)[:-4])
        raw[4] = version
        seal = checksum(bytes(raw), SEED).to_bytes(4, "little")
        replace_file(disk, "log", "checkpoint", bytes(raw), seal)
        with pytest.raises(Refused, match=f"version {version}"):
            read_checkpoint(disk, "log", SEED)
