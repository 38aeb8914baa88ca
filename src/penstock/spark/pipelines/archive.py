"""Archives topics into a lake, exactly once.

There is no checkpoint beside the lake: the last manifest says where to go on, and the manifest makes the commit. So the
two cannot disagree. Progress in the broker (the floor of a group, which retention can wait for) follows the manifest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ...api.error_reply import error_reply, rebuilt_error
from ...api.groups import LAKE_CHARACTERS_MAX
from ...api.json.pipelines import State
from ...errors import (
    NotFound,
    OffsetOutOfRange,
    PartitionFaulty,
    PenstockError,
    Unavailable,
)
from ...model import TopicPartition
from .followed_schema import FollowedSchema
from .lake import Lake
from .manifest import Manifest
from .partitions import (
    NOT_ASKED,
    BrokerPartition,
    CommitPlan,
    empty_span,
    keep_unread,
    lag,
    matching_topics,
    next_offset,
    plan,
    query_topic,
    require_continued,
)
from .ranges import RangeResult, RangeTask, archive_range, join_spans
from .remote import Remote
from .state import LakeState
from .task_files import Staging
from .task_runner import TaskRunner

if TYPE_CHECKING:
    from ...client import Client

_PAUSE_S_MIN, _PAUSE_S_MAX = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """`group` gets the progress, if it is not empty; with `holds_retention` retention of the topics waits for it.

    `starts_latest`: a new lake begins at the end of the topics; those that come later begin at their first message.
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

    `files` and `bytes` are what it wrote into a lake, merged there or removed from it.

    `rate`, in messages a second, and `batch_ms` are of the last commit; 0 where nothing measures them.
    """

    state: State
    messages: int
    commits: int
    lag: int
    error: str = ""
    rate: float = 0.0
    batch_ms: int = 0
    # Topics that could not be archived, and why; the others were.
    problems: dict[str, str] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0


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
        try:
            done = archive_range(task, self.remote, own)
        except PenstockError as error:
            if not is_of_topic(error):
                raise
            done = RangeResult(task.empty_span(), [], [], error_reply(error))
        return msgspec.json.encode(done)


def is_of_topic(error: PenstockError) -> bool:
    """Whether an error is about one topic, so that the others go on; not about the broker or the store."""
    return isinstance(error, PartitionFaulty) or not isinstance(error, Unavailable)


class ArchivePreview(NamedTuple):
    """What a run would archive of one partition: offsets from `start` to before `end`."""

    partition: str
    start: int
    end: int
    # Offsets that are gone from the broker before they could be archived.
    expired: int
    is_new_log: bool

    @property
    def messages(self) -> int:
        return self.end - self.start


def preview(
    state: LakeState, remote: Remote, topics: Sequence[str]
) -> tuple[list[ArchivePreview], dict[str, PenstockError]]:
    """Returns what a run would archive now, and the topics that it could not. Nothing is changed."""
    found, problems = query_topics(state, remote, topics)
    rows = []
    for one in found:
        last, before = next_offset(state.ends, one), state.ends.get(one.name)
        start = max(last, one.earliest)
        is_new_log = before is not None and before.log != one.log
        rows.append(ArchivePreview(str(one.name), start, one.latest, start - last, is_new_log))
    return rows, problems


def query_topics(
    state: LakeState, remote: Remote, topics: Sequence[str]
) -> tuple[list[BrokerPartition], dict[str, PenstockError]]:
    """Returns the partitions of topics and patterns as they are now, and the topics that have a problem.

    A topic of the lake that the broker has no more is no problem, unless no other is left: the lake outlives it.
    """
    found: list[BrokerPartition] = []
    problems: dict[str, PenstockError] = {}
    gone: dict[str, PenstockError] = {}
    kept = {name.topic for name in state.ends}
    with remote.connect() as client:
        names, empty = matching_topics(client, topics)
        for pattern in empty:
            problems[pattern] = NotFound("topic", f"like {pattern} at {client.url}")
        for name in names:
            try:
                partitions = query_topic(client, name)
                for one in partitions:
                    require_continued(state, one)
            except NotFound as error:
                (gone if name in kept else problems)[name] = error
            except PenstockError as error:
                if not is_of_topic(error):
                    raise
                problems[name] = error
            else:
                found += partitions
    return found, problems if found else problems | gone


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
        self.messages = self.commits = self.files = self.bytes = 0
        # Why a topic cannot be archived, by its name or pattern; the others go on.
        self.problems: dict[str, PenstockError] = {}
        columns = lake.identity.columns
        self._partition_by = "" if columns is None else columns.partition_by
        self._schema = None if columns is None else FollowedSchema(columns)
        # By log: a topic that is made again has its settings anew.
        self._prepared: set[tuple[TopicPartition, int]] = set()

    def run_once(self, stop: Stop) -> None:
        """Archive everything that is there now, commit by commit. Raises the error of a topic if no topic is left."""
        targets = self.query_partitions()
        if targets:
            self.on_progress(self._progress("starting", targets))
        self._reach(targets, stop)
        if self.problems and {one.name.topic for one in targets} <= self.problems.keys():
            raise next(iter(self.problems.values()))
        left = [one for one in targets if one.name.topic not in self.problems]
        self.on_progress(self._progress("stopped", left))

    def run(self, stop: Stop) -> None:
        """Archive until `stop`. Waits for a broker that is away; a topic that has a problem is tried again."""
        pause_s, targets = _PAUSE_S_MIN, list[BrokerPartition]()
        while not stop.is_set():
            try:
                targets = self.query_partitions()
                if targets and not self.commits:
                    self.on_progress(self._progress("starting", targets))
                self._reach(targets, stop)
            except Unavailable as error:
                self.on_progress(replace(self._progress("waiting", []), error=str(error)))
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
                continue
            pause_s = _PAUSE_S_MIN
            self.on_progress(self._progress("running", targets))
            stop.wait(self.options.interval_s)
        self.on_progress(self._progress("stopped", targets))

    def query_partitions(self) -> list[BrokerPartition]:
        """Returns the partitions as they are now, without topics that have a problem: those are in `problems`."""
        found, self.problems = query_topics(self.lake.now, self.remote, self.options.topics)
        with self.remote.connect() as client:
            self._prepare(client, found)
            if self._schema is not None:
                self._schema.follow(client, self.lake.now.columns)
        return found

    def _prepare(self, client: "Client", found: Sequence[BrokerPartition]) -> None:
        """Before the first read: commit where a new lake begins, and publish the progress of topics in the broker."""
        is_opening = self.options.starts_latest and not self.lake.ends and bool(found)
        if is_opening:
            # Committed at once: after a crash "latest" would be another offset.
            opening = [empty_span(one, 0, one.latest, NOT_ASKED) for one in found]
            self.lake.commit(opening, [])
        new = {one.name.topic for one in found if (one.name, one.log) not in self._prepared}
        if new and self.options.holds_retention:
            keep_unread(client, sorted(new))
        if new:
            self._tell_group(
                client, [one for one in found if one.name.topic in new], is_opening=is_opening
            )
        self._prepared |= {(one.name, one.log) for one in found}

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
            is_same = known is not None and known.log == one.log
            floor = next_offset(self.lake.ends, one) if is_same else one.earliest
            offsets.setdefault(one.name.topic, {})[one.name.number] = floor
        for name, places in offsets.items():
            try:
                client.commit(self.options.group, {name: places}, lake=lake)
            except (NotFound, OffsetOutOfRange) as error:
                # The topic was deleted meanwhile, and perhaps made again. The others go on.
                self.problems[name] = error

    def _reach(self, targets: Sequence[BrokerPartition], stop: Stop) -> None:
        self.lake.finish()
        while not stop.is_set():
            left = [one for one in targets if one.name.topic not in self.problems]
            planned = self.plan(left)
            if not planned.tasks:
                return
            manifest = self.carry_out(planned)
            if manifest is None:
                continue
            self.messages += manifest.rows
            self.commits += 1
            self.files += len(manifest.files)
            self.bytes += sum(one.size for one in manifest.files)
            left = [one for one in targets if one.name.topic not in self.problems]
            with self.remote.connect() as client:
                self._tell_group(client, left)
            self.on_progress(self._progress("running", left))

    def plan(self, targets: Sequence[BrokerPartition]) -> CommitPlan:
        options = self.options
        return plan(
            self.lake.ends,
            targets,
            commit_messages_max=options.commit_messages_max,
            task_messages_max=options.task_messages_max,
            skips_damage=options.skips_damage,
        )

    def carry_out(self, planned: CommitPlan) -> Manifest | None:
        """Run the tasks, then commit what they wrote. Returns the manifest; None if every topic had a problem."""
        staging = Staging(
            root=str(self.lake.root),
            commit=self.lake.next_commit,
            attempt=token_hex(4),
            split=self.lake.identity.split,
            compression=self.options.compression,
            schema_id=None if self._schema is None else self._schema.schema_id,
            partition_by=self._partition_by,
        )
        answers = self.run_tasks(ArchiveTask(self.remote, staging), planned.tasks)
        done = [msgspec.json.decode(one, type=RangeResult) for one in answers]
        for one in done:
            if one.error is not None:
                self.problems[one.span.topic] = rebuilt_error(one.error)
        # The files of a topic with a problem stay in staging, and are removed when the lake is opened next.
        good = [one for one in done if one.span.topic not in self.problems]
        if not good:
            return None
        expired = [one for one in planned.expired if one.topic not in self.problems]
        spans = join_spans([*expired, *(one.span for one in good)])
        files = [file for one in good for file in one.files]
        return self.lake.commit(spans, files, columns=good[0].columns)

    def _progress(self, state: State, targets: Sequence[BrokerPartition]) -> PipelineProgress:
        problems = {name: str(error) for name, error in self.problems.items()}
        left = lag(self.lake.ends, targets)
        error = "; ".join(problems.values())
        return PipelineProgress(
            state,
            self.messages,
            self.commits,
            left,
            error,
            problems=problems,
            files=self.files,
            bytes=self.bytes,
        )
