"""Real processes, killed at system calls and at any time, on a real disk: nothing acknowledged is lost."""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import AlreadyOpen
from penstock.runtime import RealDisk

from .victims import (
    STORAGE_CALLS,
    Victims,
    check_survivor,
    outcome,
    points_in,
    require_strace,
    wait_for_reports,
    write_before,
)
from .writer import STORAGE, Job

APPENDS = 100
BATCHES_BEFORE = 8
SHARDS = 4
KILLED = -signal.SIGKILL
ENDLESS = 100_000


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    server = Victims()
    yield server
    server.close()


def test_writer_that_is_left_alone_keeps_its_promises(victims, tmp_path):
    promised = write_before(tmp_path / "data", BATCHES_BEFORE)
    job = Job(str(tmp_path / "data"), str(tmp_path / "reports"), APPENDS, retain_every=10)
    done = victims.run(job)
    assert done.code == 0
    assert set(done.acks) == set(range(APPENDS))
    recovery = check_survivor(tmp_path / "data", promised | done.acks, extras_max=0)
    assert recovery.is_clean


@pytest.mark.parametrize("shard", range(SHARDS))
def test_kill_at_any_storage_call_loses_nothing(victims, tmp_path, shard, effort):
    require_strace()
    before = tmp_path / "before"
    promised = write_before(before, BATCHES_BEFORE)
    points = chosen(victims, before, tmp_path, effort(check=12, test=80, torture=5000))[
        shard::SHARDS
    ]
    survived = 0
    for number, (name, count) in enumerate(points):
        root = tmp_path / f"data{number}"
        shutil.copytree(before, root)
        job = Job(str(root), str(tmp_path / f"reports{number}"), APPENDS, retain_every=10)
        inject = f"inject={name}:signal=SIGKILL:when={count}"
        done = victims.run(job, "-e", f"trace={name}", "-e", inject)
        survived += done.code == 0
        assert done.code in {KILLED, 0}
        check_survivor(root, promised | done.acks, extras_max=1)
        shutil.rmtree(root)
    # The number of calls varies a little with who comes first; most points have to be reached all the same.
    assert survived <= len(points) * 0.1 + 1


def chosen(victims: Victims, before: Path, tmp_path: Path, count: int) -> list[tuple[str, int]]:
    """So many of all points, evenly spread; all of them several times if that is not enough."""
    root = tmp_path / "whole"
    shutil.copytree(before, root)
    job = Job(str(root), str(tmp_path / "whole.reports"), APPENDS, retain_every=10)
    points = points_in(victims.run(job, "-e", f"trace={STORAGE_CALLS}").calls)
    assert len(points) > 300
    return [points[number * len(points) // count % len(points)] for number in range(count)]


@pytest.mark.parametrize("shard", range(2))
def test_kill_at_any_time_under_load_loses_nothing(victims, tmp_path, shard, effort, tier):
    entropy = random.Random(shard) if tier != "torture" else random.SystemRandom()
    for number in range(effort(check=3, test=10, torture=1000)):
        root, threads = tmp_path / f"data{number}", entropy.choice([1, 3, 16])
        job = Job(str(root), str(tmp_path / f"reports{number}"), ENDLESS, threads, retain_every=40)
        pid = victims.prepare(job)
        victims.start()
        wait_for_reports(job, entropy.choice([0, 1, entropy.randrange(150)]))
        Event().wait(entropy.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        killed = outcome(job, victims.code(pid), [])
        assert killed.code == KILLED
        check_survivor(root, killed.acks, extras_max=threads)
        shutil.rmtree(root)


def test_second_process_is_refused_until_the_first_is_gone(victims, tmp_path):
    root = tmp_path / "data"
    job = Job(str(root), str(tmp_path / "reports"), ENDLESS)
    pid = victims.prepare(job)
    victims.start()
    wait_for_reports(job, 1)
    with pytest.raises(AlreadyOpen, match=f"process {pid}"):
        RealDisk(root, STORAGE)
    os.kill(pid, signal.SIGKILL)
    first = outcome(job, victims.code(pid), [])
    second = victims.run(Job(str(root), str(tmp_path / "more"), 0))
    assert second.code == 0
    check_survivor(root, first.acks, extras_max=1)
