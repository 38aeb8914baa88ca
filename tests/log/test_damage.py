"""Everything that can be wrong with the files of a log has the outcome that docs/formats/log.md says it has.

The table there is the list of expectations: a row without a damage here fails, and so does a damage without a row.
"""

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from penstock.codec import HEAD_BYTES
from penstock.codec.checksum import checksum
from penstock.config import StorageConfig
from penstock.errors import AlreadyOpen, DamagedFile, Refused, WrongLog
from penstock.log import Log, open_log
from penstock.log.identity import write_identity
from penstock.log.journal import Journal
from penstock.log.lookup import offset_at
from penstock.log.records import RecordFormat
from penstock.model import LogEnd, LogId, Offset
from penstock.runtime import RealDisk
from penstock.sim import SimDisk, Tree

from .damaged import (
    CONFIG,
    Outcome,
    Sample,
    append_some,
    as_nobody,
    changed,
    check_of,
    closed,
    flipped,
    opened,
    opening_of,
    outcome_of,
    repair_of,
    repaired,
    running,
    served,
    verified,
    with_files,
)
from .damages import DAMAGES
from .naive import DIRECTORY, LOG_ID, NOW_NS, SECOND_NS

DOCUMENT = Path(__file__).parents[2] / "docs/formats/log.md"
IDENTITY = f"{DIRECTORY}/identity"
SPECIAL: dict[str, Callable[[Path], Outcome]] = {}


def documented() -> dict[str, Outcome]:
    table = DOCUMENT.read_text().split("<!-- outcomes -->")[1]
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", table, re.MULTILINE)
    return {row[0]: Outcome(*row[1:]) for row in rows[1:]}


