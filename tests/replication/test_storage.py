"""What a follower finds when it starts: a crash while a log was made is no damage, what was synced and is gone is."""

import random

import pytest

from penstock.codec import Columns, encode
from penstock.replication.frames import EpochAt, LogFacts
from penstock.replication.storage import Storage
from penstock.sim import SimDisk
from penstock.sim.crash import check_crashes

PATH = "topics/default/orders/partition-0/state"
IDENTITY, SEGMENT = f"{PATH}/identity", f"{PATH}/00000000000000000000.log"
FACTS = LogFacts(PATH, 7, 0, 0, (EpochAt(257, 0),), 700, 128)


def made(*, is_written: bool) -> SimDisk:
    disk = SimDisk()
    log = Storage(disk).make(FACTS)
    if is_written:
        log.append(encode(Columns(values=[b"a"], timestamps=0)), now_ns=1)
        log.sync()
    log.discard()
    return disk


def tear(disk: SimDisk, path: str, size: int) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.sync()
    file.close()


@pytest.mark.parametrize("size", [0, 11])
def test_a_log_whose_identity_did_not_reach_the_disk_was_never_there(size: int) -> None:
    disk = made(is_written=False)
    tear(disk, IDENTITY, size)
    storage = Storage(disk)
    assert storage.open()
    assert not storage.aside
    # The leader sends it again.
    assert storage.make(FACTS).end_offset == 0


def test_a_log_whose_first_segment_did_not_reach_the_disk_is_empty() -> None:
    disk = made(is_written=False)
    disk.remove(SEGMENT)
    storage = Storage(disk)
    assert storage.open()
    assert not storage.aside
    assert storage.logs[PATH].end_offset == 0


def test_what_was_synced_and_is_gone_is_damage() -> None:
    without_segment, without_identity = made(is_written=True), made(is_written=True)
    without_segment.remove(SEGMENT)
    tear(without_identity, IDENTITY, 0)
    for disk in (without_segment, without_identity):
        storage = Storage(disk)
        assert not storage.open()
        assert [one.path for one in storage.aside] == [PATH]


def test_a_power_cut_at_any_moment_while_a_log_is_made_is_no_damage() -> None:
    def make(disk: SimDisk) -> None:
        Storage(disk).make(FACTS)

    def check(disk: SimDisk, marks: object) -> None:
        storage = Storage(disk)
        assert storage.open()
        assert not storage.aside

    check_crashes(make, check, entropy=random.Random(7))
