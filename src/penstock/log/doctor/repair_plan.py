"""The plan of a repair, decided before anything is changed.

Of every file the whole batches in their place stay. The bytes between them go into files of their own, and empty
batches stand for the offsets that went with them, so that ranges stay adjacent and everything behind can be read.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ...codec import seed_of
from ...config import LimitsConfig
from ...errors import Damaged, DamagedFile, Refused, WrongLog
from ...model import Epoch, LogId, Offset
from ...ports import Disk
from ..checkpoint import NO_META, Checkpoint, EpochStart
from ..cuts import CutNames
from ..layout import (
    CHECKPOINT,
    IDENTITY,
    INDEXES,
    PARKED,
    REPAIRING,
    TEMPORARY,
    cut_path,
    segment_path,
)
from .survey import (
    ChainBreak,
    ChainedBatch,
    Event,
    LogFile,
    ProblemKind,
    Survey,
    find_files,
    note_epoch,
)
from .verify import (
    UNTOUCHABLE,
    Check,
    Problem,
    ReadProgress,
    Severity,
    VerifyReport,
    checkpoint_of,
    identity_of,
    nothing_left,
)

_BODY_BYTES_MAX = LimitsConfig().batch_bytes_max
_RANGE_MAX = (1 << 32) - 1  # A batch and an index both count offsets from their first in u32.


class Span(NamedTuple):
    """Bytes of a file that stay: whole batches of adjacent offsets."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class Fill(NamedTuple):
    """An empty range that stands for lost offsets."""

    first_offset: int
    next_offset: int
    epoch: int
    append_time: int


class Cut(NamedTuple):
    """Bytes that go, and the path of the file that will keep them; none if they are all zero."""

    position: int
    end: int
    reason: str
    kept_as: str = ""


@dataclass(slots=True, eq=False)
class FilePlan:
    """The changes to one file."""

    file: LogFile
    spans: list[Span] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)

    @property
    def parts(self) -> list[Span | Fill]:
        """The parts that the file will have, in order."""
        both: list[Span | Fill] = [*self.fills, *self.spans]
        return sorted(both, key=lambda part: part.first_offset)

    @property
    def base_offset(self) -> int:
        """The first offset that the file will have."""
        return min((part.first_offset for part in self.parts), default=self.file.base_offset)

    @property
    def path(self) -> str:
        """The path that the file will have."""
        directory = self.file.path.rpartition("/")[0]
        return segment_path(directory, self.base_offset)

    @property
    def is_put_aside(self) -> bool:
        """Whether the whole file is moved out of the log."""
        return bool(self.cuts) and not self.parts

    @property
    def is_rewritten(self) -> bool:
        return bool(self.parts) and bool(self.cuts or self.fills)

    @property
    def is_moved(self) -> bool:
        return not self.is_put_aside and self.path != self.file.path

    @property
    def is_changed(self) -> bool:
        return self.is_put_aside or self.is_rewritten or self.is_moved

    def keep(self, kept: ChainedBatch) -> None:
        head, end = kept.head, kept.position + kept.head.length
        span = Span(kept.position, end, head.base_offset, head.next_offset)
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.end, last.next_offset) == (span.position, span.first_offset):
            self.spans[-1] = span._replace(position=last.position, first_offset=last.first_offset)
        else:
            self.spans.append(span)

    def cut(self, position: int, end: int, reason: str) -> None:
        last = self.cuts[-1] if self.cuts else None
        if last is not None and last.end == position:
            self.cuts[-1] = last._replace(end=end)
        else:
            self.cuts.append(Cut(position, end, reason))

    def cut_off(self, position: int, reason: str) -> None:
        """Keep nothing from `position` on."""
        self.spans = [span for span in self.spans if span.position < position]
        self.cuts = [cut for cut in self.cuts if cut.position < position]
        self.cut(position, self.file.size, reason)


