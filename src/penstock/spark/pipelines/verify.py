"""Checks that a lake holds every offset once: its manifests, its files, and against the broker."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ...model import TopicPartition
from .lake import FOLDER, LakeReader
from .manifest import Gap, LakeFile, Manifest, Span, ends
from .partitions import NOT_ASKED, BrokerPartition, query_partitions
from .ranges import FETCH_BYTES
from .rows import content_checksum, gaps_in
from .task_files import sync_and_checksum

if TYPE_CHECKING:
    from ...client import Client

Offsets = npt.NDArray[np.int64]
_DELTA_FOLDER = "_delta_log"
# A lake that is quite lost would otherwise fill the screen, and the memory.
PROBLEMS_MAX = 100
GAPS_SHOWN_MAX = 1000


@dataclass(slots=True)
class PartitionReport:
    """One partition of the lake. `behind` is how many offsets the broker has more; -1 if it was not asked."""

    topic: str
    partition: int
    end: int
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
    partitions: dict[TopicPartition, PartitionReport] = field(default_factory=dict)
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
            "partitions": [
                {
                    "partition": str(name),
                    "archived_up_to": one.end,
                    "rows": one.rows,
                    "missing": one.gap_offsets,
                    "behind": one.behind if one.behind >= 0 else None,
                    "gaps": [
                        {"start": gap.start, "end": gap.end, "reason": gap.reason}
                        for gap in one.gaps
                    ],
                }
                for name, one in sorted(self.partitions.items())
            ],
            "problems": list(self.problems),
        }

    def problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def verify(
    files: LakeReader,
    client: "Client | None" = None,
    *,
    is_content_read: bool = False,
    on_commit: Callable[[Manifest], None] = lambda _: None,
) -> LakeReport:
    """Check all commits, one at a time in memory. Returns the report. Damaged: a manifest is damaged or missing."""
    manifests = files.manifests()
    report = LakeReport(str(files.root), commits=len(manifests))
    now = _broker_partitions(client, manifests, report)
    check_spans(manifests, report)
    for manifest in manifests:
        offsets = check_files(files, manifest, report, is_content_read=is_content_read)
        for span in manifest.spans:
            found = offsets.get(span.name, np.zeros(0, np.int64))
            check_offsets(span, found, manifest.commit, report)
            if client is not None and span.gap_offsets and span.name in now:
                compare_gaps(client, now[span.name], span, found, report)
        on_commit(manifest)
    check_strays(files, manifests, report)
    for name, span in ends(manifests).items():
        report.partitions[name].end = span.end
        if name in now:
            report.partitions[name].behind = now[name].latest - span.end
    return report


def check_spans(manifests: Iterable[Manifest], report: LakeReport) -> None:
    """A problem, unless each span of a partition begins where the one before ended, the first at 0."""
    last: dict[TopicPartition, Span] = {}
    for manifest in manifests:
        for span in manifest.spans:
            before = last.get(span.name)
            expected = before.end if before else 0
            if span.start != expected:
                report.problem(
                    f"commit {manifest.commit}: {span.name} goes on at {span.start}, not at {expected}"
                )
            if before is not None and before.log != span.log:
                report.problem(f"commit {manifest.commit}: {span.name} is another log than before")
            last[span.name] = span


def check_files(
    files: LakeReader, manifest: Manifest, report: LakeReport, *, is_content_read: bool
) -> dict[TopicPartition, Offsets]:
    """Check that every file of a commit is what was written. Returns the offsets in them by partition."""
    found: dict[TopicPartition, list[Offsets]] = {}
    for file in manifest.files:
        path = files.path_of(file)
        report.files += 1
        if problem := _bytes_problem(path, file):
            report.problem(f"commit {manifest.commit}: {file.path}: {problem}")
            continue
        report.rows += file.rows
        report.bytes += file.size
        if manifest.stream is None:
            offsets = _offsets_in(path)
            if problem := _rows_problem(file, offsets):
                report.problem(f"commit {manifest.commit}: {file.path}: {problem}")
            if is_content_read and (problem := _content_problem(path, file)):
                report.problem(f"commit {manifest.commit}: {file.path}: {problem}")
            found.setdefault(TopicPartition(file.topic, file.partition), []).append(offsets)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _bytes_problem(path: Path, file: LakeFile) -> str | None:
    if not path.exists():
        return "it is missing"
    size, own = sync_and_checksum(path)
    if size != file.size:
        return f"it has {size} bytes, the manifest says {file.size}"
    if own != file.checksum:
        return f"its checksum is {own:#010x}, the manifest says {file.checksum:#010x}"
    return None


def _offsets_in(path: Path) -> Offsets:
    table = pq.ParquetFile(path).read(columns=["offset"])
    found: Offsets = table.column("offset").to_numpy()
    return found


def _rows_problem(file: LakeFile, offsets: Offsets) -> str | None:
    if len(offsets) != file.rows:
        return f"it has {len(offsets)} rows, the manifest says {file.rows}"
    if len(offsets) and (offsets[0], offsets[-1]) != (file.first, file.last):
        return f"its offsets are {offsets[0]} to {offsets[-1]}, not {file.first} to {file.last}"
    if np.any(np.diff(offsets) <= 0):
        return "its offsets do not rise"
    return None


def _content_problem(path: Path, file: LakeFile) -> str | None:
    keys = values = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["key", "value"]):
        keys = content_checksum(batch.column(0), keys)
        values = content_checksum(batch.column(1), values)
    if keys != file.keys or values != file.values:
        return "its keys or values are not those that were read from the broker"
    return None


def check_offsets(span: Span, found: Offsets, commit: int, report: LakeReport) -> None:
    """Check that the files hold the offsets of a span once, and that the missing ones are its gaps."""
    known = report.partitions.setdefault(
        span.name, PartitionReport(span.topic, span.partition, span.end)
    )
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
        if is_unlisted and not (is_cut and gap.start >= listed[-1].end):
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
    while at < span.end:
        fetched = client.fetch(span.topic, span.partition, offset=at, max_bytes=FETCH_BYTES)
        for batch in fetched.record_batches(("offset",)):
            visible = batch.column(0).to_numpy()
            visible = visible[visible < span.end]
            lost = visible[~np.isin(visible, known, assume_unique=True)]
            if len(lost):
                report.problem(f"{span.name}: offset {lost[0]} is in the broker, not in the lake")
                return
        if fetched.next_offset <= at:
            return
        at = fetched.next_offset


def check_strays(files: LakeReader, manifests: Iterable[Manifest], report: LakeReport) -> None:
    """A problem for each file that no commit names: readers of the directory would see it."""
    named = {one.path for manifest in manifests for one in manifest.files}
    for path in sorted(files.root.rglob("*.parquet")):
        inside = path.relative_to(files.root)
        if inside.parts[0] not in {FOLDER, _DELTA_FOLDER} and str(inside) not in named:
            report.problem(f"{inside}: no commit names this file")


def _broker_partitions(
    client: "Client | None", manifests: Iterable[Manifest], report: LakeReport
) -> Mapping[TopicPartition, BrokerPartition]:
    if client is None:
        return {}
    known = ends(manifests)
    found = {
        one.name: one for one in query_partitions(client, sorted({name.topic for name in known}))
    }
    for name, span in known.items():
        now = found.get(name)
        if now is None or now.log != span.log or now.latest < span.end:
            report.problem(f"{name}: the broker has another topic of this name")
            found.pop(name, None)
    report.is_compared = True
    return found
