"""The active segment is lost after a crash, removed or emptied: it is missed as soon as one sync has covered it."""

import random

import pytest

from penstock.errors import DamagedFile
from penstock.log import Log
from penstock.log.layout import base_offset_of
from penstock.sim import CrashKind, Model, SimDisk, check_crashes

from .naive import changed, new_log, no_room_for_checkpoints, offsets, open_small, path_of, put
from .worlds import DIRECTORY, World, acked_sync, open_tiny, promised_end

LOSSES = {"removed": None, "emptied": b""}


def at_once(_log: Log) -> None:
    """The first segment of the log."""


def after_a_roll(log: Log) -> None:
    put(log, 3)
    log.sync()
    log.roll()


def after_a_roll_and_a_sync(log: Log) -> None:
    """The checkpoint names the new segment, and says that it is empty."""
    after_a_roll(log)
    log.sync(with_checkpoint=True)


def after_some_rolls(log: Log) -> None:
    """No sync between them."""
    put(log, 3)
    log.sync()
    for _ in range(2):
        log.roll()
        put(log, 3)
    log.roll()


def after_a_start(log: Log) -> None:
    put(log, 3)
    log.roll()
    log.close()


MOMENTS = (at_once, after_a_roll, after_a_roll_and_a_sync, after_some_rolls, after_a_start)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda one: one.__name__)
def test_an_active_segment_is_missed_after_its_first_sync(moment, loss) -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    moment(log)
    if not log.segments:
        log, _ = open_small(disk)
    put(log, 1)
    log.sync()
    path = log.segments[-1].path
    lost = changed(disk, {path: LOSSES[loss]})
    before = lost.tree()
    with pytest.raises(DamagedFile) as raised:
        open_small(lost)
    assert raised.value.path == path
    assert lost.tree() == before


def test_a_segment_that_no_sync_covered_may_be_gone() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    after_a_roll(log)
    put(log, 1)
    for content in LOSSES.values():
        again, _ = open_small(changed(disk, {log.segments[-1].path: content}))
        assert offsets(again) == [0, 1, 2]


def test_without_room_for_a_checkpoint_the_next_sync_that_has_room_writes_it() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    with no_room_for_checkpoints(disk):
        put(log, 1)
        log.sync()
    log.sync()
    with pytest.raises(DamagedFile):
        open_small(changed(disk, {log.segments[-1].path: None}))


@pytest.mark.parametrize("loss", LOSSES)
def test_whatever_a_power_cut_leaves_a_segment_with_promised_messages_is_missed(
    loss, effort
) -> None:
    def scenario(disk: SimDisk) -> None:
        world, (log, _) = World(), open_tiny(disk)
        for count in (1, 3, 2, 4, 1, 1, 5, 2):
            world.append(log, count)
            acked_sync(disk, log)

    tried = 0

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        nonlocal tried
        bases = [base for one in disk.list(DIRECTORY) if (base := base_offset_of(one)) is not None]
        if not bases or promised_end(marks) <= max(bases):
            return
        tried += 1
        path = path_of(f"{max(bases):020}.log")
        with pytest.raises(DamagedFile) as raised:
            open_tiny(changed(disk, {path: LOSSES[loss]}))
        assert raised.value.path == path

    check_crashes(
        scenario,
        check,
        entropy=random.Random(1),
        models=tuple(Model)[: effort(check=1, test=9, torture=9)],
        kinds=tuple(CrashKind),
        subsets=effort(check=1, test=4, torture=20),
    )
    assert tried > 20
