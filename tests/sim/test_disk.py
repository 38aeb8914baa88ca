"""How the simulated disk misbehaves when told to."""

import random

import pytest

from penstock.errors import DiskFailed, NoSpace, SyncFailed
from penstock.sim import (
    ALWAYS,
    Call,
    CrashKind,
    CrashStates,
    Fault,
    Misbehaviour,
    Model,
    SimDisk,
    Tree,
    power_cut,
)


def durable(disk: SimDisk) -> Tree:
    states = CrashStates(disk, Model.STRICT, kinds=[CrashKind.DURABLE], entropy=random.Random(1))
    return list(states)[-1].tree


def test_a_fault_waits_for_its_turn_and_passes():
    disk = SimDisk()
    log, other = disk.create("log"), disk.create("other")
    disk.inject(
        Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="log", nth=2, times=2)
    )
    other.append(b"x")
    log.append(b"1")
    for _ in range(2):
        with pytest.raises(NoSpace):
            log.append(b"2")
    other.append(b"y")
    log.append(b"3")
    assert log.read(0, 10) == b"13"
    assert other.read(0, 10) == b"xy"


def test_a_failed_sync_stops_the_disk_and_made_nothing_durable():
    disk = SimDisk()
    file = disk.create("a")
    disk.sync_directory("")
    file.append(b"x")
    disk.inject(Fault(call=Call.SYNC, does=Misbehaviour.SYNC_FAILED))
    for use in (file.sync, file.sync, file.size, lambda: file.append(b"y"), lambda: disk.list("")):
        with pytest.raises(SyncFailed):
            use()
    assert durable(disk).files == {"a": b""}


def test_a_failed_read_does_not_stop_the_disk_and_a_failed_rename_does():
    disk = SimDisk(Tree({"a": b"x"}, frozenset()))
    file = disk.open("a")
    disk.inject(Fault(call=Call.READ, does=Misbehaviour.DISK_FAILED))
    disk.inject(Fault(call=Call.RENAME, does=Misbehaviour.DISK_FAILED))
    with pytest.raises(DiskFailed):
        file.read(0, 1)
    assert file.read(0, 1) == b"x"
    with pytest.raises(DiskFailed):
        disk.rename("a", "b")
    with pytest.raises(DiskFailed):
        file.read(0, 1)


@pytest.mark.parametrize("call", [Call.SYNC, Call.SYNC_DIRECTORY])
def test_a_sync_that_lies_returns_and_makes_nothing_durable(call):
    disk = SimDisk()
    disk.inject(Fault(call=call, does=Misbehaviour.LIE, times=ALWAYS))
    file = disk.create("a")
    file.append(b"x")
    file.sync()
    disk.sync_directory("")
    assert file.read(0, 1) == b"x"
    assert durable(disk).files == ({"a": b""} if call is Call.SYNC else {})


def test_lots_are_drawn_from_the_entropy_and_come_out_the_same_again():
    def failures(seed: int) -> list[int]:
        disk = SimDisk(entropy=random.Random(seed))
        disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, one_in=5, times=ALWAYS))
        file = disk.create("a")
        failed = []
        for number in range(100):
            try:
                file.append(b"x")
            except NoSpace:
                failed.append(number)
        return failed

    assert failures(1) == failures(1) != failures(2)
    assert 5 <= len(failures(1)) <= 40


def test_capacity_counts_all_files_and_comes_back_with_what_is_removed():
    disk = SimDisk(capacity_bytes=10)
    first, second = disk.create("a"), disk.create("b")
    first.append(b"123456")
    second.append(b"123")
    assert disk.free_bytes() == 1
    with pytest.raises(NoSpace):
        second.append(b"45")
    disk.remove("a")
    second.append(b"45")
    disk.capacity_bytes = 3
    assert disk.free_bytes() == 0
    with pytest.raises(NoSpace):
        second.append(b"6")


def test_disks_that_share_bytes_do_not_share_changes():
    tree = Tree({"a": b"old", "b": b"b"}, frozenset())
    first, second = SimDisk(tree), SimDisk(tree)
    first.open("a").append(b"er")
    first.open("b").truncate(0)
    assert second.tree() == tree
    assert first.tree().files == {"a": b"older", "b": b""}


def test_a_power_cut_turns_the_disk_off_and_keeps_what_was_synced():
    outcomes = set()
    for seed in range(100):
        disk = SimDisk()
        file = disk.create("a")
        file.append(b"kept")
        file.sync()
        disk.sync_directory("")
        file.append(b"maybe")
        left = power_cut(disk, Model.STRICT, entropy=random.Random(seed))
        with pytest.raises(DiskFailed):
            file.append(b"x")
        outcomes.add(left.open("a").read(0, 100))
    assert all(outcome.startswith(b"kept") for outcome in outcomes)
    assert {b"kept", b"keptmaybe", b"keptm", b"kept\0\0\0\0\0"} <= outcomes
