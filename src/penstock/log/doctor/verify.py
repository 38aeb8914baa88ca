"""Checks a whole log without changing it."""

import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from ...codec import seed_of
from ...config import LimitsConfig
from ...errors import Damaged, DamagedFile, Refused, WrongLog
from ...model import LogId, Offset
from ...ports import Disk
from ..checkpoint import Checkpoint, read_checkpoint
from ..identity import read_identity
from ..layout import (
    CHECKPOINT,
    IDENTITY,
    INDEX,
    INDEXES,
    LOG,
    PARKED,
    REPAIRING,
    TEMPORARY,
    base_offset_of,
    segment_path,
)
from .audits import CheckpointAudit, IndexAudit, audit_snapshots
from .survey import ChainBreak, ChainedBatch, Event, Fault, FileEnd, LogFile, ProblemKind, Survey

# How many bytes a step reads at the most before it lets the caller breathe.
_STEP_BYTES = 4 << 20
_LOOKS_MAX = 5
_BODY_BYTES_MAX = LimitsConfig().batch_bytes_max
_CUT = re.compile(r"(\d{20}|identity|checkpoint)\.cut-\d+(-\d+)?", re.ASCII)
_SNAPSHOT = re.compile(r"\d{20}\.snapshot", re.ASCII)


class Severity(Enum):
    """How serious a problem is."""

    NOTE = "note"  # Nothing: the log works, or puts it right by itself.
    TORN = "torn"  # A crash left it half written. No client was told that it is durable; the next open cuts it.
    DAMAGE = "damage"  # What was stored is not there any more, or cannot be used as it is.


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, and the offsets that it touches, if that is known."""

    severity: Severity
    kind: ProblemKind
    path: str
    reason: str
    position: int = 0
    size: int = 0
    first_offset: int | None = None
    next_offset: int | None = None


class ReadProgress(NamedTuple):
    """How many bytes of the log were read so far."""

    done_bytes: int
    total_bytes: int


@dataclass(slots=True)
class VerifyReport:
    """A log as a whole: what is whole and in its place, including what follows a tear."""

    log_id: LogId | None = None
    start_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    size: int = 0
    batches: int = 0
    messages: int = 0
    lost_offsets: int = 0
    problems: Counter[Severity] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        """Opening it will neither refuse nor cut anything, and every offset can be read."""
        return not (self.problems[Severity.TORN] or self.problems[Severity.DAMAGE])


Step = ReadProgress | Problem


def verify_steps(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId | None = None,
    is_live: bool = False,
    body_bytes_max: int = _BODY_BYTES_MAX,
) -> Generator[Step, None, VerifyReport]:
    """Check every byte of a log, in steps; problems come as they are found.

    Returns the report. `log_id` replaces an identity that cannot be read. `is_live`: a broker may be writing, so an end
    that is not whole is no problem. Bodies that unpack to more than `body_bytes_max` are not parsed.
    """
    report = VerifyReport()
    for step in _steps(
        disk, directory, report, log_id=log_id, is_live=is_live, limit=body_bytes_max
    ):
        if isinstance(step, Problem):
            report.problems[step.severity] += 1
        yield step
    return report


def _steps(
    disk: Disk,
    directory: str,
    report: VerifyReport,
    *,
    log_id: LogId | None,
    is_live: bool,
    limit: int,
) -> Iterator[Step]:
    found, problem = identity_of(disk, directory)
    if found is not None and log_id is not None and found != log_id:
        raise WrongLog(directory, found=found, expected=log_id)
    if problem is not None:
        yield problem
    report.log_id = log_id if found is None else found
    if report.log_id is None:
        return
    seed = seed_of(report.log_id)
    survey, problem = _look(disk, directory, seed, limit)
    if problem is not None:
        yield problem
    if nothing_left(disk, directory, survey):
        reason = "it cannot be read, and there are no segments: how far the log reached is unknown"
        yield Problem(Severity.DAMAGE, ProblemKind.CHECKPOINT, f"{directory}/{CHECKPOINT}", reason)
    problems = Check(survey, report).run()
    yield from map(_as_in_use, problems) if is_live else problems


def _look(
    disk: Disk, directory: str, seed: int, limit: int, looks: int = _LOOKS_MAX
) -> tuple[Survey, Problem | None]:
    """List the files. If retention removes some meanwhile, the checkpoint is of another time: look again."""
    checkpoint, problem = checkpoint_of(disk, directory, seed)
    survey = Survey(disk, directory, seed=seed, checkpoint=checkpoint, parse_bytes_max=limit)
    again, _ = checkpoint_of(disk, directory, seed)
    has_moved = checkpoint and again and checkpoint.start_offset != again.start_offset
    if has_moved and looks > 1:
        return _look(disk, directory, seed, limit, looks - 1)
    return survey, problem


def identity_of(disk: Disk, directory: str) -> tuple[LogId | None, Problem | None]:
    """Returns the id of the log, and what is wrong with its identity."""
    try:
        return read_identity(disk, directory), None
    except (Damaged, Refused) as error:
        problem = Problem(
            Severity.DAMAGE, ProblemKind.IDENTITY, f"{directory}/{IDENTITY}", _reason_of(error)
        )
    path = f"{directory}/{REPAIRING}"
    if not disk.exists(path):
        return None, problem
    try:
        found = read_identity(disk, directory, REPAIRING)
    except (Damaged, Refused) as error:
        return None, replace(problem, path=path, reason=_reason_of(error))
    reason = "a repair was interrupted; it has to be run again"
    return found, replace(problem, path=path, reason=reason)


def checkpoint_of(
    disk: Disk, directory: str, seed: int
) -> tuple[Checkpoint | None, Problem | None]:
    """Returns the checkpoint, and what is wrong with it. Without one, opening reads everything."""
    path = f"{directory}/{CHECKPOINT}"
    try:
        found = read_checkpoint(disk, directory, seed)
    except Damaged as error:
        return None, Problem(Severity.NOTE, ProblemKind.CHECKPOINT, path, _reason_of(error))
    except Refused as error:  # A directory, say: opening would neither get past it nor replace it.
        return None, Problem(Severity.DAMAGE, ProblemKind.CHECKPOINT, path, _reason_of(error))
    if found is None:
        return None, Problem(Severity.NOTE, ProblemKind.CHECKPOINT, path, "there is none")
    return found, None


def nothing_left(disk: Disk, directory: str, survey: Survey) -> bool:
    """Whether there was a log once, but there are neither segments nor a readable checkpoint."""
    is_unreadable = survey.checkpoint is None and disk.exists(f"{directory}/{CHECKPOINT}")
    return is_unreadable and not survey.files


def _reason_of(error: Damaged | Refused) -> str:
    return error.reason if isinstance(error, DamagedFile) else str(error)


def _as_in_use(step: Step) -> Step:
    """Returns a problem as a note: while a broker writes, what looks torn may become whole, and files come and go."""
    if isinstance(step, ReadProgress):
        return step
    is_fleeting = step.severity is Severity.TORN or step.kind is ProblemKind.FILE
    if not is_fleeting:
        return step
    return replace(step, severity=Severity.NOTE, reason=f"{step.reason} (the log is in use)")


class Check:
    """Turns the events of a survey into problems."""

    def __init__(self, survey: Survey, report: VerifyReport) -> None:
        self.survey, self.report = survey, report
        self.disk, self.directory = survey.disk, survey.directory
        self._total_bytes = sum(file.size for file in survey.files)
        self._done_bytes = self._shown_bytes = self._seen_files_bytes = 0
        self._index: IndexAudit | None = None
        self.stale_indexes: set[int] = set()
        checkpoint = survey.checkpoint
        self._checkpoint = None if checkpoint is None else CheckpointAudit(checkpoint)

    @property
    def are_epochs_right(self) -> bool:
        """Whether the checkpoint has the epochs of all batches below it."""
        return self._checkpoint is not None and self._checkpoint.are_epochs_right

    def run(self) -> Iterator[Step]:
        yield from self._other_files()
        for event in self.survey.run():
            yield from self.take(event)
        yield from self.finish()

    def take(self, event: Event) -> Iterator[Step]:
        match event:
            case ChainedBatch():
                yield from self._take_batch(event)
            case ChainBreak():
                yield from self._take_break(event)
            case FileEnd(file, is_whole):
                yield from self._take_end(file, is_whole)
        if self._done_bytes - self._shown_bytes >= _STEP_BYTES:
            self._shown_bytes = self._done_bytes
            yield ReadProgress(self._done_bytes, self._total_bytes)

    def _take_batch(self, kept: ChainedBatch) -> Iterator[Problem]:
        file, position, head = kept
        report = self.report
        report.batches += 1
        report.messages += head.message_count
        report.size += head.length
        self._done_bytes += head.length
        if self._checkpoint is not None:
            self._checkpoint.see(kept)
        if self._index is None:
            self._index = IndexAudit(self.disk, self.directory, file, self.survey.seed)
            yield from self._judge_name(file, position, head.base_offset)
        self._index.see(position, head)

    def _judge_name(self, file: LogFile, position: int, offset: int) -> Iterator[Problem]:
        right = segment_path(self.directory, offset)
        if position == 0 and file.path != right:
            reason = f"it starts at offset {offset}"
            yield Problem(Severity.DAMAGE, ProblemKind.NAME, file.path, reason)

    def _take_break(self, broken: ChainBreak) -> Iterator[Problem]:
        assert broken.next_offset is not None
        lost = (broken.end_offset, broken.next_offset)
        self.report.lost_offsets += lost[1] - lost[0]
        if not broken.faults:
            path, reason = segment_path(self.directory, lost[0]), "no file holds these offsets"
            yield Problem(Severity.DAMAGE, ProblemKind.GAP, path, reason, 0, 0, *lost)
        for number, fault in enumerate(broken.faults):
            yield _problem(fault, Severity.DAMAGE, lost if number == 0 else None)

    def _take_end(self, file: LogFile, is_whole: bool) -> Iterator[Problem]:
        self.report.segments += 1
        self._seen_files_bytes += file.size
        self._done_bytes = self._seen_files_bytes
        index, self._index = self._index, None
        if index is None or not is_whole:
            return
        reason = index.verdict()
        if index.is_missing and file is not self.survey.files[-1]:
            reason = "it is missing, and will be made again when it is needed"
        if reason:
            self.stale_indexes.add(file.base_offset)
            path = segment_path(self.directory, file.base_offset, INDEX)
            yield Problem(Severity.NOTE, ProblemKind.INDEX, path, reason)

    def finish(self) -> Iterator[Step]:
        survey, report = self.survey, self.report
        if survey.torn is not None:
            yield from self._torn(survey.torn)
        report.start_offset = survey.start_offset
        report.end_offset = survey.end_offset if survey.torn is None else survey.torn.end_offset
        if self._checkpoint is not None and (reason := self._checkpoint.verdict(survey.files)):
            path = f"{self.directory}/{CHECKPOINT}"
            yield Problem(Severity.DAMAGE, ProblemKind.CHECKPOINT, path, reason)
        for path, reason, can_do_without in audit_snapshots(
            self.disk,
            self.directory,
            seed=survey.seed,
            start_offset=report.start_offset,
            end_offset=report.end_offset,
        ):
            severity = Severity.NOTE if can_do_without else Severity.DAMAGE
            yield Problem(severity, ProblemKind.SNAPSHOT, path, reason)
        yield ReadProgress(self._total_bytes, self._total_bytes)

    def _torn(self, torn: ChainBreak) -> Iterator[Problem]:
        """Yields one problem for each file from the first torn position on."""
        assert torn.start is not None
        first, position = torn.start
        offsets = (torn.end_offset, max(torn.end_offset, self.survey.end_offset))
        faults = {fault.file: fault for fault in reversed(torn.faults)}
        for file in self.survey.files[self.survey.files.index(first) :]:
            start = position if file is first else 0
            blank = Fault(file, start, file.size, ProblemKind.BATCH, "it follows what was torn")
            fault = faults.get(file, blank)._replace(position=start, end=file.size)
            severity = Severity.DAMAGE if fault.kind in _NEVER_TORN else Severity.TORN
            if fault.end > start or fault.kind is not blank.kind:
                yield _problem(fault, severity, offsets if file is first else None)

    def _other_files(self) -> Iterator[Problem]:
        for file in self.survey.leftovers:
            reason = "retention was done with it; the next open removes it"
            yield Problem(Severity.NOTE, ProblemKind.FILE, file.path, reason, 0, file.size)
        bases = {file.base_offset for file in (*self.survey.files, *self.survey.leftovers)}
        for name in self.disk.list(self.directory):
            kind, reason = _role(name, bases)
            if kind is not None:
                path = f"{self.directory}/{name}"
                yield Problem(Severity.NOTE, kind, path, reason, 0, _size_of(self.disk, path))


UNTOUCHABLE = frozenset({ProblemKind.FILE, ProblemKind.FORMAT})
"""A link, or batches of a later version: nothing is wrong with them, only with us. Not for a repair to take out."""

_NEVER_TORN = UNTOUCHABLE | {ProblemKind.NAME, ProblemKind.FOREIGN}


def _problem(fault: Fault, severity: Severity, offsets: tuple[int, int] | None) -> Problem:
    first, following = offsets or (None, None)
    size = fault.end - fault.position
    path, position = fault.file.path, fault.position
    return Problem(severity, fault.kind, path, fault.reason, position, size, first, following)


def _role(name: str, bases: set[Offset]) -> tuple[ProblemKind | None, str]:
    """Returns why a file is reported, by its name; None if it is not."""
    stem, dot, suffix = name.rpartition(".")
    if name in {IDENTITY, CHECKPOINT, REPAIRING} or _SNAPSHOT.fullmatch(name):
        return None, ""
    if _CUT.fullmatch(name):
        return ProblemKind.CUT, "bytes that a recovery or a repair took out"
    if name.endswith(TEMPORARY):
        return ProblemKind.FILE, "left by a crash; the next open removes it"
    base = base_offset_of(stem + LOG)
    if base is not None and dot + suffix in INDEXES:
        return (None, "") if base in bases else (ProblemKind.INDEX, "there is no segment to it")
    if base_offset_of(name.removesuffix(PARKED)) is not None:
        return None, ""
    return ProblemKind.FILE, "not a file of a log"


def _size_of(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except Refused:  # A directory, or gone already.
        return 0
