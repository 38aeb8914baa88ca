"""A repair saves everything that is whole, destroys nothing, and may be interrupted anywhere."""

import random
from collections.abc import Collection
from contextlib import suppress

import pytest

from penstock.codec import HEAD_BYTES, encode_messages, read_head, stamp, verify
from penstock.errors import Damaged, DamagedFile, NoSpace, Refused, WrongLog
from penstock.log import open_log
from penstock.log.checkpoint import EpochStart, read_checkpoint
from penstock.log.compaction import compact
from penstock.log.doctor.repair import Change, RepairAction, changes_of, stand_in
from penstock.log.doctor.repair_plan import Fill, plan_steps
from penstock.model import Epoch, LogId, Message, Offset
from penstock.sim import CrashKind, SimDisk, Tree, check_crashes

from ..damaged import (
    CONFIG,
    SEED,
    Sample,
    append_some,
    changed,
    closed,
    drain,
    flipped,
    opened,
    outcome_of,
    places_in,
    repair_of,
    repaired,
    running,
    sample_of,
    served,
    verified,
    with_files,
)
from ..damages import DAMAGES
from ..naive import DIRECTORY, LOG_ID, NOW_NS, put
from .test_verify import random_files


def segment(base: int) -> str:
    return f"{DIRECTORY}/{base:020d}.log"


def damaged_at(number: int, sample: Sample | None = None) -> Tree:
    """A sample with one flipped bit in the body of a batch."""
    whole = sample or closed()
    place = whole.places[number]
    return flipped(whole.tree, place.path, place.position + HEAD_BYTES + 1, 2)


def test_a_whole_log_is_left_alone() -> None:
    for sample in (closed(), running()):
        disk = SimDisk(sample.tree)
        plan = repaired(disk)
        assert not plan.is_needed
        assert list(changes_of(plan)) == []
        assert disk.operations == []


def test_what_is_cut_lies_in_a_file_named_after_its_place() -> None:
    tree, place = damaged_at(9), closed().places[9]
    disk = SimDisk(tree)
    cut, filled, checkpointed = changes_of(repaired(disk))
    kept_as = f"{DIRECTORY}/{15:020d}.cut-{place.position}"
    assert (cut.deed, cut.path, cut.position) == (RepairAction.CUT, place.path, place.position)
    assert (cut.size, cut.kept_as) == (place.head.length, kept_as)
    assert cut.reason.startswith("checksum of the body")
    assert disk.tree().files[kept_as] == tree.files[place.path][place.position : place.end]
    expected = Change(RepairAction.FILLED, place.path, first_offset=18, next_offset=19)
    assert filled == expected
    assert checkpointed.deed is RepairAction.CHECKPOINTED


def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    dry, wet = SimDisk(damaged_at(9)), SimDisk(damaged_at(9))
    plan = drain(plan_steps(dry, DIRECTORY))
    assert list(changes_of(plan)) == list(changes_of(repaired(wet)))
    assert dry.operations == []


def test_nothing_that_an_earlier_cut_has_kept_is_written_over() -> None:
    place = closed().places[9]
    name = f"{15:020d}.cut-{place.position}"
    tree = changed(damaged_at(9), **{name: b"from last year", f"{name}-2": b"another"})
    disk = SimDisk(tree)
    repaired(disk)
    files = disk.tree().files
    assert files[f"{DIRECTORY}/{name}"] == b"from last year"
    assert files[f"{DIRECTORY}/{name}-2"] == b"another"
    assert files[f"{DIRECTORY}/{name}-3"] == tree.files[place.path][place.position : place.end]


def test_a_cut_of_the_very_same_bytes_is_not_kept_twice() -> None:
    place = closed().places[9]
    name = f"{15:020d}.cut-{place.position}"
    piece = damaged_at(9).files[place.path][place.position : place.end]
    disk = SimDisk(changed(damaged_at(9), **{name: piece}))
    repaired(disk)
    assert [path for path in disk.tree().files if ".cut-" in path] == [f"{DIRECTORY}/{name}"]


