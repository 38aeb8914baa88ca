"""`penstock replay --lake`: from a lake what the log has lost, and from the log what it has, each offset once.

The log decides: an offset that it has is read there, whatever the lake has too. So the seam is where the log begins,
also if retention moves that while the job runs.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ..api.units import time_ns
from ..client import Client
from ..errors import NotFound, OffsetOutOfRange, Refused
from ..model import MessageColumns
from ..spark.pipelines.lake_log import WINDOW_OFFSETS
from ..spark.pipelines.lake_messages import LakeMessages, LakePartition
from .transfer import Range, Read, TopicReader, Transfer, check_source, gone


class LogPart(NamedTuple):
    """A partition as the broker has it."""

    earliest: int
    latest: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LakeReplay(Transfer):
    """A replay from a lake and the log. The topic may be gone from the broker; then it is from the lake alone."""

    lake: LakeMessages

    def check(self, client: Client) -> int:
        """Returns how many partitions the target has. NotFound, Refused: it cannot go from there to there."""
        check_source(self)
        return client.topic(self.target).partitions

    def ranges(self, client: Client) -> list[Range]:
        """Returns what is selected, and how far the job is. Refused: neither lake nor log has a part of it."""
        logs = self.logs(client)
        known, asked = sorted({*logs, *self.lake.partitions}), self.selection.partition
        if asked is not None and asked not in known:
            raise NotFound("partition", f"{self.source}/{asked}")
        return [
            self._place(client, number, logs.get(number))
            for number in (known if asked is None else [asked])
        ]

    def logs(self, client: Client) -> dict[int, LogPart]:
        """Returns the partitions of the broker; none if it has no such topic any more."""
        try:
            count = client.topic(self.source).partitions
        except NotFound:
            return {}
        found = {}
        for number in range(count):
            first = client.fetch(self.source, number, limit=1, max_bytes=1)
            found[number] = LogPart(first.earliest, first.latest, first.seed)
        return found

    def _place(self, client: Client, partition: int, log: LogPart | None) -> Range:
        lake, name = self.lake.partitions.get(partition), f"{self.source}/{partition}"
        if lake is None:
            assert log is not None, "a partition is in the lake or in the broker"
            return self._range(client, partition)
        if log is None:
            log = LogPart(lake.end, lake.end, lake.log)
        elif lake.log != log.seed:
            raise Refused(
                f"the lake has {name} from before the topic was made again, and offsets of both would be mixed: "
                "replay without --lake, or bring the old topic back with penstock archive restore --as"
            )
        begin = self._offset_of(client, partition, lake, log, self.selection.start)
        until = self.selection.until
        end = self._offset_of(client, partition, lake, log, "latest" if until is None else until)
        position = self.position(client, partition, log.seed)
        first = min(lake.start, log.earliest)
        start = self.selection.start
        wanted = max(position, start if isinstance(start, int) else 0)
        if 0 < wanted < first:
            raise gone(name, wanted, first)
        done = max(begin, position)
        if done < log.earliest and lake.end < min(end, log.earliest):
            raise Refused(
                f"offsets {lake.end} to {log.earliest - 1} of {name} are neither in the lake nor in the log: end with "
                f"--until {lake.end}, or begin another job with --from {log.earliest} and --name"
            )
        return Range(partition, begin, max(begin, end), done, log.seed)

    def _offset_of(
        self, client: Client, partition: int, lake: LakePartition, log: LogPart, place: int | str
    ) -> int:
        first = min(lake.start, log.earliest)
        if isinstance(place, int):
            return min(max(place, first), log.latest)
        if place in {"earliest", "latest"}:
            return first if place == "earliest" else log.latest
        if log.latest > log.earliest:
            found = client.fetch(self.source, partition, from_time=place, limit=1, max_bytes=1)
            if found.offset > log.earliest:
                return min(found.offset, log.latest)
        return lake.offset_at(time_ns(place, "time"), log.earliest)

    @property
    def lake_root(self) -> str:
        """Where the lake of the job is."""
        return str(self.lake.files.root)

    def seams(self, client: Client) -> dict[int, int]:
        """Returns where the log of each partition begins; without a log, where the lake ends."""
        ends = {number: one.end for number, one in self.lake.partitions.items()}
        return ends | {number: one.earliest for number, one in self.logs(client).items()}

    def check_files(self, client: Client, ranges: list[Range]) -> None:
        """DamagedFile, FileMissing: a file that would be read is not what its commit says."""
        seams = self.seams(client)
        for one in ranges:
            if one.partition in self.lake.partitions and one.left:
                self.lake.check(one.partition, one.done, min(one.end, seams[one.partition]))

    def reader(self, client: Client) -> Read:
        """Returns what reads the messages of the job, from the lake below the log's start, then the log."""
        return SeamReader(client, self).read


class SeamReader:
    """Reads each offset from the log if it has it, else from the lake."""

    def __init__(self, client: Client, job: LakeReplay) -> None:
        self._lake, self._topic = job.lake, TopicReader(client, job.source)
        ends = {number: one.end for number, one in job.lake.partitions.items()}
        self._log_starts = ends | {number: one.earliest for number, one in job.logs(client).items()}

    def read(self, one: Range, at: int, end: int) -> tuple[int, list[MessageColumns]]:
        """Returns where it ended, and the messages before that. Refused: neither has them any more."""
        start = self._log_starts[one.partition]
        if at >= start:
            try:
                return self._topic.read(one, at, end)
            except OffsetOutOfRange as error:
                start = int(str(error.fields["start"]))
                if start <= at:
                    raise
                # Retention took it since the last look: the lake may have it.
                self._log_starts[one.partition] = start
        lake = self._lake.partitions.get(one.partition)
        following = min(end, start, (at // WINDOW_OFFSETS + 1) * WINDOW_OFFSETS)
        if lake is None or at < lake.start or following > lake.end:
            raise gone(f"{self._lake.topic}/{one.partition}", at, start)
        return following, [lake.read(at, following)]
