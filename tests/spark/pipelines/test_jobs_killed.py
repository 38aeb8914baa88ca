"""Every job is killed in the middle and run again: each message once. A process of its own, SIGKILL, no warning."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.api.commits import DescribeCommitName
from penstock.client import Client
from penstock.errors import NotFound
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.verify import verify

from .rigs import NEVER, archived, places, publish, visible

pytestmark = pytest.mark.tier("test")
COUNT = 400
# Rows of one partition take their time, and those of the other are staged meanwhile.
SLOW = "length(sha2(repeat(CAST(value AS STRING), IF(partition = 1, 200000, 1)), 512)) > 0"


# The command line with merges that have pauses between them: a job without a rate would be done before the test looks.
SLOW_MERGES = """
import sys, time
from penstock.cli import main
from penstock.spark.pipelines import merge

write = merge._merge

def slow_write(*words):
    made = write(*words)
    time.sleep(1)
    return made

merge._merge = slow_write
sys.exit(main())
"""


class Scene(NamedTuple):
    """A topic of two partitions, what a job makes of it, and the folder with its lake."""

    client: Client
    topic: str
    target: str
    folder: str

    def words(self, line):
        named = {"LAKE": f"{self.folder}/lake", "DIR": f"{self.folder}/dir", "TOPIC": self.topic}
        named |= {"TARGET": self.target, "JOB": f"{self.topic}-job"}
        return [named.get(one, one) for one in line.split()] + ["--server", self.client.url]


def published(scene: Scene) -> Hashable:
    found = scene.client.topics()
    return scene.client.topic(scene.target).total_messages if scene.target in found else 0


def exported(scene: Scene) -> Hashable:
    return files_in(f"{scene.folder}/.dir.partial")


def merged(scene: Scene) -> Hashable:
    return files_in(f"{scene.folder}/lake/_penstock/staging")


def staged(scene: Scene) -> Hashable:
    try:
        found = scene.client.execute(DescribeCommitName(f"{scene.topic}-job"))
    except NotFound:
        return 0
    return frozenset(one.staging for one in found.stagings if one.participants)


def files_in(folder: str) -> Hashable:
    """The files of a folder that have something in them; those of another attempt are others."""
    found = set()
    for path, _, names in os.walk(folder):
        for name in names:
            # The job may be about to remove it.
            with suppress(FileNotFoundError):
                file = Path(path, name).stat()
                found |= {(file.st_ino, file.st_mtime_ns)} if file.st_size else set()
    return frozenset(found)


class Job(NamedTuple):
    """`line` is run again and again, the last time without `slow`. `progress`: what is seen of it from outside."""

    line: str
    progress: Callable[[Scene], Hashable]
    slow: str = "--rate RATE"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    partitions: int = 2


JOBS = {
    "replay": Job("replay TOPIC --to TARGET", published),
    "replay from a lake": Job("replay TOPIC --to TARGET --lake LAKE", published),
    "copy": Job("copy TOPIC --to TARGET", published),
    "export": Job("export TOPIC --to DIR", exported, after=("import DIR --topic TARGET",)),
    "import": Job("import DIR --topic TARGET", published, before=("export TOPIC --to DIR",)),
    "restore": Job("archive restore LAKE TOPIC --as TARGET", published),
    "compact": Job("archive compact LAKE", merged, slow="", partitions=12),
}


def killed(scene: Scene, words: list[str], progress: Callable[[Scene], Hashable]) -> None:
    """Start a command, and kill it and its children when something new is seen of it."""
    program = ["-c", SLOW_MERGES] if progress is merged else ["-m", "penstock"]
    before = progress(scene)
    process = subprocess.Popen(
        [sys.executable, *program, *words, "--json"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        while (now := progress(scene)) == before or not now:
            assert process.poll() is None, process.stdout.read()
            NEVER.wait(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was killed in the middle"


def made_ready(scene: Scene, job: Job, said) -> None:
    scene.client.create_topic(scene.topic, partitions=job.partitions)
    for first in (0, COUNT // 2):
        publish(scene.client, scene.topic, COUNT // 2, first=first)
        if "LAKE" in job.line:
            archived(f"{scene.folder}/lake", scene.client.url, scene.topic)
    if job.line.split()[0] in {"replay", "copy"}:
        scene.client.create_topic(scene.target, partitions=3)
    for line in job.before:
        said(*scene.words(line))


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_is_killed_and_run_again_is_exact(client, tmp_path, said, effort, name):
    job, turns = JOBS[name], effort(check=1, test=1, torture=12)
    topic = f"killed-{name.replace(' ', '-')}"
    scene = Scene(client, topic, f"{topic}-2", str(tmp_path))
    made_ready(scene, job, said)
    # Each turn gets through one or two portions of `rate` messages, and some are left for the last one.
    slow = job.slow.replace("RATE", str(COUNT // (4 * (turns + 1))))
    for _ in range(turns):
        killed(scene, scene.words(f"{job.line} {slow}"), job.progress)
    for line in (job.line, *job.after):
        said(*scene.words(line))
    if name == "compact":
        report = verify(LakeReader(tmp_path / "lake"), client, is_content_read=True)
        assert (report.problems, report.files, report.rows) == ([], job.partitions, COUNT)
        assert places(tmp_path / "lake") == visible(client, topic)
        assert files_in(f"{tmp_path}/lake/_penstock/staging") == frozenset()
        return
    values = Counter(one.value for _, one in client.read(scene.target))
    assert values == Counter(b"value %d" % number for number in range(COUNT))
    # Nothing of the attempts is left beside it.
    assert {one.name for one in tmp_path.iterdir()} <= {"dir", "lake"}


@pytest.mark.tier("torture")  # A process with a JVM of its own takes half a minute.
@pytest.mark.xdist_group("spark")
def test_a_replay_of_a_query_that_is_killed_leaves_nothing_and_is_exact(
    lasting, client, tmp_path, said, effort
):
    scene = Scene(client, "killed-query", "killed-query-2", str(tmp_path))
    for topic in (scene.topic, scene.target):
        client.create_topic(topic, partitions=2)
    publish(client, scene.topic, 100, partition=0)
    publish(client, scene.topic, 100, partition=1, first=100)
    words = [*scene.words("replay TOPIC --to TARGET --name JOB"), "--sql"]
    query = "SELECT value FROM messages"
    for _ in range(effort(check=1, test=1, torture=5)):
        killed(scene, [*words, f"{query} WHERE {SLOW}"], staged)
        assert client.topic(scene.target).total_messages == 0
    assert json.loads(said(*words, query, "--json"))["messages"] == 200
    assert json.loads(said(*words, query, "--json"))["done_before"] == 200
    values = Counter(one.value for _, one in client.read(scene.target))
    assert values == Counter(b"value %d" % number for number in range(200))
