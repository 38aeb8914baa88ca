"""A check says exactly what is wrong, where, and what it costs; and it agrees with opening."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.codec import HEAD_BYTES, Columns, encode
from penstock.codec.checksum import checksum
from penstock.codec.head import pack_head
from penstock.config import LogConfig
from penstock.errors import Damaged, WrongLog
from penstock.log import open_log
from penstock.log.doctor.survey import ProblemKind
from penstock.log.doctor.verify import Problem, ReadProgress, Severity, verify_steps
from penstock.model import LogId
from penstock.sim import SimDisk, Tree

from ..damaged import (
    SEED,
    Place,
    Sample,
    changed,
    closed,
    drain,
    flipped,
    opened,
    overwritten,
    running,
    verified,
    with_files,
)
from ..damages import DAMAGES
from ..naive import DIRECTORY, LOG_ID


def damaged_batch(place: Place) -> Problem:
    return Problem(
        Severity.DAMAGE,
        ProblemKind.BATCH,
        place.path,
        "",
        place.position,
        place.head.length,
        place.head.base_offset,
        place.head.next_offset,
    )


def without_reason(problems: list[Problem]) -> list[Problem]:
    assert all(problem.reason for problem in problems)
    return [replace(problem, reason="") for problem in problems]


def check(tree: Tree, **settings: object) -> tuple[list[Problem], object]:
    return verified(SimDisk(tree), **settings)


@pytest.mark.parametrize("sample", [closed, running])
def test_a_whole_log_has_no_problems_and_is_counted(sample) -> None:
    problems, report = check(sample().tree)
    assert problems == []
    assert report.is_good
    assert report.log_id == LOG_ID
    assert (report.start_offset, report.end_offset) == (0, len(sample().values))
    assert (report.batches, report.messages) == (len(sample().places), len(sample().values))
    assert report.size == sum(place.head.length for place in sample().places)
    assert report.segments == len(sample().segments)
    assert report.lost_offsets == 0


def test_a_damaged_batch_is_named_by_file_position_and_offsets() -> None:
    for place in closed().places:
        for byte in (5, 50, HEAD_BYTES + 2):
            tree = flipped(closed().tree, place.path, place.position + byte, 1)
            problems, report = check(tree)
            assert without_reason(problems) == [damaged_batch(place)]
            assert report.lost_offsets == len(place.offsets)
            assert report.messages == len(closed().values) - len(place.offsets)


def test_neighbouring_damaged_batches_are_told_one_by_one() -> None:
    first, second = closed().places[8:10]
    tree = flipped(closed().tree, first.path, first.position + 20, 0)
    tree = flipped(tree, second.path, second.position + HEAD_BYTES + 3, 0)
    problems, report = check(tree)
    assert [(one.position, one.size) for one in problems] == [
        (first.position, first.head.length),
        (second.position, second.head.length),
    ]
    assert report.lost_offsets == len(first.offsets | second.offsets)


def test_missing_offsets_are_a_gap_under_the_name_their_segment_would_have() -> None:
    suffixes = (".log", ".index", ".timeindex")
    gone = {f"{24:020d}{suffix}": None for suffix in suffixes}
    (problem,), report = check(changed(closed().tree, **gone))
    assert (problem.kind, problem.path) == (ProblemKind.GAP, f"{DIRECTORY}/{24:020d}.log")
    assert (problem.first_offset, problem.next_offset) == (24, 31)
    assert report.lost_offsets == 7


def test_what_was_torn_is_everything_from_the_first_doubt_on() -> None:
    """No client was told that the whole batch behind a torn one is durable either."""
    torn, whole = running().places[-2:]
    tree = flipped(running().tree, torn.path, torn.position + HEAD_BYTES, 0)
    (problem,), report = check(tree)
    assert (problem.severity, problem.kind) == (Severity.TORN, ProblemKind.BATCH)
    assert (problem.path, problem.position) == (torn.path, torn.position)
    assert problem.size == torn.head.length + whole.head.length
    assert (problem.first_offset, problem.next_offset) == (55, whole.head.next_offset)
    assert report.end_offset == 55
    assert not report.is_good


def test_in_a_log_that_is_in_use_an_unfinished_end_is_only_a_note() -> None:
    path = running().segments[-1]
    tree = with_files(running().tree, {path: running().tree.files[path][:-20]})
    (problem,), report = check(tree, is_live=True)
    assert problem.severity is Severity.NOTE
    assert "in use" in problem.reason
    assert report.is_good
    damaged = closed().places[0]
    problems, _ = check(flipped(closed().tree, damaged.path, 50, 0), is_live=True)
    assert [one.severity for one in problems] == [Severity.DAMAGE]


def body_with(place: Place, sample: Sample, change) -> Tree:
    """A batch with another body and right checksums, as only a bug could have written it."""
    content = sample.tree.files[place.path]
    body = bytearray(content[place.position + HEAD_BYTES : place.end])
    change(body)
    stored = bytes(body[: place.head.stored_size])
    head = pack_head(place.head._replace(body_checksum=checksum(stored)), seed=SEED)
    return overwritten(sample.tree, place.path, place.position, head + bytes(body))


def test_a_body_that_makes_no_sense_is_damage_though_its_checksums_are_right() -> None:
    place = closed().places[4]
    tree = body_with(place, closed(), lambda body: body.__setitem__(2, 9))
    (problem,), _ = check(tree)
    assert (problem.severity, problem.kind) == (Severity.DAMAGE, ProblemKind.BODY)
    assert (problem.first_offset, problem.next_offset) == (
        place.head.base_offset,
        place.head.next_offset,
    )


def test_a_column_that_only_a_later_version_knows_is_not_called_a_broken_body() -> None:
    tree = body_with(closed().places[4], closed(), lambda body: body.__setitem__(15, 1))
    (problem,), _ = check(tree)
    assert problem.kind is ProblemKind.FORMAT


def test_bodies_over_the_limit_are_taken_on_their_checksums() -> None:
    tree = body_with(closed().places[4], closed(), lambda body: body.__setitem__(2, 9))
    steps = verify_steps(SimDisk(tree), DIRECTORY, body_bytes_max=10)
    assert drain(steps).is_good


KINDS = {
    "a segment of another log below the checkpoint": ProblemKind.FOREIGN,
    "a copy of a segment under a number behind the end": ProblemKind.NAME,
    "two segments of the log under each other's names": ProblemKind.NAME,
    "a segment that goes on with the batches of the next one": ProblemKind.ORDER,
    "a missing segment below the checkpoint": ProblemKind.GAP,
    "a batch of a later version below the checkpoint": ProblemKind.FORMAT,
    "a checkpoint that knows other epochs": ProblemKind.CHECKPOINT,
    "a checkpoint that is lost": ProblemKind.CHECKPOINT,
    "an index ahead of its segment": ProblemKind.INDEX,
    "files that do not belong there": ProblemKind.FILE,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=lambda one: str(one)[:40])
def test_a_problem_is_called_what_it_is(name: str, kind: ProblemKind) -> None:
    for _, tree in DAMAGES[name]():
        problems, _ = check(tree)
        worst = "damage" if any(one.severity is Severity.DAMAGE for one in problems) else "note"
        assert kind in {one.kind for one in problems if one.severity.value == worst}


def test_files_of_earlier_cuts_and_crashes_are_listed_with_their_size() -> None:
    names = {"00000000000000000007.cut-64": b"cut" * 9, "checkpoint.tmp": b"half"}
    problems, report = check(changed(closed().tree, **names))
    assert {(one.kind, one.path.rpartition("/")[2], one.size) for one in problems} == {
        (ProblemKind.CUT, "00000000000000000007.cut-64", 27),
        (ProblemKind.FILE, "checkpoint.tmp", 4),
    }
    assert report.is_good


def test_without_an_identity_nothing_else_is_said_unless_the_id_is_given() -> None:
    tree = changed(closed().tree, identity=None)
    problems, report = check(tree)
    assert [one.kind for one in problems] == [ProblemKind.IDENTITY]
    assert (report.log_id, report.is_good) == (None, False)
    told = drain(verify_steps(SimDisk(tree), DIRECTORY, log_id=LOG_ID))
    assert (told.messages, told.problems[Severity.DAMAGE]) == (len(closed().values), 1)


def test_another_id_than_the_log_has_is_refused() -> None:
    with pytest.raises(WrongLog):
        drain(verify_steps(SimDisk(closed().tree), DIRECTORY, log_id=LogId(1)))


def test_long_work_comes_in_steps_that_say_how_far_it_is() -> None:
    disk, config = SimDisk(), LogConfig(segment_size_bytes=8 << 20)
    log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=config)
    encoded = encode(Columns(values=[bytes(1 << 20)]))
    for _ in range(20):
        log.append(encoded, now_ns=1)
    log.close()
    steps = [step for step in verify_steps(disk, DIRECTORY) if isinstance(step, ReadProgress)]
    done = [step.done_bytes for step in steps]
    assert {step.total_bytes for step in steps} == {20 * encoded.head.length}
    assert len(done) >= 5
    assert done == sorted(done)
    assert done[-1] == 20 * encoded.head.length
    assert max(after - before for before, after in pairwise(done)) < 6 << 20


def random_files(sample: Sample, chance: random.Random) -> Tree:
    """One to three things done to a log, any file, any way but copying batches about."""
    tree = sample.tree
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = chance.choice(WAYS)(tree, chance.choice(segments_in(tree)), chance)
    return tree


def segments_in(tree: Tree) -> list[str]:
    return sorted(path for path in tree.files if path.endswith(".log"))


def flip(tree: Tree, path: str, chance: random.Random) -> Tree:
    size = len(tree.files[path])
    return flipped(tree, path, chance.randrange(size), chance.randrange(8)) if size else tree


def cut(tree: Tree, path: str, chance: random.Random) -> Tree:
    content = tree.files[path]
    return with_files(tree, {path: content[: chance.randint(0, len(content))]})


def extend(tree: Tree, path: str, chance: random.Random) -> Tree:
    tail = chance.choice((bytes, chance.randbytes))(chance.choice((1, 8, 100, 700)))
    return with_files(tree, {path: tree.files[path] + tail})


def hole(tree: Tree, path: str, chance: random.Random) -> Tree:
    start = chance.randint(0, len(tree.files[path]))
    size = min(chance.choice((8, 100, 300)), len(tree.files[path]) - start)
    return overwritten(tree, path, start, bytes(size))


def swap(tree: Tree, path: str, chance: random.Random) -> Tree:
    other = chance.choice(segments_in(tree))
    return with_files(tree, {path: tree.files[other], other: tree.files[path]})


def rename(tree: Tree, path: str, chance: random.Random) -> Tree:
    name = f"{DIRECTORY}/{chance.randint(0, 80):020d}.log"
    return with_files(tree, {path: None, name: tree.files[path]})


def lose(tree: Tree, path: str, _chance: random.Random) -> Tree:
    return with_files(tree, {path: None}) if len(segments_in(tree)) > 1 else tree


def forget(tree: Tree, _path: str, _chance: random.Random) -> Tree:
    return changed(tree, checkpoint=None)


WAYS = (flip, flip, flip, cut, extend, hole, swap, rename, lose, forget)


def test_a_check_agrees_with_opening(effort) -> None:
    """Good: opens, nothing cut. Only torn: opens, and ends where the check said. Cut: the check saw it."""
    for seed in range(effort(check=60, test=150, torture=40_000)):
        chance = random.Random(seed)
        tree = random_files(chance.choice((closed, running))(), chance)
        problems, report = check(tree)
        try:
            log, recovery = opened(SimDisk(tree))
        except Damaged:
            assert report.problems[Severity.DAMAGE], f"seed {seed}: {problems}"
            continue
        if not report.problems[Severity.DAMAGE]:
            assert log.end_offset == report.end_offset, f"seed {seed}: {problems}"
        assert (recovery.cut_at is None) or not report.is_good, f"seed {seed}: {problems}"
