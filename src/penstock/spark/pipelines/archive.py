"""Archives topics into a lake, exactly once.

There is no checkpoint beside the lake: the last manifest says where to go on, and the manifest makes the commit. So the
two cannot disagree. Progress in the broker (the floor of a group, which retention can wait for) follows the manifest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...api.groups import LAKE_CHARACTERS_MAX
from ...errors import Unavailable
from .lake import Lake
from .manifest import Manifest
from .partitions import (
    NOT_ASKED,
    BrokerPartition,
    CommitPlan,
    empty_span,
    keep_unread,
    lag,
    plan,
    query_partitions,
    require_same,
)
from .ranges import RangeResult, RangeTask, archive_range, join_spans
from .remote import Remote
from .task_files import Staging
from .task_runner import TaskRunner

if TYPE_CHECKING:
    from ...client import Client

_PAUSE_S_MIN, _PAUSE_S_MAX = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """`group` gets the progress, if it is not empty; with `holds_retention` retention of the topics waits for it.

    `starts_latest`: partitions that the lake does not know begin at their end.
    """

    topics: tuple[str, ...]
    starts_latest: bool = False
    group: str = ""
    holds_retention: bool = False
    skips_damage: bool = False
    compression: str = "zstd"
    # A commit costs some fsyncs and a manifest. A crash repeats at most one commit.
    commit_messages_max: int = 2_000_000
    # One file holds at most as many.
    task_messages_max: int = 500_000
    interval_s: float = 10.0


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """Messages and commits of this run, and how many messages are left to do.

    `rate`, in messages a second, and `batch_ms` are of the last commit; 0 where nothing measures them.
    """

    state: str
    messages: int
    commits: int
    lag: int
    error: str = ""
    rate: float = 0.0
    batch_ms: int = 0


class Stop(Protocol):
    """The part of `threading.Event` by which the caller stops a run."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """Archives one range in a task of Spark. Returns its result as JSON."""

    remote: Remote
    staging: Staging

    def __call__(self, task: RangeTask) -> bytes:
        # Every attempt writes into its own folder, also if Spark runs two at the same time.
        own = replace(self.staging, attempt=f"{self.staging.attempt}-{token_hex(6)}")
        return msgspec.json.encode(archive_range(task, self.remote, own))


class Archive:
    """One lake and the topics that go into it."""

    def __init__(
        self,
        lake: Lake,
        remote: Remote,
        run_tasks: TaskRunner,
        options: ArchiveOptions,
        on_progress: Callable[[PipelineProgress], None] = lambda _: None,
    ) -> None:
        self.lake, self.remote, self.run_tasks, self.options = lake, remote, run_tasks, options
        self.on_progress = on_progress
        self.messages = self.commits = 0
        self._is_prepared = False

    def run_once(self, stop: Stop) -> None:
        """Archive everything that is there now, commit by commit."""
        self._reach(self.query_partitions(), stop)
        self.on_progress(self._progress("stopped", []))

    def run(self, stop: Stop) -> None:
        """Archive until `stop`. Waits for a broker that is away; raises errors that will not pass."""
        pause_s = _PAUSE_S_MIN
        while not stop.is_set():
            try:
                targets = self.query_partitions()
                self._reach(targets, stop)
            except Unavailable as error:
                self.on_progress(replace(self._progress("waiting", []), error=str(error)))
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
                continue
            pause_s = _PAUSE_S_MIN
            self.on_progress(self._progress("running", targets))
            stop.wait(self.options.interval_s)
        self.on_progress(self._progress("stopped", []))

    def query_partitions(self) -> list[BrokerPartition]:
        """Returns the partitions as they are now. NotFound; Refused: a topic is not the one in the lake."""
        with self.remote.connect() as client:
            found = query_partitions(client, self.options.topics)
            require_same(self.lake.root, self.lake.ends, found)
            if not self._is_prepared:
                self._prepare(client, found)
                self._is_prepared = True
        return found

    def _prepare(self, client: "Client", found: Sequence[BrokerPartition]) -> None:
        """Before the first read: commit where new partitions begin, and publish the progress in the broker."""
        is_opening = self.options.starts_latest and not self.lake.ends
        if is_opening:
            # Committed at once: after a crash "latest" would be another offset.
            opening = [empty_span(one, 0, one.latest, NOT_ASKED) for one in found]
            self.lake.commit(opening, [])
        if self.options.holds_retention:
            keep_unread(client, self.options.topics)
        self._tell_group(client, found, is_opening=is_opening)

    def _tell_group(
        self, client: "Client", found: Sequence[BrokerPartition], *, is_opening: bool = False
    ) -> None:
        """Commit the ends of the lake for the group. A group that is ahead stays there.

        Journeys then tell of the lake, but for what lies before the place that a new lake begins at.
        """
        lake = "" if is_opening else str(self.lake.root)[-LAKE_CHARACTERS_MAX:]
        if not self.options.group:
            return
        offsets: dict[str, dict[int, int]] = {}
        for one in found:
            known = self.lake.ends.get(one.name)
            floor = known.end if known else one.earliest
            offsets.setdefault(one.name.topic, {})[one.name.number] = floor
        client.commit(self.options.group, offsets, lake=lake)

    def _reach(self, targets: Sequence[BrokerPartition], stop: Stop) -> None:
        while not stop.is_set():
            planned = self.plan(targets)
            if not planned.tasks:
                return
            manifest = self.carry_out(planned)
            self.messages += manifest.rows
            self.commits += 1
            with self.remote.connect() as client:
                self._tell_group(client, targets)
            self.on_progress(self._progress("running", targets))

    def plan(self, targets: Sequence[BrokerPartition]) -> CommitPlan:
        options = self.options
        return plan(
            self.lake.ends,
            targets,
            commit_messages_max=options.commit_messages_max,
            task_messages_max=options.task_messages_max,
            skips_damage=options.skips_damage,
        )

    def carry_out(self, planned: CommitPlan) -> Manifest:
        """Run the tasks, then commit what they wrote. Returns the manifest."""
        columns = self.lake.identity.columns
        staging = Staging(
            root=str(self.lake.root),
            commit=self.lake.next_commit,
            attempt=token_hex(4),
            split=self.lake.identity.split,
            compression=self.options.compression,
            schema_id=None if columns is None else columns.schema_id,
        )
        answers = self.run_tasks(ArchiveTask(self.remote, staging), planned.tasks)
        done = [msgspec.json.decode(one, type=RangeResult) for one in answers]
        spans = join_spans([*planned.expired, *(one.span for one in done)])
        return self.lake.commit(spans, [file for one in done for file in one.files])

    def _progress(self, state: str, targets: Sequence[BrokerPartition]) -> PipelineProgress:
        return PipelineProgress(state, self.messages, self.commits, lag(self.lake.ends, targets))
