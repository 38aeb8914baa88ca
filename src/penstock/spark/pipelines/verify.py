"""Checks that a lake holds every offset once: its manifests, its files, and against the broker."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import Damaged, FileMissing, NotFound
from ...model import TopicPartition
from ..typed import DATA
from .file_hash import hash_of
from .lake import CHECKPOINTS, LakeReader, TableFormat
from .manifest import Gap, LakeFile, Manifest, Span, folder_path
from .partitions import NOT_ASKED, BrokerPartition, kept_fetches, query_topic
from .rows import by_time, by_value, content_checksum, folders_of, gaps_in
from .state import LakeState

if TYPE_CHECKING:
    from ...client import Client

Offsets = npt.NDArray[np.int64]
# A lake that is quite lost would otherwise fill the screen, and the memory.
PROBLEMS_MAX = 100
GAPS_SHOWN_MAX = 1000


@dataclass(slots=True)
class PartitionReport:
    """One partition of the lake. `behind` is how many offsets the broker has more; -1 if it was not asked."""

    topic: str
    partition: int
    end: int
    log: int = 0
    # What the broker has under this name: the same log, another one ("made again"), or none ("deleted").
    broker: str = ""
    rows: int = 0
    gap_offsets: int = 0
    gaps: list[Gap] = field(default_factory=list)
    behind: int = -1


@dataclass(slots=True)
class LakeReport:
    """The result of a check. `problems` is empty if the lake has every visible offset up to `end` once."""

    lake: str
    commits: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    head: str = ""
    partitions: dict[TopicPartition, PartitionReport] = field(default_factory=dict)
    # Partitions of topics that were deleted and made again since.
    earlier: list[PartitionReport] = field(default_factory=list)
    # Messages whose content was compared with the broker.
    compared: int = 0
    problems: list[str] = field(default_factory=list)
    is_compared: bool = False

    @property
    def is_good(self) -> bool:
        return not self.problems

    def to_record(self) -> dict[str, object]:
        """Returns the report as plain values."""
        return {
            "lake": self.lake,
            "is_good": self.is_good,
            "is_compared": self.is_compared,
            "commits": self.commits,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "head": self.head,
            "compared": self.compared,
            "partitions": [_record_of(one) for one in self.all_partitions()],
            "problems": list(self.problems),
        }

    def of_log(self, span: Span) -> PartitionReport:
        """Returns the report of the log that a span is from."""
        for one in self.earlier:
            if (one.topic, one.partition, one.log) == (*span.name, span.log):
                return one
        new = PartitionReport(span.topic, span.partition, span.end, span.log)
        return self.partitions.setdefault(span.name, new)

    def all_partitions(self) -> list[PartitionReport]:
        """Returns all partitions by name, those of earlier logs before the current one."""
        current = [one for _, one in sorted(self.partitions.items())]
        return sorted([*self.earlier, *current], key=lambda one: (one.topic, one.partition))

    def problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def _record_of(one: PartitionReport) -> dict[str, object]:
    return {
        "partition": str(TopicPartition(one.topic, one.partition)),
        "log": f"{one.log:08x}",
        "broker": one.broker or None,
        "archived_up_to": one.end,
        "rows": one.rows,
        "missing": one.gap_offsets,
        "behind": one.behind if one.behind >= 0 else None,
        "gaps": [{"start": gap.start, "end": gap.end, "reason": gap.reason} for gap in one.gaps],
    }


class LogName(NamedTuple):
    """One log: a partition, and what tells it from any other of its name."""

    name: TopicPartition
    log: int


class CommitSpan(NamedTuple):
    """A span and the commit that it is from."""

    commit: int
    span: Span


class Verification(NamedTuple):
    """What is checked, the broker that is asked, and what was found."""

    files: LakeReader
    client: "Client | None"
    report: LakeReport


def verify(
    files: LakeReader,
    client: "Client | None" = None,
    *,
    is_content_read: bool = False,
    head: str = "",
    on_file: Callable[[int, int], None] = lambda _done, _of: None,
) -> LakeReport:
    """Check all commits and all files. Returns the report. Damaged: a manifest is damaged or missing.

    `head` is the hash of a commit, noted earlier: the lake must still have that commit. With a client, the broker is
    asked; with `is_content_read` as well, every message that it still has is compared. An archive may go on meanwhile.
    """
    # Before the manifests: what a commit adds after them would belong to none.
    stored = [one.path for one in files.store.files()] if files.store.stages else []
    table = None
    if files.identity.table is TableFormat.DELTA:
        from .delta import is_released, open_table

        table = open_table(files)
        # Beside the files of the lake there are those of the programs that have the table.
        stored = [] if is_released(table) else stored
    checkpoint, checkpoints = files.checkpoint(), files.store.names(CHECKPOINTS)
    history = files.history()
    report = LakeReport(str(files.root), commits=len(history))
    run = Verification(files, client, report)
    state = replayed(history)
    report.head = state.head
    if head and head not in {own for _, own in history}:
        report.problem(
            f"no commit has the hash {head[:64]}: the lake was rewritten since it was noted"
        )
    check_checkpoint(files, checkpoint, history, report)
    check_end(checkpoints, report)
    spans = spans_by_log((one for one, _ in history), report)
    now = _broker_partitions(client, state, report)
    live: dict[LogName, list[LakeFile]] = {}
    for number, file in enumerate(state.files.values()):
        if check_file(files, file, report, is_content_read=is_content_read):
            live.setdefault(LogName(file.name, file.log), []).append(file)
        on_file(number + 1, len(state.files))
    for log in live.keys() - spans.keys():
        # The files of a stream have no topic. Beside those of an archive they would be rows that no topic had.
        if log.name.topic or spans:
            what = log.name if log.name.topic else "it"
            report.problem(f"{live[log][0].path}: no commit has a span of {what}")
    for log, found in spans.items():
        own = now.get(log.name)
        if own is not None and own.log != log.log:
            own = None
        check_log(run, log, found, live.get(log, []), own)
        if is_content_read and client is not None and own is not None:
            from .verify_content import compare_content

            compare_content(run, own, found[-1].span.end, live.get(log, []))
    check_strays(stored, state, history, report)
    if files.identity.table is TableFormat.DELTA:
        from .delta import delta_problem

        if text := delta_problem(files, table, [manifest for manifest, _ in history]):
            report.problem(text)
    return report


def replayed(history: Sequence[tuple[Manifest, str]]) -> LakeState:
    """Returns the state after some commits from the first on. Damaged: one replaces a file that is not there."""
    state = LakeState()
    for manifest, own in history:
        before = sum(state.files[one].rows for one in manifest.replaced if one in state.files)
        if manifest.is_merge and before != manifest.rows:
            raise Damaged(
                f"commit {manifest.commit} replaces {before} rows with {manifest.rows}: a merge keeps every row"
            )
        state.apply(manifest, own)
    return state


def check_checkpoint(
    files: LakeReader,
    found: LakeState | None,
    history: Sequence[tuple[Manifest, str]],
    report: LakeReport,
) -> None:
    """A problem, unless the checkpoint that opening begins with is what the manifests make."""
    if found is None:
        return
    expected = replayed(history[: found.commits])
    lake = files.identity.lake
    if found.to_checkpoint(lake) != expected.to_checkpoint(lake):
        report.problem(
            f"the checkpoint of commit {found.commits - 1} is not what the manifests say"
        )


def check_end(checkpoints: Sequence[str], report: LakeReport) -> None:
    """A problem if a checkpoint stands behind manifests that are not there: the last ones were removed."""
    stems = [one.removesuffix(".json") for one in checkpoints]
    commits = max((int(one) for one in stems if one.isdecimal()), default=0)
    if commits > report.commits:
        report.problem(
            f"there is a checkpoint of {commits} commits, and the lake has {report.commits}: the last are missing"
        )


def spans_by_log(
    manifests: Iterable[Manifest], report: LakeReport
) -> dict[LogName, list[CommitSpan]]:
    """Returns the spans of each log. A problem, unless each begins where the one before ended, the first at 0."""
    found: dict[LogName, list[CommitSpan]] = {}
    current: dict[TopicPartition, int] = {}
    for manifest in manifests:
        for span in manifest.spans:
            log = LogName(span.name, span.log)
            known = found.setdefault(log, [])
            expected = known[-1].span.end if known else 0
            if span.start != expected:
                report.problem(
                    f"commit {manifest.commit}: {span.name} goes on at {span.start}, not at {expected}"
                )
            if known and current[span.name] != span.log:
                report.problem(
                    f"commit {manifest.commit}: {span.name} is a log that another one has followed"
                )
            current[span.name] = span.log
            known.append(CommitSpan(manifest.commit, span))
    for log, known in found.items():
        last = known[-1].span
        one = PartitionReport(last.topic, last.partition, last.end, last.log)
        if current[log.name] == log.log:
            report.partitions[log.name] = one
        else:
            one.broker = "made again"
            report.earlier.append(one)
    return found


def check_file(
    files: LakeReader, file: LakeFile, report: LakeReport, *, is_content_read: bool
) -> bool:
    """Check that a file is what was written. Returns whether its rows can be read."""
    report.files += 1
    if problem := _folder_problem(file) or _bytes_problem(files, file):
        report.problem(f"{file.path}: {problem}")
        return False
    report.rows += file.rows
    report.bytes += file.size
    if file.topic and is_content_read and (problem := _content_problem(files, file)):
        report.problem(f"{file.path}: {problem}")
    return True


def _folder_problem(file: LakeFile) -> str | None:
    """Readers take the topic and the day of a row from the folder of its file."""
    if (
        file.path.rpartition("/")[0] != folder_path(file.folders)
        or file.folders.get("topic", "") != file.topic
    ):
        return f"it is not in the folder of its topic, {file.topic or 'none'}"
    return None


def _bytes_problem(files: LakeReader, file: LakeFile) -> str | None:
    try:
        size, own = hash_of(files.store, files.place_of(file))
    except FileMissing:
        return "it is missing"
    if size != file.size:
        return f"it has {size} bytes, the manifest says {file.size}"
    if own != file.sha256:
        return f"its SHA-256 is {own[:16]}..., the manifest says {file.sha256[:16]}..."
    return None


def _rows_problem(file: LakeFile, offsets: Offsets) -> str | None:
    if len(offsets) != file.rows:
        return f"it has {len(offsets)} rows, the manifest says {file.rows}"
    if len(offsets) and (offsets[0], offsets[-1]) != (file.first, file.last):
        return f"its offsets are {offsets[0]} to {offsets[-1]}, not {file.first} to {file.last}"
    if np.any(np.diff(offsets) <= 0):
        return "its offsets do not rise"
    return None


def _content_problem(files: LakeReader, file: LakeFile) -> str | None:
    keys = values = 0
    split, columns = files.identity.split, files.identity.columns
    field = "" if columns is None else columns.partition_by
    names = ("key", "value", "timestamp", *([f"{DATA}.{field}"] if field else []))
    for batch in files.batches(file, names):
        keys = content_checksum(batch.column(0), keys)
        values = content_checksum(batch.column(1), values)
        for number, rows in by_time(batch, split):
            for value, _ in by_value(rows, field):
                folders = {"topic": file.topic, **folders_of(number, split, field, value)}
                if folders != file.folders:
                    return f"it has messages of {'/'.join(folders.values())}"
    if keys != file.keys or values != file.values:
        return "its keys or values are not those that were read from the broker"
    return None


def check_log(
    run: Verification,
    log: LogName,
    spans: Sequence[CommitSpan],
    live: Sequence[LakeFile],
    now: BrokerPartition | None,
) -> None:
    """Check the spans of a log one after the other. Only offsets of files that overlap with one are in memory."""
    files, client, report = run
    waiting = sorted(live, key=lambda one: one.first, reverse=True)
    open_offsets: list[Offsets] = []
    last = spans[-1]
    for commit, span in spans:
        while waiting and (waiting[-1].first < span.end or span is last.span):
            file = waiting.pop()
            rows = [one.column(0).to_numpy() for one in files.batches(file, ("offset",))]
            offsets: Offsets = np.concatenate(rows or [np.zeros(0, np.int64)])
            if problem := _rows_problem(file, offsets):
                report.problem(f"{file.path}: {problem}")
            open_offsets.append(offsets)
        parts, rest = [], []
        for offsets in open_offsets:
            # What is below the span belongs to none, and is reported with this one.
            if span is last.span:
                parts.append(offsets)
                continue
            is_own = offsets < span.end
            parts.append(offsets[is_own])
            if not is_own.all():
                rest.append(offsets[~is_own])
        open_offsets = rest
        found = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        check_offsets(span, found, commit, report)
        if client is not None and now is not None and span.gap_offsets:
            compare_gaps(client, now, span, found, report)
    if now is not None:
        report.partitions[log.name].behind = now.latest - last.span.end


def check_offsets(span: Span, found: Offsets, commit: int, report: LakeReport) -> None:
    """Check that the files hold the offsets of a span once, and that the missing ones are its gaps."""
    known = report.of_log(span)
    offsets = np.sort(found)
    repeated = offsets[1:][np.diff(offsets) == 0]
    if len(repeated):
        report.problem(f"commit {commit}: {span.name}: offset {repeated[0]} is there twice")
        offsets = np.unique(offsets)
    outside = offsets[(offsets < span.start) | (offsets >= span.end)]
    if len(outside):
        report.problem(
            f"commit {commit}: {span.name}: offset {outside[0]} is outside {span.start}..{span.end}"
        )
        offsets = offsets[(offsets >= span.start) & (offsets < span.end)]
    missing = [*gaps_in(offsets, span.start)] if len(offsets) else []
    behind = int(offsets[-1]) + 1 if len(offsets) else span.start
    missing += [(behind, span.end)] if behind < span.end else []
    known.rows += len(offsets)
    known.gap_offsets += sum(end - start for start, end in missing)
    known.gaps += _named(missing, span, commit, report)[: GAPS_SHOWN_MAX - len(known.gaps)]


def _named(
    missing: list[tuple[int, int]], span: Span, commit: int, report: LakeReport
) -> list[Gap]:
    """Returns the missing ranges with the reasons of the manifest. A range without a reason is a problem."""
    listed = span.gaps
    is_cut = sum(one.end - one.start for one in listed) < span.gap_offsets
    covered = list(_pieces(missing, listed))
    for gap in covered:
        is_unlisted = gap.reason == ""
        if is_unlisted and not (is_cut and listed and gap.start >= listed[-1].end):
            report.problem(
                f"commit {commit}: {span.name}: offsets {gap.start}..{gap.end} are missing for no known reason"
            )
    count = sum(end - start for start, end in missing)
    if count != span.gap_offsets:
        report.problem(
            f"commit {commit}: {span.name}: {count} offsets are missing, the manifest says {span.gap_offsets}"
        )
    return [gap for gap in covered if gap.reason]


def _pieces(missing: list[tuple[int, int]], listed: list[Gap]) -> Iterator[Gap]:
    """Yields the missing ranges, cut along those that have a reason; the rest has an empty reason."""
    reasons = sorted(listed, key=lambda one: one.start)
    number = 0
    for start, end in missing:
        at = start
        while at < end:
            while number < len(reasons) and reasons[number].end <= at:
                number += 1
            if number == len(reasons) or reasons[number].start >= end:
                yield Gap(at, end, "")
                break
            one = reasons[number]
            if one.start > at:
                yield Gap(at, one.start, "")
            yield Gap(max(at, one.start), min(end, one.end), one.reason)
            at = min(end, one.end)


def compare_gaps(
    client: "Client", now: BrokerPartition, span: Span, found: Offsets, report: LakeReport
) -> None:
    """Fetch a span that has gaps: every offset that the broker still has must be in the lake."""
    known, at = np.sort(found), max(span.start, now.earliest)
    if all(one.reason == NOT_ASKED for one in span.gaps):
        return
    for fetched in kept_fetches(client, span.name, at):
        if fetched.seed != span.log:
            return
        for batch in fetched.record_batches(("offset",)):
            visible = batch.column(0).to_numpy()
            visible = visible[visible < span.end]
            lost = visible[~np.isin(visible, known, assume_unique=True)]
            if len(lost):
                report.problem(f"{span.name}: offset {lost[0]} is in the broker, not in the lake")
                return
        if fetched.next_offset >= span.end:
            return


def check_strays(
    stored: Sequence[str],
    state: LakeState,
    history: Sequence[tuple[Manifest, str]],
    report: LakeReport,
) -> None:
    """A problem for each file of a directory that no commit names: readers of the directory would see it.

    A bucket may have files of attempts that were cut off: nothing lists it, and `archive vacuum` removes them.
    """
    known = state.files.keys() | {path for manifest, _ in history for path in manifest.replaced}
    for path in stored:
        if path not in known:
            report.problem(f"{path}: no commit names this file")


def _broker_partitions(
    client: "Client | None", state: LakeState, report: LakeReport
) -> Mapping[TopicPartition, BrokerPartition]:
    """Returns the partitions that the broker still has. A lake outlives its topics, so another log is no problem."""
    if client is None:
        return {}
    found: dict[TopicPartition, BrokerPartition] = {}
    for topic in sorted({name.topic for name in state.ends}):
        try:
            found |= {one.name: one for one in query_topic(client, topic)}
        except NotFound:
            continue
    for name, span in state.ends.items():
        now, known = found.get(name), report.partitions[name]
        if now is None:
            known.broker = "deleted"
        elif now.log != span.log:
            known.broker = "made again"
            known.behind = now.latest
        else:
            known.broker = "the same"
            if now.latest < span.end:
                report.problem(
                    f"{name}: the broker ends at {now.latest}, the lake at {span.end}: the broker has lost messages"
                )
                del found[name]
    report.is_compared = True
    return found
