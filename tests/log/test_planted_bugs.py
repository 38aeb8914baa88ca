"""Bugs that such logs have had, planted one at a time: the enumerator has to find each of them.

A test that cannot fail proves nothing; these are the proof for the crash tests beside them.
"""

import random
import sys
from dataclasses import replace
from functools import partial

import pytest

from penstock.errors import PenstockError
from penstock.log import SyncPlan, index, layout, log, open_log, snapshot, sync_plan
from penstock.log.journal import Journal, OrderedPlan
from penstock.log.layout import CHECKPOINT, TEMPORARY
from penstock.log.scan import walk_heads
from penstock.log.segment import Segment
from penstock.model import Buffer
from penstock.ports import Disk
from penstock.sim import SimDisk, check_crashes

from . import test_journal_crashes as pair
from .test_crashes import SCENARIOS
from .worlds import DIRECTORY, LOG_ID, TINY, World, acked_sync, judge, open_tiny, read_values

pytestmark = pytest.mark.tier("test")
Patch = pytest.MonkeyPatch
# The package gives the name of this module to the function in it.
opening = sys.modules["penstock.log.opening"]
# Every one of them is found within these; the seeds are fixed, so a miss is a change in the tests.
SEEDS = range(3)


def finds(name: str) -> bool:
    """Whether pulling the plug on a scenario breaks a promise."""
    for seed in SEEDS:
        world = World()
        try:
            check_crashes(
                partial(SCENARIOS[name], world, random.Random(seed)),
                partial(judge, world),
                entropy=random.Random(seed),
            )
        except (AssertionError, PenstockError):
            return True
    return False


def finds_in_pair() -> bool:
    for seed in SEEDS:
        life = pair.Life()
        try:
            check_crashes(
                partial(pair.living, life, random.Random(seed)),
                partial(pair.judge, life),
                entropy=random.Random(seed),
            )
        except (AssertionError, PenstockError):
            return True
    return False


def test_ack_before_fsync_is_found_by_appending(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SyncPlan, "run", lambda plan: None)
    assert finds("append")


def test_a_missing_directory_fsync_is_found_by_rolling(monkeypatch: Patch) -> None:
    def run(plan: SyncPlan) -> None:
        for segment, _ in plan.segments:
            segment.file.sync()

    monkeypatch.setattr(SyncPlan, "run", run)
    assert finds("roll")


def replace_without_sync(disk: Disk, directory: str, name: str, *parts: Buffer) -> None:
    disk.create(f"{directory}/{name}{TEMPORARY}").append(*parts)
    disk.rename(f"{directory}/{name}{TEMPORARY}", f"{directory}/{name}")
    disk.sync_directory(directory)


def test_an_unsynced_checkpoint_rename_is_found_by_checkpointing(monkeypatch: Patch) -> None:
    for module in (log, opening, sync_plan):
        monkeypatch.setattr(module, "replace_file", replace_without_sync)
    assert finds("checkpoint")


def test_an_unchecked_tail_is_found_by_appending(monkeypatch: Patch) -> None:
    monkeypatch.setattr(opening, "walk_batches", walk_heads)
    assert finds("append")


def test_a_checkpoint_ahead_of_its_sync_is_found_by_checkpointing(monkeypatch: Patch) -> None:
    def run(plan: SyncPlan) -> None:
        if plan.checkpoint is not None:
            content = plan.checkpoint.to_bytes(plan.seed)
            layout.replace_file(plan.disk, plan.directory, CHECKPOINT, content)
        for segment, _ in plan.segments:
            segment.file.sync()
        plan.disk.sync_directory(plan.directory)

    monkeypatch.setattr(SyncPlan, "run", run)
    assert finds("checkpoint")


def test_a_trusted_index_is_found_by_reading_with_a_wrong_one(monkeypatch: Patch) -> None:
    disk, world = SimDisk(), World()
    # Four batches a segment: the first of one is read without its index.
    wider = replace(TINY, segment_size_bytes=800)
    first, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=wider)
    for _ in range(8):
        world.append(first, 1)
    # The newest has no index while it is small.
    paths = [segment.path for segment in first.segments[:-1]]
    first.close()
    for path in paths:
        point_behind(disk, path.removesuffix(".log") + ".index")
    assert reads_everything(disk, world)
    monkeypatch.setattr(index, "_checked_header", lambda raw, *_: header_of(raw))
    monkeypatch.setattr(Segment, "_restored", Segment._saved_index)
    monkeypatch.setattr(Segment, "_start", lambda segment, look_up, _: look_up(segment.index()))
    assert not reads_everything(disk, world)


def header_of(raw: bytes) -> index.IndexHeader:
    return index.IndexHeader._make(index._HEADER.unpack_from(raw))


def point_behind(disk: SimDisk, path: str) -> None:
    """Make every entry of an index point at the last batch that it knows."""
    file = disk.open(path)
    raw = bytearray(file.read(0, file.size()))
    for entry in range(index._HEADER.size, len(raw), 8):
        raw[entry + 4 : entry + 8] = raw[-4:]
    disk.create(path).append(bytes(raw))


def reads_everything(disk: SimDisk, world: World) -> bool:
    try:
        opened, _ = open_tiny(disk)
        found = [read_values(opened, offset)[0] for offset in range(len(world.values))]
    except PenstockError:
        return False
    return found == list(enumerate(world.values))


def test_a_cut_in_the_middle_is_found_by_damaging_a_durable_batch(monkeypatch: Patch) -> None:
    disk, world = SimDisk(), World()
    opened, _ = open_tiny(disk)
    for _ in range(2):
        world.append(opened, 2)
        acked_sync(disk, opened)
    file = disk.open(opened.segments[0].path)
    spoiled = bytearray(file.read(0, file.size()))
    spoiled[130] ^= 1
    disk.create(opened.segments[0].path).append(bytes(spoiled))
    disk.remove(f"{opened.directory}/{CHECKPOINT}")
    tree = disk.tree()
    with pytest.raises(PenstockError, match="damaged batch"):
        open_tiny(SimDisk(tree))
    monkeypatch.setattr(opening, "_proof_of_damage", lambda *place: None)
    silently_short, _ = open_tiny(SimDisk(tree))
    assert silently_short.end_offset < len(world.values)


def test_state_synced_before_its_messages_is_found_by_the_pair(monkeypatch: Patch) -> None:
    def run(plan: OrderedPlan) -> None:
        plan.state.run()
        if plan.snapshot is not None:
            plan.snapshot.run()
        plan.messages.run()

    monkeypatch.setattr(OrderedPlan, "run", run)
    assert finds_in_pair()


def test_a_snapshot_ahead_of_the_log_is_found_by_the_pair(monkeypatch: Patch) -> None:
    def run(plan: OrderedPlan) -> None:
        if plan.snapshot is not None:
            plan.snapshot.run()
        plan.messages.run()
        plan.state.run()

    monkeypatch.setattr(OrderedPlan, "run", run)
    assert finds_in_pair()


def test_state_beyond_the_messages_is_found_by_the_pair(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Journal, "_drop_beyond", lambda journal, start, message_end: None)
    assert finds_in_pair()


def test_an_unsynced_snapshot_is_found_by_the_pair(monkeypatch: Patch) -> None:
    monkeypatch.setattr(snapshot, "replace_file", replace_without_sync)
    assert finds_in_pair()