def special(name: str) -> Callable[[Callable[[Path], Outcome]], Callable[[Path], Outcome]]:
    """A damage that needs a file system, another log, or the id of this one."""

    def add(outcome: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
        SPECIAL[name] = outcome
        return outcome

    return add


def only(outcomes: Iterator[Outcome]) -> Outcome:
    (outcome,) = set(outcomes)
    return outcome


def on_disk(sample: Sample, root: Path) -> Path:
    """A sample as files of the system; the directory of the log."""
    for path, content in sample.tree.files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return root / DIRECTORY


def open_there(root: Path) -> Log:
    with RealDisk(root, StorageConfig()) as disk:
        return opened(disk)[0]


@special("a flipped bit in the identity")
def _(_root: Path) -> Outcome:
    size = len(closed().tree.files[IDENTITY])
    trees = [flipped(closed().tree, IDENTITY, byte, byte % 8) for byte in range(size)]
    return only(outcome_of(closed(), tree, log_id=LOG_ID) for tree in trees)


@special("an identity that is lost")
def _(_root: Path) -> Outcome:
    trees = changed(closed().tree, identity=None), changed(closed().tree, identity=b"")
    return only(outcome_of(closed(), tree, log_id=LOG_ID) for tree in trees)


@special("an identity of a later version")
def _(_root: Path) -> Outcome:
    raw = bytearray(closed().tree.files[IDENTITY])
    raw[4] = 2
    raw[20:] = checksum(bytes(raw[:20])).to_bytes(4, "little")
    tree = changed(closed().tree, identity=bytes(raw))
    with pytest.raises(DamagedFile, match="version 2"):
        opened(SimDisk(tree))
    return outcome_of(closed(), tree, log_id=LOG_ID)


@special("the disk of another node: the identity of another log")
def _(_root: Path) -> Outcome:
    """Nothing in the directory is damaged, so a check finds nothing; only meta, at the open, knows better."""
    disk = SimDisk(closed().tree)
    with pytest.raises(WrongLog):
        open_log(disk, DIRECTORY, log_id=LogId(7), config=CONFIG)
    with pytest.raises(WrongLog):
        repaired(disk, log_id=LogId(7))
    assert disk.operations == []
    return Outcome("refused", check_of(closed().tree), "refused")


@special("an identity exchanged for that of another log")
def _(_root: Path) -> Outcome:
    disk = SimDisk(closed().tree)
    write_identity(disk, DIRECTORY, LogId(7))
    tree = disk.tree()
    with pytest.raises(Refused, match="nothing in"):
        repaired(SimDisk(tree))
    return Outcome(
        opening_of(closed(), tree), check_of(tree), repair_of(closed(), tree, log_id=LOG_ID)
    )


@special("a read-only directory")
def _(root: Path) -> Outcome:
    directory = on_disk(closed(), root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with as_nobody(directory):
            with pytest.raises(Refused, match="lock: Permission denied"):
                open_there(root)
            with RealDisk.open_read_only(root) as disk:
                problems, report = verified(disk)
                assert report.is_good
                with pytest.raises(Refused, match="reading only"):
                    disk.create(f"{DIRECTORY}/x")
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)
    return Outcome("refused", "good" if not problems else "note", "refused")


def linked(root: Path, name: str) -> Path:
    """Move a file of a log elsewhere and leave a symbolic link to it."""
    file = on_disk(closed(), root) / name
    elsewhere = root / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    return file


@special("a symbolic link in place of a segment")
def _(root: Path) -> Outcome:
    link = linked(root, "00000000000000000007.log")
    with RealDisk(root, StorageConfig()) as disk:
        log, _ = opened(disk)
        with pytest.raises(DamagedFile, match="symbolic link"):
            served(log)
    with RealDisk(root, StorageConfig()) as disk:
        problems, _ = verified(disk)
        plan = repaired(disk)
    assert link.is_symlink()
    (problem,) = [one for one in problems if one.path.endswith(link.name)]
    return Outcome(
        "reading it refused", problem.severity.value, "not touched" * bool(plan.obstacles)
    )


@special("a symbolic link in place of an index")
def _(root: Path) -> Outcome:
    linked(root, "00000000000000000007.index")
    with RealDisk(root, StorageConfig()) as disk:
        ((problem,), _) = verified(disk)
        log, _ = opened(disk)
        assert served(log).values == closed().values
        assert not served(log).refused
    with RealDisk(root, StorageConfig()) as disk:
        plan = repaired(disk)
        assert verified(disk)[1].is_good
    return Outcome("opens", problem.severity.value, "loses it" if plan.lost else "nothing lost")


@special("a clock that goes back while the log is written")
def _(_root: Path) -> Outcome:
    disk = SimDisk()
    log, _ = opened(disk)
    for number in (5, 3, 9, 0):
        append_some(log, number, 1)
    log.close()
    log, _ = opened(disk)
    times = [offset_at(log, NOW_NS + second * SECOND_NS) for second in range(12)]
    assert times == sorted(times)
    tree, everything = disk.tree(), served(log).values
    sample = replace(closed(), tree=tree, values=everything, places=[], durable_end=log.end_offset)
    return outcome_of(sample, tree)


@special("two processes on one directory")
def _(root: Path) -> Outcome:
    on_disk(closed(), root)
    script = (
        "import sys\nfrom penstock.config import StorageConfig\nfrom penstock.runtime import RealDisk\n"
        f"disk = RealDisk({str(root)!r}, StorageConfig())\nprint('mine', flush=True)\nsys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"mine\n"
        with pytest.raises(AlreadyOpen, match=f"process {owner.pid}"):
            open_there(root)
        with RealDisk.open_read_only(root) as disk:
            problems, _ = verified(disk, is_live=True)
    finally:
        owner.communicate(b"")
    return Outcome("refused", "good" if not problems else "note", "refused")


class Noted(msgspec.Struct, frozen=True, tag=True):
    number: int


class Notebook:
    """The least that a journal can be for."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def apply(self, record: Noted) -> None:
        self.numbers.append(record.number)

    def snapshot(self) -> list[Noted]:
        return [Noted(number) for number in self.numbers]


NOTES: RecordFormat[Noted] = RecordFormat(Noted)


def journal_on(disk: SimDisk) -> tuple[Journal[Noted], Log]:
    log, _ = opened(disk)
    messages, _ = open_log(disk, "orders/other", log_id=LogId(2), config=CONFIG)
    return Journal(log, NOTES), messages


@special("a flipped bit in the newest snapshot of a journal")
def _(_root: Path) -> Outcome:
    disk = SimDisk()
    journal, messages = journal_on(disk)
    book = Notebook()
    for number in range(12):
        record = Noted(number)
        journal.append([record], decided_at=messages.end, now_ns=NOW_NS)
        book.apply(record)
        if number % 5 == 4:
            plan = journal.plan_snapshot(messages, book)
            plan.run()
            journal.synced(messages, plan)
    messages.sync()
    journal.log.sync()
    tree = disk.tree()
    *_, newest = sorted(path for path in tree.files if path.endswith(".snapshot"))
    return only(
        outcome_of_snapshot(flipped(tree, newest, byte, byte % 8), book.numbers)
        for byte in range(0, len(tree.files[newest]), 3)
    )


def outcome_of_snapshot(tree: Tree, numbers: list[int]) -> Outcome:
    check = check_of(tree)
    disk = SimDisk(tree)
    repaired(disk)
    assert disk.tree().files.keys() >= tree.files.keys()
    journal, messages = journal_on(disk)
    book = Notebook()
    found = journal.recover(book, message_end=LogEnd(messages.epoch, Offset(0)))
    assert len(found.snapshots_skipped) == 1
    assert book.numbers == numbers
    return Outcome("opens", check, "nothing lost")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_has_the_outcome_that_is_documented(name: str, effort) -> None:
    variants = list(DAMAGES[name]())
    count = min(len(variants), effort(check=6, test=40, torture=1 << 30))
    chosen = random.Random(name).sample(variants, count)
    assert {outcome_of(sample, tree) for sample, tree in chosen} == {documented()[name]}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_special_damage_has_the_outcome_that_is_documented(name: str, tmp_path: Path) -> None:
    assert SPECIAL[name](tmp_path) == documented()[name]


def test_every_row_of_the_document_is_tested() -> None:
    assert documented().keys() == DAMAGES.keys() | SPECIAL.keys()


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("sample", "number"),
    [(closed, 7), (running, 20), (running, 29)],
    ids=["below", "behind", "last"],
)
def test_every_bit_of_a_head_is_noticed(sample: Callable[[], Sample], number: int) -> None:
    whole = sample()
    place = whole.places[number]
    for bit in range(HEAD_BYTES * 8):
        byte = place.position + bit // 8
        tree = flipped(whole.tree, place.path, byte, bit % 8)
        assert check_of(tree) in {"damage", "torn"}
        assert opening_of(whole, tree) != "opens"


def random_damage(sample: Sample, chance: random.Random) -> Tree:
    """A flipped bit or a cut in any file, but a cut between two batches, which cannot be seen."""
    path = chance.choice(sorted(sample.tree.files))
    content = sample.tree.files[path]
    if chance.random() < 0.6:
        return flipped(sample.tree, path, chance.randrange(len(content)), chance.randrange(8))
    borders = {place.position for place in sample.places if place.path == path} | {len(content)}
    cuts = [cut for cut in range(len(content)) if cut not in borders or cut == 0]
    return with_files(sample.tree, {path: content[: chance.choice(cuts)]})


def test_random_flips_and_cuts_are_found_before_anything_wrong_is_served(effort, tier: str) -> None:
    chance = random.Random() if tier == "torture" else random.Random(6)
    seed = chance.getrandbits(64)
    chance.seed(seed)
    for number in range(effort(check=25, test=80, torture=20_000)):
        sample = chance.choice((closed, running))()
        tree = random_damage(sample, chance)
        is_nameless = tree.files[IDENTITY] != sample.tree.files[IDENTITY]
        outcome = outcome_of(sample, tree, log_id=LOG_ID if is_nameless else None)
        assert outcome.check != "good", f"case {number} of seed {seed}"