def test_an_earlier_cut_survives_opening_too() -> None:
    path = running().segments[-1]
    position = running().places[-1].position
    torn = with_files(running().tree, {path: running().tree.files[path][:-9]})
    old = f"{DIRECTORY}/{55:020d}.cut-{position}"
    disk = SimDisk(with_files(torn, {old: b"from last year"}))
    _, recovery = opened(disk)
    assert disk.tree().files[old] == b"from last year"
    assert recovery.set_aside == [f"{old}-2"]


def test_zeros_are_not_worth_a_file() -> None:
    path = closed().segments[-1]
    disk = SimDisk(with_files(closed().tree, {path: closed().tree.files[path] + bytes(500)}))
    (cut, *_) = changes_of(repaired(disk))
    assert (cut.deed, cut.size, cut.kept_as) == (RepairAction.CUT, 500, "")
    assert [path for path in disk.tree().files if ".cut-" in path] == []


def test_a_stand_in_says_that_everything_before_it_is_durable() -> None:
    raw = stand_in(Fill(100, 250, 7, NOW_NS), SEED)
    head = verify(raw, seed=SEED)
    assert (head.base_offset, head.next_offset, head.message_count) == (100, 250, 0)
    assert (head.epoch, head.append_time, head.durable_end) == (7, NOW_NS, 100)
    assert head.marks == read_head(encode_messages([Message(b"")]).to_bytes()).marks


def test_lost_offsets_get_the_epochs_that_the_checkpoint_knows() -> None:
    """Epoch 2 starts at offset 18, inside the segment that is lost."""
    disk = SimDisk(changed(closed().tree, **{f"{15:020d}.log": None}))
    before = closed().checkpoint.epochs
    plan = repaired(disk)
    fills = [(fill.first_offset, fill.next_offset, fill.epoch) for fill in plan.new_segments]
    assert fills == [(15, 18, 1), (18, 24, 2)]
    after = read_checkpoint(disk, DIRECTORY, SEED)
    assert after is not None
    assert before == (EpochStart(Epoch(1), Offset(0)), EpochStart(Epoch(2), Offset(18)))
    # And one of its own, by which the log can be told from what it was.
    assert after.epochs == (*before, EpochStart(Epoch(3), Offset(55)))


def test_a_missing_segment_gets_its_place_back_when_it_is_found_again() -> None:
    """The stand-in has the name of the lost segment, so that an operator can put a file there."""
    disk = SimDisk(changed(closed().tree, **{f"{24:020d}.log": None}))
    repaired(disk)
    found = with_files(disk.tree(), {segment(24): closed().tree.files[segment(24)]})
    again = SimDisk(found)
    assert verified(again)[1].is_good
    log, _ = opened(again)
    assert served(log).values == closed().values


def far_apart() -> Tree:
    """Two segments with more than 2^32 offsets between them."""
    far = 5 << 32
    disk = SimDisk()
    log, _ = opened(disk)
    append_some(log, 0, 3)
    log.close()
    batch = encode_messages([Message(b"far away")]).to_bytes()
    epoch = log.epoch
    head = stamp(
        read_head(batch),
        base_offset=far,
        epoch=epoch,
        append_time=NOW_NS * 2,
        unsynced=0,
        seed=SEED,
    )
    return with_files(disk.tree(), {segment(far): head + batch[HEAD_BYTES:]})


def test_more_offsets_may_be_lost_than_one_batch_can_stand_for() -> None:
    disk = SimDisk(far_apart())
    plan = repaired(disk)
    assert plan.lost[0][0] == 6
    assert plan.lost[-1][1] == 5 << 32
    assert verified(disk)[1].is_good
    log, _ = opened(disk)
    run = log.read(5 << 32, bytes_max=1)
    assert run.next_offset == (5 << 32) + 1
    assert log.read(1 << 33, bytes_max=1).next_offset > 1 << 33


