"""System calls that fail in a real process: it stops or it refuses, and never says what is not so."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.fatal import EXIT_CODE

from .victims import Call, Victims, check_survivor, outcome, points_in, require_strace, write_before
from .writer import Job

APPENDS = 30
WRITES = "pwritev,pwritev2"
SYNCS = "fsync,fdatasync"


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    require_strace()
    server = Victims()
    yield server
    server.close()


def job_in(tmp_path, name: str) -> Job:
    return Job(str(tmp_path / name), str(tmp_path / f"{name}.reports"), APPENDS, retain_every=10)


def points_of(victims: Victims, tmp_path, calls: str, count: int) -> list[tuple[str, int]]:
    """Places of these calls in a whole run, evenly spread, the first and the last among them."""
    write_before(tmp_path / "whole", 3)
    points = points_in(victims.run(job_in(tmp_path, "whole"), "-e", f"trace={calls}").calls)
    count = min(count, len(points))
    return [points[number * (len(points) - 1) // (count - 1)] for number in range(count)]


@pytest.mark.parametrize("calls", [SYNCS, WRITES])
def test_failed_disk_ends_the_process_and_nothing_is_answered_any_more(
    victims, tmp_path, calls, effort
):
    reached = 0
    points = points_of(victims, tmp_path, calls, effort(check=4, test=8, torture=1000))
    for number, (name, count) in enumerate(points):
        job = job_in(tmp_path, f"data{number}")
        promised = write_before(tmp_path / f"data{number}", 3)
        inject = f"inject={name}:error=EIO:when={count}"
        done = victims.run(job, "-e", f"trace=write,exit_group,{SYNCS},{WRITES}", "-e", inject)
        # An error while the log is being opened or closed is the caller's to report.
        assert done.code in {EXIT_CODE, 1, 0}
        if done.code == EXIT_CODE:
            reached += 1
            assert_stopped_at_once(done.calls)
        check_survivor(tmp_path / f"data{number}", promised | done.acks, extras_max=1)
    assert reached >= len(points) // 2


def assert_stopped_at_once(calls: list[Call]) -> None:
    injected = next(number for number, call in enumerate(calls) if call.is_injected)
    after = calls[injected + 1 :]
    assert not [call for call in after if '"ack' in call.rest]
    assert not [call for call in after if call.name in SYNCS.split(",")], "it tried again"
    exits = [call.time_s for call in after if call.name == "exit_group"]
    assert exits[0] - calls[injected].time_s < 1


def test_full_disk_is_refused_and_all_is_well_afterwards(victims, tmp_path, effort):
    refused = 0
    points = points_of(victims, tmp_path, WRITES, effort(check=4, test=8, torture=1000))
    for number, (name, count) in enumerate(points):
        job = job_in(tmp_path, f"data{number}")
        promised = write_before(tmp_path / f"data{number}", 3)
        inject = f"inject={name}:error=ENOSPC:when={count}..{count + 2}"
        done = victims.run(job, "-e", f"trace={name}", "-e", inject)
        refused += done.refused
        if done.code:  # There was no room to open the log.
            assert not done.acks
            Path(job.reports).unlink(missing_ok=True)
            done = victims.run(job)
        assert done.code == 0
        assert set(done.acks) == set(range(APPENDS))
        check_survivor(tmp_path / f"data{number}", promised | done.acks, extras_max=0)
    assert refused >= len(points) // 2


def test_interrupted_calls_are_not_noticed(victims, tmp_path):
    job = job_in(tmp_path, "data")
    inject = f"inject={WRITES},{SYNCS}:error=EINTR:when=2+3"
    done = victims.run(job, "-e", f"trace={WRITES},{SYNCS}", "-e", inject)
    assert done.code == 0
    assert sum(call.is_injected for call in done.calls) > APPENDS // 3
    check_survivor(tmp_path / "data", done.acks, extras_max=0)


@pytest.mark.parametrize("limit", [1500, 2000, 2345, 3001, 4096])
def test_short_write_is_taken_back(victims, tmp_path, limit):
    """A limit on the size of files makes the system write a part, and refuse the rest at the next call."""
    job = job_in(tmp_path, "data")
    pid = victims.prepare(job)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
    victims.start()
    stopped = outcome(job, victims.code(pid), [])
    assert stopped.code == EXIT_CODE
    assert stopped.acks
    check_survivor(tmp_path / "data", stopped.acks, extras_max=0)
