"""Group commit: few fsyncs, no early answer, no lost waiter, whatever fails."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from time import monotonic_ns

import pytest

from penstock.config import LogConfig
from penstock.errors import DiskFailed, Internal, Refused, SyncFailed, Unavailable
from penstock.log.trim import truncate
from penstock.runtime.commit import SyncPoint
from penstock.testing import VirtualClock

from .rigs import (
    ALWAYS,
    BATCH,
    HEAD,
    INTERVAL,
    MESSAGES,
    NEVER,
    PATIENCE_S,
    SLOW_INTERVAL,
    Build,
    Gate,
    Recorder,
    Rig,
    batches_in,
    building,
    gated,
    raiser,
    reopened,
    share,
    submit,
    until,
)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with building(tmp_path) as make:
        yield make


def test_32_writers_share_slow_syncs(build):
    recorder = Recorder(delay_s=0.002)
    rig = build(ALWAYS, recorder)
    writer, log = rig.writer()
    recorder.syncs = 0
    appended = share(32, 640, lambda _: writer.append(BATCH))
    assert sorted(one.base_offset for one in appended) == list(range(0, 640 * MESSAGES, MESSAGES))
    assert recorder.syncs <= 0.2 * 640
    assert batches_in(reopened(rig, log, writer)) == 640


@pytest.mark.parametrize("step", ["1ms", "1h"])
def test_a_clock_that_a_test_moves_during_a_sync_keeps_no_writer_waiting(build, step):
    """The next writers are expected soon after the sync, by a clock that stands still then."""
    clock = VirtualClock()
    rig, writer, log, gate = gated(build, clock=clock)
    first = rig.append(writer)
    gate.wait_for_one()
    several = [rig.append(writer) for _ in range(3)]
    until(lambda: log.end_offset == 4 * MESSAGES)
    gate.pass_one()
    gate.wait_for_one()
    clock.advance(step)
    gate.open()
    for one in (first, *several):
        one.result(PATIENCE_S)
    writer.append(BATCH)


@pytest.mark.parametrize("delay_s", [0, 0.001])
def test_no_append_returns_before_its_bytes_were_synced(build, delay_s, effort):
    recorder = Recorder(delay_s)
    rig = build(ALWAYS, recorder)
    writer, log = rig.writer()
    path = log.segments[0].path

    def append_and_look(_: int) -> bool:
        end = writer.append(BATCH).next_offset // MESSAGES * HEAD.length
        return recorder.synced[path] >= end

    assert all(share(32, effort(check=400, test=1000, torture=50_000), append_and_look))


def test_rolled_segments_are_synced_before_the_answer_too(build):
    recorder = Recorder()
    rig = build(ALWAYS, recorder)
    writer, log = rig.writer(config=LogConfig(segment_size_bytes=4096))
    for _ in range(50):
        writer.append(BATCH)
        assert recorder.synced[log.segments[-1].path] == log.segments[-1].size
        assert {one.path for one in log.segments} <= recorder.names
    assert len(log.segments) > 3
    assert all(recorder.synced[one.path] == one.size for one in log.segments)


def test_writers_go_on_during_a_sync_and_wait_for_the_next_one(build):
    rig, writer, log, gate = gated(build)
    first = rig.append(writer)
    gate.wait_for_one()
    second = rig.append(writer)
    until(lambda: log.end_offset == 2 * MESSAGES)
    gate.pass_one()
    assert first.result(PATIENCE_S).base_offset == 0
    gate.wait_for_one()
    assert log.durable_end == MESSAGES
    assert not second.done()
    gate.pass_one()
    assert second.result(PATIENCE_S).base_offset == MESSAGES
    assert log.durable_end == 2 * MESSAGES


def test_interval_answers_at_once_and_syncs_later(build):
    synced = Event()

    class Notice(Recorder):
        @contextmanager
        def __call__(self, file) -> Iterator[None]:
            with super().__call__(file):
                yield
            synced.set()

    recorder = Notice()
    rig = build(INTERVAL, recorder)
    writer, log = rig.writer()
    for _ in range(3):  # Not only once.
        synced.clear()
        recorder.syncs = 0
        for _ in range(5):
            writer.append(BATCH)
        assert synced.wait(PATIENCE_S)
        assert recorder.syncs <= 2
    writer.sync()
    assert log.durable_end == log.end_offset == 15 * MESSAGES


def test_interval_leaves_the_disk_alone_until_the_time_has_come(build):
    _, writer, log, gate = gated(build, SLOW_INTERVAL)
    for _ in range(20):
        writer.append(BATCH)
    assert gate.is_quiet()
    assert log.durable_end == 0


@pytest.mark.parametrize("config", [SLOW_INTERVAL, NEVER], ids=["interval", "never"])
def test_sync_waits_for_the_disk_whatever_the_policy(build, config):
    _, writer, log, gate = gated(build, config)
    writer.append(BATCH)
    asked = submit(writer.sync)
    gate.wait_for_one()
    assert not asked.done()
    gate.pass_one()
    asked.result(PATIENCE_S)
    assert log.durable_end == MESSAGES


def test_never_syncs_only_at_the_end(build):
    recorder = Recorder()
    rig = build(NEVER, recorder)
    writer, log = rig.writer(config=LogConfig(segment_size_bytes=10 * HEAD.length))
    recorder.syncs = 0
    for _ in range(11):
        writer.append(BATCH)
    assert (recorder.syncs, log.durable_end) == (0, 0)
    assert batches_in(reopened(rig, log, writer)) == 11


def test_failed_sync_reaches_everybody_and_is_never_tried_again(build, monkeypatch):
    gate = Gate()
    rig = build(ALWAYS, gate)
    (writer, log), (other, other_log) = rig.writer(), rig.writer("other")
    gate.is_shut = True
    tries = []

    def fdatasync(descriptor: int) -> None:
        tries.append(descriptor)
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    waiting = [rig.append(writer)]
    gate.wait_for_one()
    waiting += [rig.append(writer) for _ in range(7)]
    elsewhere = rig.append(other)
    until(lambda: (log.end_offset, other_log.end_offset) == (8 * MESSAGES, MESSAGES))
    gate.open()
    for each in [*waiting, elsewhere]:
        assert isinstance(each.exception(PATIENCE_S), SyncFailed)
    assert [type(error) for error in rig.fatal] == [SyncFailed]
    with pytest.raises(SyncFailed):
        writer.append(BATCH)
    with pytest.raises(SyncFailed):
        other.sync()
    writer.close()
    assert len(tries) == 1
    assert len(rig.fatal) == 1
    assert log.durable_end == 0


def test_failed_write_is_as_final_as_a_failed_sync(build, monkeypatch):
    rig = build(SLOW_INTERVAL)
    writer, log = rig.writer()
    other, _ = rig.writer("other")
    monkeypatch.setattr(os, "pwritev", raiser(OSError(5, os.strerror(5))))
    with pytest.raises(DiskFailed):
        writer.append(BATCH)
    with pytest.raises(DiskFailed):
        other.append(BATCH)
    assert [type(error) for error in rig.fatal] == [DiskFailed]
    assert log.end_offset == 0


class Pair:
    """Something else that can be synced; what a plan does is up to the test."""

    def __init__(self) -> None:
        self.written = self.durable = 0
        self.run: Callable[[], None] = lambda: None
        self.lock = Lock()

    def plan_sync(self) -> "PairPlan":
        assert self.lock.locked()
        return PairPlan(self.written, self.run)

    def synced(self, plan: "PairPlan") -> None:
        assert self.lock.locked()
        self.durable = plan.up_to


def point_of(pair: Pair, rig: Rig) -> SyncPoint:
    point = SyncPoint(pair, rig.committer)
    pair.lock = point.lock
    return point


@dataclass
class PairPlan:
    up_to: int
    run: Callable[[], None]


def write(point: SyncPoint, pair: Pair) -> int:
    with point.lock:
        pair.written += 1
        mine, ticket = pair.written, point.changed()
    ticket.wait()
    assert pair.durable >= mine
    return mine


def test_anything_that_can_be_synced_can_be_committed(build):
    rig, pair = build(ALWAYS), Pair()
    point = point_of(pair, rig)
    written = share(32, 500, lambda _: write(point, pair))
    assert sorted(written) == list(range(1, 501))


def test_nothing_is_locked_while_a_plan_runs(build):
    rig, pair = build(ALWAYS), Pair()
    point = point_of(pair, rig)
    was_locked = []
    pair.run = lambda: was_locked.append(point.lock.locked())
    for _ in range(5):
        write(point, pair)
    assert was_locked == [False] * 5


def test_plan_that_could_not_be_run_is_reported_and_made_again(build):
    rig, pair = build(INTERVAL), Pair()
    point = point_of(pair, rig)
    with point.lock:
        pair.written = 1
        pair.run = raiser(Unavailable("too many open files"))
        ticket = point.draw()
    with pytest.raises(Unavailable):
        ticket.wait()
    done = Event()
    with point.lock:
        pair.run = done.set
    assert done.wait(PATIENCE_S)  # Nobody asked again.
    assert not rig.fatal


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_bug_in_the_committer_lets_nobody_wait_for_ever(build):
    rig, pair = build(ALWAYS), Pair()
    point = point_of(pair, rig)
    pair.run = raiser(ZeroDivisionError("a bug"))
    for _ in range(2):
        with pytest.raises(Internal):
            write(point, pair)
    rig.committer._thread.join(PATIENCE_S)
    assert [type(error) for error in rig.fatal] == [ZeroDivisionError]


def test_close_lets_those_who_wait_finish(build):
    rig, writer, log, gate = gated(build)
    waiting = [rig.append(writer)]
    gate.wait_for_one()
    waiting += [rig.append(writer) for _ in range(7)]
    until(lambda: log.end_offset == 8 * MESSAGES)
    closed = submit(writer.close)
    assert gate.is_quiet()
    gate.open()
    closed.result(PATIENCE_S)
    assert {each.result(PATIENCE_S).base_offset for each in waiting} == set(range(0, 24, MESSAGES))
    with pytest.raises(Refused):
        writer.append(BATCH)
    assert batches_in(reopened(rig, log, writer)) == 8


def test_closed_committer_has_synced_everything_and_refuses(build):
    rig = build(SLOW_INTERVAL)
    writer, log = rig.writer()
    writer.append(BATCH)
    rig.committer.close()
    assert log.durable_end == MESSAGES
    with pytest.raises(Refused):
        writer.append(BATCH)
    writer.close()


def test_maintenance_never_meets_a_sync(build):
    rig, writer, log, gate = gated(build)
    entered, leave = Event(), Event()

    def maintain() -> None:
        with writer.maintenance():
            entered.set()
            assert leave.wait(PATIENCE_S)

    first = rig.append(writer)
    gate.wait_for_one()
    maintaining = submit(maintain)
    assert not entered.wait(0.05)
    gate.pass_one()
    first.result(PATIENCE_S)
    assert entered.wait(PATIENCE_S)
    second = rig.append(writer)
    assert gate.is_quiet()
    assert log.end_offset == MESSAGES
    leave.set()
    maintaining.result(PATIENCE_S)
    gate.wait_for_one()
    gate.open()
    assert second.result(PATIENCE_S).base_offset == MESSAGES


def test_truncation_leaves_no_waiter_behind(build):
    rig, writer, log, gate = gated(build)
    waiting = [rig.append(writer)]
    gate.wait_for_one()
    waiting += [rig.append(writer) for _ in range(3)]
    until(lambda: log.end_offset == 4 * MESSAGES)

    def cut() -> None:
        with writer.maintenance() as held:
            truncate(held, MESSAGES)

    cutting = submit(cut)
    assert gate.is_quiet()
    gate.open()
    cutting.result(PATIENCE_S)
    assert all(each.result(PATIENCE_S) for each in waiting)
    assert writer.append(BATCH).base_offset == MESSAGES


def test_interrupted_sync_of_a_maintainer_leaves_nobody_waiting(build):
    rig, pair = build(ALWAYS), Pair()
    point = point_of(pair, rig)
    running, release, runs = Event(), Event(), []

    def run() -> None:
        runs.append(None)
        if len(runs) == 1:
            running.set()
            assert release.wait(PATIENCE_S)
        elif len(runs) == 2:
            raise KeyboardInterrupt

    pair.run = run
    first = submit(write, point, pair)
    assert running.wait(PATIENCE_S)
    second = submit(write, point, pair)
    until(lambda: pair.written == 2)
    maintainer = submit(enter, point)
    until(lambda: bool(point._maintainers))
    release.set()
    assert isinstance(maintainer.exception(PATIENCE_S), KeyboardInterrupt)
    assert {first.result(PATIENCE_S), second.result(PATIENCE_S)} == {1, 2}


def enter(point: SyncPoint) -> None:
    with point.maintenance():
        pass


class Due:
    """What is due a moment after it was looked at."""

    def __init__(self) -> None:
        self.done, self._at_ns = Event(), 0

    def due_ns(self) -> int:
        self._at_ns = self._at_ns or monotonic_ns() + 20_000
        return self._at_ns

    def commit(self) -> None:
        self.done.set()


def test_a_moment_that_is_over_before_the_wait_begins_is_not_waited_for_for_ever(build, effort):
    committer, interval = build(ALWAYS).committer, sys.getswitchinterval()
    is_over = Event()

    def distract() -> None:
        while not is_over.is_set():
            pass

    busy = [submit(distract) for _ in range(2)]
    # As often as it gets, so that time is up at every step of a wait.
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(effort(check=500, test=1_500, torture=100_000)):
            due = Due()
            committer.ask(due)
            assert due.done.wait(PATIENCE_S)
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
    for one in busy:
        one.result(PATIENCE_S)