def test_a_repaired_log_goes_on_in_a_later_epoch_at_the_next_offset() -> None:
    for sample, number in ((closed(), 27), (running(), 22), (running(), 29)):
        disk = SimDisk(damaged_at(number, sample))
        plan = repaired(disk)
        log, _ = opened(disk)
        assert log.epoch > 2
        end = log.end_offset
        append_some(log, 50, 2)
        log.close()
        log, _ = opened(disk)
        assert served(log).values.keys() >= {end, end + 1, end + 2}
        assert plan.lost or end == sample.places[number].head.base_offset


def test_the_epoch_of_what_is_cut_off_is_not_used_again() -> None:
    disk = SimDisk(running().tree)
    log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=CONFIG)
    log.begin_epoch(Epoch(40))
    append_some(log, 60, 2)
    tree = disk.tree()
    path = max(path for path in tree.files if path.endswith(".log") and tree.files[path])
    torn = places_in(path, tree.files[path])[-2]
    cut = SimDisk(flipped(tree, path, torn.position + HEAD_BYTES, 0))
    repaired(cut)
    assert opened(cut)[0].epoch > 40


def test_a_wrong_id_takes_nothing_out() -> None:
    tree = changed(closed().tree, identity=None)
    for disk, log_id, error in (
        (SimDisk(tree), None, DamagedFile),
        (SimDisk(tree), LogId(9), Refused),
        (SimDisk(closed().tree), LogId(9), WrongLog),
    ):
        with pytest.raises(error):
            repaired(disk, log_id=log_id)
        assert disk.operations == []


def test_a_log_without_one_whole_batch_is_repaired_only_for_who_insists() -> None:
    garbage = random.Random(1).randbytes(3000)
    files = dict.fromkeys([path for path in closed().tree.files if "identity" not in path])
    tree = with_files(closed().tree, {**files, segment(0): garbage})
    with pytest.raises(Refused, match="give its id"):
        repaired(SimDisk(tree))
    disk = SimDisk(tree)
    repaired(disk, log_id=LOG_ID)
    assert garbage in disk.tree().files.values()
    assert verified(disk)[1].is_good


def test_a_log_of_which_nothing_is_left_is_not_made_up() -> None:
    files = dict.fromkeys([path for path in closed().tree.files if "identity" not in path])
    tree = with_files(closed().tree, {**files, f"{DIRECTORY}/checkpoint": b"broken"})
    with pytest.raises(DamagedFile, match="nothing is left"):
        repaired(SimDisk(tree))


def test_a_checkpoint_that_cannot_be_read_is_kept() -> None:
    broken = closed().tree.files[f"{DIRECTORY}/checkpoint"][:-1]
    disk = SimDisk(changed(closed().tree, checkpoint=broken))
    repaired(disk)
    assert disk.tree().files[f"{DIRECTORY}/checkpoint.cut-0"] == broken


@pytest.mark.parametrize("name", ["checkpoint", f"{15:020d}.index", "identity.repairing", "x.tmp"])
def test_a_directory_under_the_name_of_a_file_is_in_the_way(name: str) -> None:
    files = {path: raw for path, raw in damaged_at(9).files.items() if not path.endswith(name)}
    disk = SimDisk(Tree(files, damaged_at(9).directories | {f"{DIRECTORY}/{name}"}))
    plan = repaired(disk)
    assert [obstacle.path for obstacle in plan.obstacles] == [f"{DIRECTORY}/{name}"]
    assert disk.operations == []


def test_a_full_disk_stops_a_repair_and_space_lets_it_finish() -> None:
    tree = damaged_at(9)
    roomy = SimDisk(tree)
    repaired(roomy)
    expected = content_of(roomy.tree())
    used = sum(map(len, tree.files.values()))
    for room in range(0, 1500, 60):
        disk = SimDisk(tree, capacity_bytes=used + room)
        try:
            repaired(disk)
        except NoSpace:
            assert not [path for path in disk.tree().files if path.endswith(".tmp")]
            disk.capacity_bytes = 1 << 30
            repaired(disk)
        assert content_of(disk.tree()) == expected


