"""Logs to damage, and what becomes of them: on opening, in a check, after a repair."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock.codec import Head, batches_in, decode_messages, seed_of
from penstock.config import LogConfig
from penstock.errors import Damaged, DamagedBatch, WrongLog
from penstock.log import Log, Recovery, open_log
from penstock.log.checkpoint import Checkpoint, read_checkpoint
from penstock.log.doctor.repair import repair_steps
from penstock.log.doctor.repair_plan import RepairPlan, plan_steps
from penstock.log.doctor.verify import Problem, Severity, VerifyReport, verify_steps
from penstock.model import Epoch, LogId
from penstock.ports import Disk
from penstock.sim import SimDisk, Tree

from .naive import DIRECTORY, LOG_ID, NOW_NS, SECOND_NS, no_room_for_checkpoints, put

Result = TypeVar("Result")
SEED = seed_of(LOG_ID)
CONFIG = LogConfig(segment_size_bytes=600, index_interval_bytes=150, checkpoint_bytes=1 << 30)


class Place(NamedTuple):
    """Where a batch is."""

    path: str
    position: int
    head: Head

    @property
    def end(self) -> int:
        return self.position + self.head.length

    @property
    def offsets(self) -> set[int]:
        return set(range(self.head.base_offset, self.head.next_offset))


@dataclass(frozen=True, slots=True)
class Sample:
    """A log that is whole, what is in it, and what was promised of it."""

    tree: Tree
    values: dict[int, bytes]
    places: list[Place]
    durable_end: int

    @property
    def checkpoint(self) -> Checkpoint:
        found = read_checkpoint(SimDisk(self.tree), DIRECTORY, SEED)
        assert found is not None
        return found

    @property
    def segments(self) -> list[str]:
        return sorted({place.path for place in self.places})

    def of(self, *suffixes: str) -> list[str]:
        """Paths of files by how they end."""
        return sorted(path for path in self.tree.files if path.endswith(suffixes))

    def holding(self, offset: int) -> Place:
        return next(place for place in self.places if offset in place.offsets)


def append_some(log: Log, first: int, count: int) -> None:
    """Batches of one to three messages, one a second."""
    for number in range(first, first + count):
        put(log, number % 3 + 1, now_ns=NOW_NS + number * SECOND_NS)


def sample_of(disk: SimDisk, *, durable_end: int) -> Sample:
    tree = disk.tree()
    places = [
        place
        for path in sorted(tree.files)
        if path.endswith(".log")
        for place in places_in(path, tree.files[path])
    ]
    values = {
        message.offset: message.value
        for place in places
        for message in decode_messages(tree.files[place.path][place.position :], place.head)
    }
    return Sample(tree, values, places, durable_end)


def places_in(path: str, content: bytes, *, seed: int = SEED) -> list[Place]:
    position, places = 0, []
    for head, _ in batches_in(content, seed=seed):
        places.append(Place(path, position, head))
        position += head.length
    return places


def write_log(disk: SimDisk, *, log_id: LogId = LOG_ID, directory: str = DIRECTORY) -> Log:
    """Two epochs, a checkpoint in the middle of the second, synced to the last batch but two."""
    log, _ = open_log(disk, directory, log_id=log_id, config=CONFIG)
    append_some(log, 0, 9)
    log.sync()
    log.begin_epoch(Epoch(log.epoch + 1))
    append_some(log, 9, 9)
    log.sync(with_checkpoint=True)
    with no_room_for_checkpoints(disk):
        for number in range(18, 28):
            append_some(log, number, 1)
            log.sync()
    return log


@cache
def closed() -> Sample:
    """Everything is below the checkpoint."""
    disk = SimDisk()
    log = write_log(disk)
    log.close()
    return sample_of(disk, durable_end=log.end_offset)


@cache
def running() -> Sample:
    """Ten batches behind the checkpoint, each synced before the next; then two that were not."""
    disk = SimDisk()
    log = write_log(disk)
    durable_end = log.end_offset
    append_some(log, 28, 2)
    return sample_of(disk, durable_end=durable_end)


def changed(tree: Tree, **files: bytes | None) -> Tree:
    """With other contents; None removes a file. Names are below the directory of the log."""
    return with_files(tree, {f"{DIRECTORY}/{name}": content for name, content in files.items()})


def with_files(tree: Tree, files: dict[str, bytes | None]) -> Tree:
    merged = {**tree.files, **files}
    return Tree({path: raw for path, raw in merged.items() if raw is not None}, tree.directories)


def flipped(tree: Tree, path: str, byte: int, bit: int) -> Tree:
    content = bytearray(tree.files[path])
    content[byte] ^= 1 << bit
    return with_files(tree, {path: bytes(content)})


def overwritten(tree: Tree, path: str, position: int, content: bytes) -> Tree:
    old = tree.files[path]
    return with_files(tree, {path: old[:position] + content + old[position + len(content) :]})


def drain(steps: Generator[object, None, Result]) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def verified(disk: Disk, *, is_live: bool = False) -> tuple[list[Problem], VerifyReport]:
    steps, problems = verify_steps(disk, DIRECTORY, is_live=is_live), []
    while True:
        try:
            step = next(steps)
        except StopIteration as finished:
            return problems, finished.value
        if isinstance(step, Problem):
            problems.append(step)


def repaired(disk: Disk, *, log_id: LogId | None = None) -> RepairPlan:
    plan = drain(plan_steps(disk, DIRECTORY, log_id=log_id))
    if not plan.obstacles:
        drain(repair_steps(plan, CONFIG))
    return plan


def opened(disk: Disk) -> tuple[Log, Recovery]:
    """Opened as a log of messages is."""
    return open_log(disk, DIRECTORY, log_id=LOG_ID, config=CONFIG, is_opened_around_damage=True)


class Served(NamedTuple):
    """What a reader gets who skips what is refused, going forwards by runs and backwards by offsets."""

    values: dict[int, bytes | None]
    refused: list[Damaged]


def served(log: Log) -> Served:
    values: dict[int, bytes | None] = {}
    refused: list[Damaged] = []
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            run = log.read(offset, bytes_max=400)
        except DamagedBatch as error:
            refused.append(error)
            offset = further(error, offset)
            continue
        for head, batch in batches_in(run.data, seed=log.seed):
            for message in decode_messages(batch, head):
                values[message.offset] = message.value
        offset = run.next_offset
    for offset in reversed(range(log.start_offset, log.end_offset)):
        try:
            run = log.read(offset, bytes_max=1)
        except DamagedBatch as error:
            refused.append(error)
            continue
        (head, batch), *_ = batches_in(run.data, seed=log.seed)
        assert offset in range(head.base_offset, head.next_offset)
        values |= {message.offset: message.value for message in decode_messages(batch, head)}
    return Served(values, refused)


def further(error: DamagedBatch, offset: int) -> int:
    """Where a reader goes on who skips what is refused."""
    assert error.next_offset is not None
    assert error.next_offset > offset
    return error.next_offset


class Outcome(NamedTuple):
    """In the words of the table in docs/formats/log.md."""

    opening: str
    check: str
    repair: str


def outcome_of(sample: Sample, tree: Tree, *, log_id: LogId | None = None) -> Outcome:
    """What a damage leads to, with everything asserted that must hold whatever it is."""
    return Outcome(opening_of(sample, tree), check_of(tree), repair_of(sample, tree, log_id=log_id))


def opening_of(sample: Sample, tree: Tree) -> str:
    disk = SimDisk(tree)
    try:
        log, recovery = opened(disk)
        found = served(log)
    except (Damaged, WrongLog):
        assert_nothing_destroyed(tree, disk.tree())
        return "refused"
    assert found.values.items() <= sample.values.items(), "only what was written is served"
    assert_nothing_destroyed(tree, disk.tree())
    if found.refused:
        return "reading it refused"
    missing = {one for one in sample.values if one < sample.durable_end} - found.values.keys()
    assert recovery.cut_at is not None or not missing, f"{sorted(missing)} are gone silently"
    if recovery.cut_at is None:
        return "opens"
    assert all(one >= vouched_to(sample, tree) for one in missing), "durable, and cut"
    return "cut off"


def vouched_to(sample: Sample, tree: Tree) -> int:
    """What batches that are still whole, or the checkpoint, prove to have been durable."""
    whole = [place for place in sample.places if is_intact(tree, place, sample)]
    known = [place.head.durable_end for place in whole]
    has_checkpoint = tree.files.get(f"{DIRECTORY}/checkpoint") == sample.tree.files.get(
        f"{DIRECTORY}/checkpoint"
    )
    return max([0, *known, *([sample.checkpoint.offset] if has_checkpoint else [])])


def is_intact(tree: Tree, place: Place, sample: Sample) -> bool:
    """The bytes of a batch are still in some segment, wherever."""
    batch = sample.tree.files[place.path][place.position : place.end]
    return any(batch in raw for path, raw in tree.files.items() if path.endswith(".log"))


def cut_files(tree: Tree) -> list[bytes]:
    return [raw for path, raw in tree.files.items() if ".cut-" in path]


def assert_nothing_destroyed(before: Tree, after: Tree) -> None:
    """What opening takes off the end of a segment is in a file, if there was anything in it."""
    kept = cut_files(after)
    for path, old in before.files.items():
        if not path.endswith(".log"):
            continue
        new = after.files.get(path, b"")
        assert old.startswith(new)
        rest = old[len(new) :]
        assert not any(rest) or rest in kept, f"{path} lost {len(rest)} bytes"


def check_of(tree: Tree) -> str:
    disk = SimDisk(tree)
    problems, report = verified(disk)
    assert disk.operations == [], "a check changes nothing"
    assert sum(report.problems.values()) == len(problems)
    for severity in (Severity.DAMAGE, Severity.TORN, Severity.NOTE):
        if any(problem.severity is severity for problem in problems):
            return severity.value
    return "good"


def repair_of(sample: Sample, tree: Tree, *, log_id: LogId | None = None) -> str:
    disk = SimDisk(tree)
    plan = repaired(disk, log_id=log_id)
    if plan.obstacles:
        assert disk.operations == []
        return "not touched"
    problems, report = verified(disk)
    assert report.is_good, problems
    assert_all_kept(plan, tree, disk.tree())
    assert_settled(disk)
    log, recovery = opened(disk)
    assert recovery.cut_at is None
    found = served(log)
    assert not found.refused
    assert found.values.items() <= sample.values.items()
    lost = {offset for first, end in plan.lost for offset in range(first, end)}
    whole = [place for place in sample.places if is_intact(tree, place, sample)]
    expected = set().union(*(place.offsets for place in whole)) & sample.values.keys()
    assert {one for one in expected if one < log.end_offset} <= found.values.keys()
    # Without a checkpoint, first segments that are missing look like those that retention removed.
    kept = {one for one in sample.values if log.start_offset <= one < log.end_offset}
    assert kept - found.values.keys() <= lost
    assert vouched_to(sample, tree) <= log.end_offset, "durable offsets are not given away again"
    if lost:
        return "loses it"
    is_cut = any(one >= log.end_offset for one in sample.values)
    return "cuts it off" if is_cut else "nothing lost"


def assert_all_kept(plan: RepairPlan, before: Tree, after: Tree) -> None:
    """Every byte of every segment is in a segment or in a file of its own."""
    for one in plan.files:
        old = before.files[one.file.path]
        for cut in one.cuts:
            piece = old[cut.position : cut.end]
            assert after.files[cut.kept_as] == piece if cut.kept_as else not any(piece)
        for span in one.spans:
            assert old[span.position : span.end] in after.files[one.path]
        size = sum(part.end - part.position for part in (*one.cuts, *one.spans))
        assert size == len(old) or not one.is_changed


def assert_settled(disk: SimDisk) -> None:
    """Repairing again changes nothing."""
    done = len(disk.operations)
    plan = repaired(disk)
    assert not plan.is_needed
    assert len(disk.operations) == done


@contextmanager
def as_nobody(directory: Path) -> Iterator[None]:
    """Root may do anything, so a directory is read-only only for other users."""
    for parent in directory.parents:
        if parent.owner() == "root" and parent.stat().st_mode & 0o077 == 0:
            parent.chmod(0o711)
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)
