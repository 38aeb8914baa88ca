"""Pipelines without Spark: a topic into a lake, and what is done with the lake afterwards, as ratios to the archive.

Broker and pipeline share the machine. The archive counts from an empty lake to its last commit; the other cases work on
that lake, or on one of many small files. Jobs move the same topic; export and import count the start of their command.
Opening is that of a lake with 10,000 commits, from its last checkpoint.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

from penstock.api.json.pipelines import Kind
from penstock.client import Client

from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_value
from .server_process import broker
from .spark_archive import PARTITIONS, VALUE_BYTES, fill

MESSAGES, MESSAGES_QUICK = 2_000_000, 400_000
TURNS = 3
COMMITS, COMMITS_QUICK = 10_000, 1_000
# A merge has small files to do with if commits are as small.
SMALL_COMMIT_MESSAGES = 40_000


@dataclass(frozen=True, slots=True)
class Rig:
    """A broker with a topic, and folders that are removed when the process ends."""

    url: str
    messages: int
    folder: Path

    def archive(self, name: str, topic: str = "full", **options: Any) -> Path:
        """Archive a topic into a new lake. Returns its directory."""
        from penstock.spark.pipelines.archive import Archive, ArchiveOptions
        from penstock.spark.pipelines.lake import Lake
        from penstock.spark.pipelines.remote import Remote
        from penstock.spark.pipelines.task_runner import LocalTaskRunner

        root = self.folder / name
        shutil.rmtree(root, ignore_errors=True)
        with Lake(root) as lake:
            chosen = ArchiveOptions(topics=(topic,), **options)
            Archive(lake, Remote(self.url), LocalTaskRunner(), chosen).run_once(Event())
        return root


@cache
def rig(*, is_full: bool) -> Rig:
    stack = ExitStack()
    atexit.register(stack.close)
    server = stack.enter_context(broker())
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-pipelines-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    url = f"penstock://127.0.0.1:{server.binary_port}"
    messages = MESSAGES if is_full else MESSAGES_QUICK
    with Client(url) as client:
        fill(client, "full", messages)
    return Rig(url, messages, folder)


def best_s(work: Callable[[], object], turns: int = TURNS) -> float:
    """Returns the seconds of the best turn."""
    found = []
    for _ in range(turns):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


@cache
def archive_rate(*, is_full: bool) -> float:
    own = rig(is_full=is_full)
    return own.messages / best_s(lambda: own.archive("lake"))


def measure_archive(effort: Effort) -> CaseResult:
    is_full = effort is FULL
    return CaseResult(archive_rate(is_full=is_full), settings=settings_of(rig(is_full=is_full)))


def settings_of(own: Rig) -> dict[str, object]:
    return {"messages": own.messages, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS}


def beside_archive(work: Callable[[Rig], float]) -> Callable[[Effort], CaseResult]:
    """Returns the measure of a case whose baseline is the archive; `work` returns its messages a second."""

    def measure(effort: Effort) -> CaseResult:
        is_full = effort is FULL
        before, own = archive_rate(is_full=is_full), rig(is_full=is_full)
        return CaseResult(work(own), before, settings=settings_of(own))

    return measure


def verify_rate(own: Rig, *, is_content_read: bool) -> float:
    from penstock.spark.pipelines.lake import LakeReader
    from penstock.spark.pipelines.verify import verify

    def work() -> None:
        with Client(own.url) as client:
            report = verify(
                LakeReader(own.folder / "lake"), client, is_content_read=is_content_read
            )
        assert report.is_good, report.problems
        assert report.compared == (own.messages if is_content_read else 0), "all were compared"

    return own.messages / best_s(work)


def compact_rate(own: Rig) -> float:
    from penstock.spark.pipelines.lake import Lake
    from penstock.spark.pipelines.merge import compact

    root = own.archive("small", commit_messages_max=SMALL_COMMIT_MESSAGES)

    def work() -> None:
        with Lake(root) as lake:
            assert sum(one.rows for one in compact(lake)) == own.messages, "all were merged"

    return own.messages / best_s(work, turns=1)


def restore_rate(own: Rig) -> float:
    from penstock.spark.pipelines.lake import LakeReader
    from penstock.spark.pipelines.restore import plan_restore, restore

    def work() -> None:
        files = LakeReader(own.folder / "lake")
        with Client(own.url) as client:
            done = restore(client, files, plan_restore(client, files, "full", "restored"))
        assert done == own.messages, "all were restored"

    return own.messages / best_s(work, turns=1)


def moved_rate(own: Rig, kind: Kind) -> float:
    """Returns the rate of a replay or a copy of the topic into one of as many partitions, through `Run`."""
    from penstock.cli.transfer import Run, Selection, Transfer
    from penstock.model import Priority

    with Client(own.url) as client:
        client.create_topic(kind, partitions=PARTITIONS)
        job = Transfer(
            kind=kind,
            name=f"bench-{kind}",
            source="full",
            target=kind,
            selection=Selection(),
            priority=Priority.BACKGROUND if kind == "replay" else None,
        )

        def work() -> None:
            run = Run(client, job, PARTITIONS, lambda _: None)
            run.move(job.ranges(client))
            assert run.messages == own.messages, "all were moved"

        return own.messages / best_s(work, turns=1)


def replay_lake_rate(own: Rig) -> float:
    """Returns the rate of a replay that finds its topic in the lake alone."""
    from penstock.cli.replay_lake import LakeReplay
    from penstock.cli.transfer import Run, Selection
    from penstock.model import Priority
    from penstock.spark.pipelines.lake_messages import LakeMessages

    with Client(own.url) as client:
        fill(client, "gone", own.messages)
        root = own.archive("gone", topic="gone")
        client.delete_topic("gone")
        client.create_topic("replay_lake", partitions=PARTITIONS)
        job = LakeReplay(
            kind="replay",
            name="bench-replay-lake",
            source="gone",
            target="replay_lake",
            selection=Selection(),
            priority=Priority.BACKGROUND,
            lake=LakeMessages(str(root), "gone"),
        )

        def work() -> None:
            ranges = job.ranges(client)
            job.check_files(client, ranges)
            run = Run(client, job, PARTITIONS, lambda _: None)
            run.move(ranges)
            assert run.messages == own.messages, "all were moved"

        return own.messages / best_s(work, turns=1)


def command_rate(own: Rig, *words: str) -> float:
    """Returns the rate of a command in a process of its own, its start included."""
    program = [sys.executable, "-m", "penstock", *words, "--server", own.url, "--json"]

    def work() -> None:
        subprocess.run(program, check=True, capture_output=True)  # noqa: S603 - our own command

    return own.messages / best_s(work, turns=1)


def export_rate(own: Rig) -> float:
    folder = own.folder / "export"
    shutil.rmtree(folder, ignore_errors=True)
    return command_rate(own, "export", "full", "--to", str(folder))


def import_rate(own: Rig) -> float:
    if not (own.folder / "export").exists():
        export_rate(own)
    found = command_rate(own, "import", str(own.folder / "export"), "--topic", "imported")
    with Client(own.url) as client:
        assert client.topic("imported").total_messages == own.messages, "all were imported"
    return found


def measure_open(effort: Effort) -> CaseResult:
    """Opens a lake of many commits, each with a file and a span; the last checkpoint is as old as one can be."""
    from penstock.spark.pipelines.lake import LakeReader

    commits = COMMITS if effort is FULL else COMMITS_QUICK
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-open-"))
    try:
        make_commits(folder, commits)
        value_s = best_s(lambda: LakeReader(folder).state())
        all_s = best_s(lambda: LakeReader(folder).history(), turns=1)
        assert LakeReader(folder).state().commits == commits, "all of them count"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return CaseResult(value_s * 1000, all_s * 1000, settings={"commits": commits})


def make_commits(folder: Path, commits: int) -> None:
    """Write manifests as a lake does, but without making each durable, which takes minutes."""
    from penstock.spark.pipelines import lake as lake_files
    from penstock.spark.pipelines.manifest import (
        FORMAT,
        LakeFile,
        Manifest,
        Span,
        encode_manifest,
        seal,
    )
    from penstock.spark.pipelines.state import LakeState

    with lake_files.Lake(folder) as lake:
        identity, state = lake.identity.lake, LakeState()
    for number in range(commits):
        file = LakeFile(
            path=f"topic=t/date=2026-01-31/p00000-{number:020d}-{number:08d}.parquet",
            staged=f"{number:020d}/0123abcd-0123456789ab/20484-p00000-{number:020d}.parquet",
            rows=1,
            size=1000,
            sha256="0" * 64,
            topic="t",
            log=1,
            first=number,
            last=number,
            folders={"topic": "t", "date": "2026-01-31"},
            ranges={"offset": [number, number]},
        )
        manifest = Manifest(
            format=FORMAT,
            lake=identity,
            commit=number,
            previous=state.head,
            made_at=lake_files.now_text(),
            spans=[Span(topic="t", partition=0, start=number, end=number + 1, rows=1, log=1)],
            files=[file],
        )
        data, own = encode_manifest(manifest)
        (folder / lake_files.commit_path(number)).write_bytes(data)
        state.apply(manifest, own)
        if number + lake_files.CHECKPOINT_COMMITS == commits:
            sealed, _ = seal(state.to_checkpoint(identity))
            name = f"{lake_files.CHECKPOINTS}/{state.commits:020d}.json"
            (folder / name).write_bytes(sealed)


# What is done beside the archive of the same topic, in messages a second. `import` reads what `export` wrote.
BESIDE_ARCHIVE: dict[str, Callable[[Rig], float]] = {
    "verify": lambda own: verify_rate(own, is_content_read=False),
    "verify_content": lambda own: verify_rate(own, is_content_read=True),
    "compact": compact_rate,
    "restore": restore_rate,
    "replay": lambda own: moved_rate(own, "replay"),
    "replay_lake": replay_lake_rate,
    "copy": lambda own: moved_rate(own, "copy"),
    "export": export_rate,
    "import": import_rate,
}
CASES = (
    Case(
        name="archive",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_archive,
        goal=on_value(">=300000"),
    ),
    *(
        Case(
            name=name,
            unit=Unit.MESSAGES_PER_S,
            measure=beside_archive(work),
            baseline="archive",
        )
        for name, work in BESIDE_ARCHIVE.items()
    ),
    Case(
        name="open",
        unit=Unit.MS,
        measure=measure_open,
        baseline="all manifests",
        goal=on_value("<=2000"),
    ),
)
