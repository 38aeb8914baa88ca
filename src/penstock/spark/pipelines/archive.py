"""Archive: topics into a lake, exactly once.

There is no checkpoint beside the lake: where to go on is what the last manifest says, and the manifest is what makes a
commit. So there is no moment at which one of the two knows more than the other. Progress in the broker (the floor of a
group, which retention can be told to wait for) follows the manifest and never leads it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...errors import Unavailable
from .files import Staging
from .lake import Lake
from .manifest import Manifest
from .partitions import (
    NOT_ASKED,
    Partition,
    Plan,
    keep_unread,
    lag,
    look,
    nothing_at,
    plan,
    require_same,
)
from .ranges import Done, RangeTask, archive_range, joined
from .remote import Remote
from .spread import Spread

if TYPE_CHECKING:
    from ...client import Client

_PAUSE_S_MIN, _PAUSE_S_MAX = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """`group` gets the progress, if it is not empty; with `holds_retention` the topics are told to wait for it.

    `starts_latest`: of a partition that the lake does not know only what comes from now on.
    """

    topics: tuple[str, ...]
    starts_latest: bool = False
    group: str = ""
    holds_retention: bool = False
    skips_damage: bool = False
    compression: str = "zstd"
    # A commit costs some fsyncs and a manifest, and what it covers is what a crash has to do again.
    commit_messages_max: int = 2_000_000
    # Also the most that one file holds.
    task_messages_max: int = 500_000
    interval_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """After each commit, and while waiting: messages and commits of this run, and what is left to do."""

    state: str
    messages: int
    commits: int
    lag: int
    error: str = ""


class Stop(Protocol):
    """Somebody who may want us to stop. `wait` returns early, with True, if that happens."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class RangeCall:
    """What tasks are called with besides their range."""

    remote: Remote
    staging: Staging

    def __call__(self, task: RangeTask) -> bytes:
        # Whoever tries again, or at the same time, writes into a folder of their own.
        own = replace(self.staging, attempt=f"{self.staging.attempt}-{token_hex(6)}")
        return msgspec.json.encode(archive_range(task, self.remote, own))


class Archive:
    """One lake and the topics that go into it."""

    def __init__(
        self,
        lake: Lake,
        remote: Remote,
        spread: Spread,
        options: ArchiveOptions,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.lake, self.remote, self.spread, self.options = lake, remote, spread, options
        self.on_progress = on_progress
        self.messages = self.commits = 0
        self._is_prepared = False

    def run_once(self, stop: Stop) -> None:
        """Everything that is there now, commit by commit."""
        self._reach(self.look(), stop)
        self.on_progress(self._progress("stopped", []))

    def run(self, stop: Stop) -> None:
        """Until `stop`. A broker that is away is waited for; what can never work is raised."""
        pause_s = _PAUSE_S_MIN
        while not stop.is_set():
            try:
                targets = self.look()
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

    def look(self) -> list[Partition]:
        """The partitions as they are now. NotFound; Refused if a topic is not the one in the lake."""
        with self.remote.connect() as client:
            found = look(client, self.options.topics)
            require_same(self.lake.root, self.lake.ends, found)
            if not self._is_prepared:
                self._prepare(client, found)
                self._is_prepared = True
        return found

    def _prepare(self, client: "Client", found: Sequence[Partition]) -> None:
        """Before anything is read: settle where new partitions begin, and tell the broker where we are."""
        if self.options.starts_latest and not self.lake.ends:
            # Written down at once: asked again after a crash, "latest" would be somewhere else.
            opening = [nothing_at(one, 0, one.latest, NOT_ASKED) for one in found]
            self.lake.commit(opening, [])
        if self.options.holds_retention:
            keep_unread(client, self.options.topics)
        self._tell_group(client, found)

    def _tell_group(self, client: "Client", found: Sequence[Partition]) -> None:
        """Say in the broker how far the lake is. A group that is ahead stays there."""
        if not self.options.group:
            return
        offsets: dict[str, dict[int, int]] = {}
        for one in found:
            known = self.lake.ends.get(one.place)
            floor = known.end if known else one.earliest
            offsets.setdefault(one.place.topic, {})[one.place.partition] = floor
        client.commit(self.options.group, offsets)

    def _reach(self, targets: Sequence[Partition], stop: Stop) -> None:
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

    def plan(self, targets: Sequence[Partition]) -> Plan:
        options = self.options
        return plan(
            self.lake.ends,
            targets,
            commit_messages_max=options.commit_messages_max,
            task_messages_max=options.task_messages_max,
            skips_damage=options.skips_damage,
        )

    def carry_out(self, planned: Plan) -> Manifest:
        """Run the tasks, then decide and publish what they wrote."""
        staging = Staging(
            root=str(self.lake.root),
            commit=self.lake.next_commit,
            attempt=token_hex(4),
            split=self.lake.identity.split,
            compression=self.options.compression,
        )
        answers = self.spread(RangeCall(self.remote, staging), planned.tasks)
        done = [msgspec.json.decode(one, type=Done) for one in answers]
        spans = joined([*planned.gone, *(one.span for one in done)])
        return self.lake.commit(spans, [file for one in done for file in one.files])

    def _progress(self, state: str, targets: Sequence[Partition]) -> Progress:
        return Progress(state, self.messages, self.commits, lag(self.lake.ends, targets))