@dataclass(slots=True)
class RepairPlan:
    """Everything that a repair will do. With obstacles it does nothing.

    `checkpoint` lacks the place of its offset, which is known when all is written; None if the old one stays.
    """

    disk: Disk
    directory: str
    log_id: LogId
    start_offset: Offset
    files: list[FilePlan]
    new_segments: list[Fill]
    stale_indexes: set[int]
    checkpoint: Checkpoint | None
    is_checkpoint_readable: bool
    is_identity_good: bool
    obstacles: list[Problem]

    @property
    def is_needed(self) -> bool:
        is_good = self.checkpoint is None and not self.stale_indexes and self.is_identity_good
        return not is_good

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Returns the ranges of offsets whose messages are lost."""
        fills = [*self.new_segments, *(fill for plan in self.files for fill in plan.fills)]
        return sorted((fill.first_offset, fill.next_offset) for fill in fills)


def plan_steps(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId | None = None,
    body_bytes_max: int = _BODY_BYTES_MAX,
) -> Generator[ReadProgress, None, RepairPlan]:
    """Read a whole log, in steps. Returns the plan. `log_id` replaces an identity that cannot be read."""
    known_id, is_good = _identified(disk, directory, log_id)
    seed = seed_of(known_id)
    checkpoint, problem = checkpoint_of(disk, directory, seed)
    survey = Survey(
        disk, directory, seed=seed, checkpoint=checkpoint, parse_bytes_max=body_bytes_max
    )
    if nothing_left(disk, directory, survey):
        raise DamagedFile(
            f"{directory}/{CHECKPOINT}", "nothing is left that says how far the log reached"
        )
    planner = _Planner(survey)
    yield from planner.run()
    planner.finish()
    # An interrupted repair may have cut what a checkpoint that was written by closing knew nothing about.
    is_changed = planner.is_changed or problem is not None or not is_good
    return RepairPlan(
        disk,
        directory,
        known_id,
        survey.start_offset,
        planner.files,
        planner.new_segments,
        planner.check.stale_indexes,
        planner.checkpoint() if is_changed else None,
        checkpoint is not None,
        is_good,
        [*planner.obstacles, *_in_the_way(disk, directory)],
    )


def _identified(disk: Disk, directory: str, given: LogId | None) -> tuple[LogId, bool]:
    """Returns the id of the log, and whether its identity can stay. WrongLog, DamagedFile: with a wrong id every batch
    would be cut."""
    found, problem = identity_of(disk, directory)
    if found is None and given is None:
        assert problem is not None
        raise DamagedFile(problem.path, f"{problem.reason}; the id of the log has to be given")
    wanted = found if given is None else given
    assert wanted is not None
    if found is not None and found != wanted and _is_log(disk, directory, found):
        raise WrongLog(directory, found=found, expected=wanted)
    is_confirmed = given is not None and given == found
    if not is_confirmed and not _is_log(disk, directory, wanted):
        raise Refused(
            f"nothing in {directory} was written by log {wanted:#018x}; if it is that log all the same, give its id",
            directory=directory,
            log_id=wanted,
        )
    return wanted, problem is None and found == wanted


def _is_log(disk: Disk, directory: str, log_id: LogId) -> bool:
    """Whether a batch in the log verifies with this id, or the log is empty."""
    files = find_files(disk, directory, seed_of(log_id))
    if checkpoint_of(disk, directory, seed_of(log_id))[0] is not None:
        return True
    return any(file.first_offset is not None for file in files) or not any(
        file.size for file in files
    )


def _in_the_way(disk: Disk, directory: str) -> Iterator[Problem]:
    """Yields links and directories under names that a repair needs for files."""
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        try:
            if name in {IDENTITY, REPAIRING, CHECKPOINT}:
                disk.open(path).close()
            elif name.endswith((*INDEXES, TEMPORARY, PARKED)):
                disk.size(path)
        except (Damaged, Refused) as error:
            yield Problem(Severity.DAMAGE, ProblemKind.FILE, path, str(error))


class _Planner:
    def __init__(self, survey: Survey) -> None:
        self.survey, self.check = survey, Check(survey, VerifyReport())
        self.files = [FilePlan(file) for file in survey.files]
        self.new_segments: list[Fill] = []
        self.obstacles: list[Problem] = []
        self._plan_of = {plan.file: plan for plan in self.files}
        self._breaks: list[ChainBreak] = []
        self._epochs: list[EpochStart] = []
        self._is_checkpoint_wrong = False

    @property
    def is_changed(self) -> bool:
        is_moved = any(plan.is_changed for plan in self.files)
        return is_moved or bool(self.new_segments) or self._is_checkpoint_wrong

    def run(self) -> Iterator[ReadProgress]:
        for event in self.survey.run():
            self._take(event)
            yield from self._watch(self.check.take(event))
        yield from self._watch(self.check.finish())

    def _take(self, event: Event) -> None:
        if isinstance(event, ChainedBatch):
            self._plan_of[event.file].keep(event)
            note_epoch(self._epochs, event.head)
        elif isinstance(event, ChainBreak):
            self._breaks.append(event)

    def _watch(self, steps: Iterator[ReadProgress | Problem]) -> Iterator[ReadProgress]:
        for step in steps:
            if isinstance(step, ReadProgress):
                yield step
            elif step.severity is Severity.DAMAGE and step.kind in UNTOUCHABLE:
                self.obstacles.append(step)
            elif step.kind is ProblemKind.CHECKPOINT:
                self._is_checkpoint_wrong = True

    def finish(self) -> None:
        for broken in self._breaks:
            for fault in broken.faults:
                self._plan_of[fault.file].cut(fault.position, fault.end, fault.reason)
            for fill in self._fills(broken):
                self._place(broken, fill)
        if self.survey.torn is not None:
            self._cut_off(self.survey.torn)
        names = CutNames(self.survey.disk)
        for plan in self.files:
            self._name_cuts(plan, names)

    def _fills(self, broken: ChainBreak) -> Iterator[Fill]:
        """Yields empty ranges for the offsets that a break has lost, each of one epoch and not too long."""
        first, end = broken.end_offset, broken.next_offset
        assert end is not None
        known = [one for one in self._known_epochs() if one.offset < end]
        epoch, append_time = broken.epoch, broken.append_time
        if first == self.survey.start_offset and broken.goes_on_at is not None:
            head = broken.goes_on_at.head
            epoch, append_time = (epoch if known else head.epoch), head.append_time
        borders = sorted({first, end, *(one.offset for one in known if one.offset > first)})
        for low, high in pairwise(borders):
            epoch = max([epoch, *(one.epoch for one in known if one.offset <= low)])
            for start in range(low, high, _RANGE_MAX):
                yield Fill(start, min(start + _RANGE_MAX, high), epoch, append_time)

    def _known_epochs(self) -> tuple[EpochStart, ...]:
        checkpoint = self.survey.checkpoint
        is_known = checkpoint is not None and self.check.are_epochs_right
        return checkpoint.epochs if checkpoint is not None and is_known else ()

    def _place(self, broken: ChainBreak, fill: Fill) -> None:
        """Add a range to the file that held its bytes, if that keeps this part of the log; else as a new segment."""
        if broken.start is not None:
            file, position = broken.start
            plan = self._plan_of[file]
            has_before = any(span.position < position for span in plan.spans) or bool(plan.fills)
            is_its_own = broken.faults and file.base_offset == broken.end_offset
            if (has_before or is_its_own) and fill.next_offset - plan.base_offset <= _RANGE_MAX:
                plan.fills.append(fill)
                return
        self.new_segments.append(fill)

    def _cut_off(self, torn: ChainBreak) -> None:
        assert torn.start is not None
        file, position = torn.start
        reason = torn.faults[0].reason if torn.faults else "offsets are missing before it"
        number = self.survey.files.index(file)
        self.files[number].cut_off(position, reason)
        for plan in self.files[number + 1 :]:
            plan.cut_off(0, "it follows what was torn")

    def _name_cuts(self, plan: FilePlan, names: CutNames) -> None:
        if not plan.cuts or not plan.file.is_readable:
            return
        directory, base = self.survey.directory, plan.file.base_offset
        if plan.is_put_aside:
            plan.cuts = [Cut(0, plan.file.size, plan.cuts[0].reason)]
        with closing(self.survey.disk.open(plan.file.path)) as file:
            for number, cut in enumerate(plan.cuts):
                wanted = cut_path(directory, base, cut.position)
                kept_as = names.name_for(wanted, file, cut.position, cut.end)
                plan.cuts[number] = cut._replace(kept_as=kept_as)

    def checkpoint(self) -> Checkpoint:
        """Returns the checkpoint after the repair, without the position of the end."""
        survey, old = self.survey, self.survey.checkpoint
        torn = survey.torn
        end_offset = survey.end_offset if torn is None else torn.end_offset
        append_time = survey.append_time if torn is None else torn.append_time
        epochs = [one for one in self._all_epochs() if one.offset < end_offset]
        if not epochs:
            epochs = [EpochStart(Epoch(0), survey.start_offset)]
        # In an epoch of its own, later than any that was used, perhaps for what is being cut: meta, which may know a
        # longer log, sees by it that this one was repaired.
        latest = max(survey.epoch_max, epochs[-1].epoch)
        epochs.append(EpochStart(Epoch(latest + 1), Offset(end_offset)))
        return Checkpoint(
            survey.start_offset,
            segment=Offset(end_offset),
            position=0,
            offset=Offset(end_offset),
            append_time=max(append_time, old.append_time if old else 0),
            compacted_to=old.compacted_to if old else survey.start_offset,
            epochs=tuple(epochs),
            meta_end=old.meta_end if old else NO_META,
        )

    def _all_epochs(self) -> list[EpochStart]:
        """Returns where epochs begin: by the old checkpoint, if it is right, and by the batches behind it."""
        known, found = list(self._known_epochs()), self._epochs
        if not known:
            return [one._replace(offset=self.survey.start_offset) for one in found[:1]] + found[1:]
        return known + [one for one in found if one.epoch > known[-1].epoch]