def content_of(tree: Tree) -> dict[int, bytes | None] | None:
    """Returns everything that can be read after opening; None if anything is refused."""
    try:
        found = served(opened(SimDisk(tree))[0])
    except Damaged:
        return None
    return None if found.refused else found.values


def check_power_cuts(tree: Tree, kinds: Collection[CrashKind]) -> int:
    """Cut the power at every operation of a repair: a half-done one cannot be opened, and the next one finishes it."""
    whole = SimDisk(tree)
    repaired(whole)
    expected, before = content_of(whole.tree()), content_of(tree)
    assert expected is not None

    def check(disk: SimDisk, _marks: tuple[object, ...]) -> None:
        left = disk.tree()
        assert content_of(left) in (None, expected, before)
        repaired(disk)
        assert verified(disk)[1].is_good
        assert content_of(disk.tree()) == expected
        kept = {raw for path, raw in whole.tree().files.items() if ".cut-" in path}
        assert kept <= set(disk.tree().files.values())

    counts = check_crashes(repaired, check, entropy=random.Random(1), kinds=kinds, start=tree)
    return counts.distinct


# Bytes cut in the middle, names exchanged, a segment missing, one put aside, the end torn.
INTERRUPTED = (
    "a flipped bit in a batch below the checkpoint",
    "two segments of the log under each other's names",
    "a missing segment below the checkpoint",
    "garbage behind the end",
    "a copy of a segment in place of another one",
    "a hole of zeros in the middle",
    "a flipped bit in the checkpoint",
    "an index ahead of its segment",
)


@pytest.mark.parametrize("number", range(len(INTERRUPTED)))
def test_a_repair_may_be_interrupted_anywhere(number: int, effort, tier: str) -> None:
    variants = list(DAMAGES[INTERRUPTED[number]]())
    count = effort(check=int(number < 3), test=1, torture=4)
    kinds = (CrashKind.ALL, CrashKind.DURABLE) if tier == "check" else tuple(CrashKind)
    for _, tree in random.Random(number).sample(variants, min(count, len(variants))):
        assert check_power_cuts(tree, kinds) > 10


def compacted() -> Sample:
    """Ranges with gaps, batches that keep nothing, three epochs."""
    disk = SimDisk()
    log, _ = opened(disk)
    for number in range(40):
        if number in (13, 27):
            log.begin_epoch(Epoch(log.epoch + 1))
        keys = [b"unique-%d" % number, b"key-%d" % (number % 5), b"key-%d" % (number % 3)]
        messages = [Message(b"%d" % number, key) for key in keys[: 1 + number % 3]]
        put(log, messages, now_ns=NOW_NS + number)
    compact(log, now_ns=NOW_NS + 100)
    log.close()
    return sample_of(disk, durable_end=log.end_offset)


def test_a_compacted_log_is_checked_and_repaired_like_any_other() -> None:
    sample = compacted()
    assert any(not place.head.is_dense for place in sample.places)
    assert outcome_of(sample, sample.tree) == ("opens", "good", "nothing lost")
    for place in sample.places[::5]:
        tree = flipped(sample.tree, place.path, place.position + 30, 1)
        assert outcome_of(sample, tree)[1:] == ("damage", "loses it")
    lost = with_files(sample.tree, {sample.segments[3]: None})
    assert outcome_of(sample, lost)[1:] == ("damage", "loses it")


def test_any_mixture_of_damages_is_repaired(effort) -> None:
    for seed in range(effort(check=40, test=100, torture=20_000)):
        chance = random.Random(seed)
        sample = chance.choice((closed, running))()
        tree = random_files(sample, chance)
        with suppress(Refused):  # Not one batch is left that says whose log this is.
            assert repair_of(sample, tree), f"seed {seed}"
