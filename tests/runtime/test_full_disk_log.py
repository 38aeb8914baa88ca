"""What the log of a process says of a disk without room: when it begins, when it ends, and not much in between."""

import logging
from random import Random
from types import SimpleNamespace

import pytest

from penstock.api.health import SeeHealth
from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic
from penstock.config import StorageConfig
from penstock.errors import NoSpace
from penstock.model import Message
from penstock.runtime.commit_gate import CommitGate
from penstock.runtime.threads import ThreadDriver
from penstock.runtime.world import World
from penstock.sim import Call, Fault, Misbehaviour, SimDisk
from penstock.testing import VirtualClock

MIB = 1 << 20


def opened(
    disk: SimDisk, clock: VirtualClock, gate: CommitGate | None = None, **storage: int
) -> ThreadDriver:
    world = World(
        clock=clock,
        entropy=Random(1),
        logger=logging.getLogger("t"),
        on_fatal=print,
        gate=gate,
    )
    return ThreadDriver(disk, StorageConfig(**storage), world)


def segments(disk: SimDisk) -> int:
    return sum("/messages/" in path and path.endswith(".log") for path in disk.tree().files)


def said(caplog, part: str) -> int:
    return sum(part in one.getMessage() for one in caplog.records)


def test_publishes_that_begin_and_end_to_be_refused_are_told_once(caplog):
    disk, clock = SimDisk(capacity_bytes=8 * MIB), VirtualClock()
    driver = opened(disk, clock, min_free_bytes=4 * MIB)
    driver.execute(CreateTopic("t", 1, {}))
    message = Publish("t", [Message(Random(1).randbytes(MIB // 2))])
    for _ in range(5):
        with pytest.raises(NoSpace):  # noqa: PT012 - how many fit is not the question
            while True:
                driver.execute(message)
        # It looks at the disk again.
        clock.advance("1s")
    assert (said(caplog, "are refused"), said(caplog, "taken again")) == (1, 0)
    disk.capacity_bytes = 80 * MIB
    clock.advance("1s")
    assert not driver.execute(SeeHealth()).is_full
    driver.execute(message)
    assert (said(caplog, "are refused"), said(caplog, "taken again")) == (1, 1)
    driver.close()


def test_a_sweep_that_has_no_room_is_tried_again_more_and_more_seldom_and_told_once_a_minute(
    caplog,
):
    disk, clock = SimDisk(), VirtualClock()
    driver = opened(disk, clock, min_free_bytes=0)
    settings = {"segment_size_bytes": 4096, "retention_bytes": 8192, "retention_check_ms": 60_000}
    driver.execute(CreateTopic("t", 1, settings))
    for number in range(20):
        driver.execute(Publish("t", [Message(bytes([number]) * 2000)]))
    full = {"call": Call.CREATE, "does": Misbehaviour.NO_SPACE, "path_part": "messages/checkpoint"}
    disk.inject(Fault(**full, times=16))  # Seven tries.

    clock.advance("130s")
    assert segments(disk) == 20
    assert said(caplog, "cannot remove what is old") == 2
    clock.advance("60s")
    assert segments(disk) < 5
    driver.close()


def test_what_is_old_is_removed_while_the_standby_is_away(caplog):
    disk, clock = SimDisk(), VirtualClock()
    commits = SimpleNamespace(
        is_begun=True, sequence=0, committed=0, in_sync=2, advance=lambda: False
    )
    gate = CommitGate(commits, 2, 1000, clock.monotonic_ns)
    driver = opened(disk, clock, gate, min_free_bytes=0)
    settings = {"segment_size_bytes": 4096, "retention_bytes": 8192, "retention_check_ms": 60_000}
    driver.execute(CreateTopic("t", 1, settings))
    for number in range(20):
        driver.execute(Publish("t", [Message(bytes([number]) * 2000)]))
    assert segments(disk) == 20
    commits.in_sync = 1
    clock.advance("60s")
    assert segments(disk) < 5
    assert said(caplog, "cannot remove what is old") == 0
    driver.close()
