"""A sync in the thread of one who waits for it: for everybody, handed on, and no less safe than the committer's."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread, current_thread
from time import sleep

import pytest

from penstock.config import StorageConfig
from penstock.errors import Internal, Refused, SyncFailed, Unavailable
from penstock.runtime import commit
from penstock.runtime.commit import SyncPoint
from penstock.runtime.tickets import Ticket

from .rigs import ALWAYS, PATIENCE_S, SLOW_INTERVAL, Build, building, raiser, share, submit, until


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with building(tmp_path) as make:
        yield make


class Yielding:
    """A lock that lets others run before it is released, where a wake-up could get lost."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.acquire = self._lock.acquire
        self.before_release: Callable[[], None] = lambda: sleep(0)

    def release(self) -> None:
        self.before_release()
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Desk:
    """What writers write is in memory until a plan is made, as puts are; `runners` are the threads that synced."""

    def __init__(self, build: Build, config: StorageConfig = ALWAYS) -> None:
        self.rig = build(config)
        self.pending = self.planned = self.durable = 0
        self.counting = Lock()
        self.before_run: Callable[[], None] = lambda: None
        self.runners: list[Thread] = []
        self.point: SyncPoint[Desk] = SyncPoint(self, self.rig.committer)
        self.place = self.point._planning = Yielding()

    def plan_sync(self) -> "Desk":
        assert self.point.lock.locked()
        self.planned = self.pending
        sleep(0)  # Whoever comes now is not covered.
        return self

    def run(self) -> None:
        self.runners.append(current_thread())
        self.before_run()

    def synced(self, _plan: "Desk") -> None:
        assert self.point.lock.locked()
        self.durable = self.planned

    def expect(self, count: int) -> None:
        """As after a sync for so many, and one that took so long that whoever comes first waits for all of them."""
        self.point._expected = count
        self.point._synced_in_ns = 2 * PATIENCE_S * 1_000_000_000

    def arrived(self) -> int:
        """How many wait for the sync to come."""
        return len(self.point._ticket.arrived)

    def led_by_committer(self) -> list[bool]:
        """Of each sync, whether the committer's own thread did it."""
        return [one.name == "penstock-committer" for one in self.runners]

    def is_free(self) -> bool:
        """Whether no thread has the turn."""
        if not self.place.acquire(blocking=False):
            return False
        self.place.release()
        return True

    def put(self) -> int:
        with self.counting:
            self.pending += 1
            mine = self.pending
        self.point.wait()
        assert self.durable >= mine
        return mine

    def write(self) -> None:
        with self.point.lock:
            self.pending += 1
            ticket = self.point.changed(is_to_wait=True)
        assert ticket is not None
        self.point.wait(ticket)


def test_a_thread_syncs_for_itself_and_the_main_thread_leaves_it_to_the_committer(build):
    desk = Desk(build)
    submit(desk.put).result(PATIENCE_S)
    submit(desk.write).result(PATIENCE_S)
    assert not any(desk.led_by_committer())
    desk.put()
    desk.write()
    assert desk.led_by_committer()[2:] == [True] * 2


def test_nobody_returns_before_it_is_durable_whoever_leads(build, effort):
    desk = Desk(build)
    calls = effort(check=2_000, test=4_000, torture=500_000)
    assert sorted(share(8, calls, lambda _: desk.put())) == list(range(1, calls + 1))
    assert len(desk.runners) < calls


def test_those_who_came_during_a_sync_are_led_by_one_of_them(build):
    desk, gate, started = Desk(build), Event(), Event()

    def hold() -> None:
        started.set()
        assert gate.wait(PATIENCE_S)

    desk.before_run = hold
    first = submit(desk.put)
    assert started.wait(PATIENCE_S)
    others = [submit(desk.put) for _ in range(5)]
    until(lambda: desk.arrived() == 5)
    gate.set()
    assert sorted(one.result(PATIENCE_S) for one in (first, *others)) == [1, 2, 3, 4, 5, 6]
    assert len(desk.runners) == 2
    assert not any(desk.led_by_committer())


def test_one_that_waits_alone_behind_a_sync_is_synced_too(build):
    """It is taken out of the queue to lead, and nothing else says that there is something to do."""
    desk, gate, started = Desk(build, SLOW_INTERVAL), Event(), Event()

    def hold() -> None:
        started.set()
        assert gate.wait(PATIENCE_S)

    desk.before_run = hold
    first = submit(desk.put)
    assert started.wait(PATIENCE_S)
    second = submit(desk.put)
    until(lambda: desk.arrived() == 1)
    gate.set()
    assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == [1, 2]


def test_one_that_finds_the_place_taken_just_before_it_is_free_is_not_forgotten(build):
    desk, late = Desk(build, SLOW_INTERVAL), []

    def come_late() -> None:
        desk.place.before_release = lambda: None
        late.append(submit(desk.put))
        until(lambda: desk.arrived() == 1)

    desk.place.before_release = come_late
    assert submit(desk.put).result(PATIENCE_S) == 1
    assert late[0].result(PATIENCE_S) == 2


def test_mixed_waiters_and_maintenance_leave_nobody_behind(build, effort):
    desk = Desk(build)
    calls = effort(check=400, test=1_000, torture=50_000)

    def act(number: int) -> None:
        if number % 50 == 0:
            with desk.point.maintenance():
                assert not desk.point._planning.acquire(blocking=False)
        elif number % 3:
            desk.put()
        else:
            with desk.point.lock:
                ticket = desk.point.draw()
            ticket.wait()

    share(8, calls, act)
    assert not desk.point._covered
    until(lambda: desk.point._planning.acquire(blocking=False))
    desk.point._planning.release()


def test_a_sync_that_could_not_be_done_is_reported_to_all_whom_it_was_for(build):
    desk = Desk(build)
    desk.before_run = raiser(Unavailable("too many open files"))
    for call in (desk.put, desk.write):
        with pytest.raises(Unavailable):
            submit(call).result(PATIENCE_S)
    desk.before_run = lambda: None
    assert submit(desk.put).result(PATIENCE_S) == 3
    assert not desk.rig.fatal


@pytest.mark.parametrize("error", [SyncFailed("log", "no answer"), ZeroDivisionError("a bug")])
def test_a_leader_that_fails_ends_everything(build, error):
    desk, gate, started = Desk(build), Event(), Event()

    def fail() -> None:
        # A second try would succeed, and mean nothing.
        desk.before_run = lambda: None
        started.set()
        assert gate.wait(PATIENCE_S)
        raise error

    desk.before_run = fail
    leader = submit(desk.put)
    assert started.wait(PATIENCE_S)
    others = [submit(desk.put) for _ in range(3)]
    until(lambda: desk.arrived() == 3)
    gate.set()
    # The thread that met it raises it; to the others a bug is an error of ours.
    told = SyncFailed if isinstance(error, SyncFailed) else Internal
    for writer, kind in ((leader, type(error)), *((one, told) for one in others)):
        with pytest.raises(kind):
            writer.result(PATIENCE_S)
    with pytest.raises(told):
        submit(desk.put).result(PATIENCE_S)
    assert desk.rig.fatal == [error]
    assert len(desk.runners) == 1


def test_those_who_wait_for_a_sync_that_hangs_hear_of_a_failure_elsewhere(build):
    desk, gate, error = Desk(build), Event(), SyncFailed("log", "no answer")
    desk.expect(2)
    desk.before_run = lambda: gate.wait(2 * PATIENCE_S)
    puts = [submit(desk.put) for _ in range(2)]
    until(lambda: desk.runners)
    desk.rig.committer.fail(error)
    until(lambda: any(one.done() for one in puts))
    gate.set()
    for one in puts:
        with pytest.raises(SyncFailed):
            one.result(PATIENCE_S)


def test_who_maintains_comes_before_those_who_came_during_a_sync_and_syncs_for_them(build):
    desk, gate, maintainers = Desk(build), Event(), []

    def maintain() -> None:
        maintainers.append(current_thread())
        with desk.point.maintenance():
            pass

    desk.before_run = lambda: gate.wait(PATIENCE_S)
    first = submit(desk.put)
    until(lambda: desk.runners)
    second = submit(desk.put)
    until(lambda: desk.arrived() == 1)
    maintaining = submit(maintain)
    until(lambda: desk.point._maintainers)
    gate.set()
    for one in (first, second, maintaining):
        one.result(PATIENCE_S)
    assert desk.runners[1:] == maintainers


def test_who_maintains_lets_those_go_whom_another_could_not(build):
    desk = Desk(build)
    desk.rig.committer.ask = lambda _point: None
    with desk.point.lock:
        ticket = desk.point.draw()
    desk.before_run = raiser(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), desk.point.maintenance():
        pass
    assert not ticket.is_settled
    desk.before_run = lambda: None
    with desk.point.maintenance():
        ticket.wait()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_PATIENCE_NS_MAX", 2 * PATIENCE_S * 1_000_000_000)


@pytest.mark.usefixtures("patient")
def test_the_first_to_come_syncs_as_soon_as_the_last_is_there(build):
    desk, leaders = Desk(build), []
    desk.expect(3)

    def first() -> int:
        leaders.append(current_thread())
        return desk.put()

    others = [submit(first)]
    for count in (1, 2):
        until(lambda count=count: desk.arrived() == count)
        assert not desk.runners
        others.append(submit(desk.put))
    assert sorted(one.result(PATIENCE_S) for one in others) == [1, 2, 3]
    assert desk.runners == leaders
    until(desk.is_free)


def test_one_whom_the_others_leave_alone_syncs_in_the_end(build):
    desk = Desk(build)
    desk.point._expected, desk.point._synced_in_ns = 2, 1_000
    assert submit(desk.put).result(PATIENCE_S) == 1
    assert not any(desk.led_by_committer())
    assert desk.is_free()


@pytest.mark.usefixtures("patient")
def test_one_who_cannot_lead_may_be_the_last_of_those_who_are_waited_for(build):
    desk = Desk(build)
    desk.expect(2)
    first = submit(desk.put)
    until(lambda: desk.arrived() == 1)
    with desk.point.lock:
        ticket = desk.point.draw()
    assert first.result(PATIENCE_S) == 1
    ticket.wait()
    assert not any(desk.led_by_committer())
    until(desk.is_free)


@pytest.mark.usefixtures("patient")
def test_a_failure_ends_the_wait_for_others_and_leaves_the_place_free(build):
    desk, error = Desk(build), SyncFailed("log", "no answer")
    desk.expect(3)
    first = submit(desk.put)
    until(lambda: desk.arrived() == 1)
    desk.rig.committer.fail(error)
    for one in (first, submit(desk.put)):
        with pytest.raises(SyncFailed):
            one.result(PATIENCE_S)
    until(desk.is_free)
    assert not desk.point._covered
    assert not desk.runners


@pytest.mark.usefixtures("patient")
def test_one_that_is_covered_before_it_gets_the_turn_gives_it_back(build):
    desk = Desk(build)

    def late(*, blocking: bool) -> bool:
        desk.place.acquire = take = desk.place._lock.acquire
        assert submit(desk.put).result(PATIENCE_S) == 2
        desk.expect(9)
        return take(blocking=blocking)

    desk.place.acquire = late
    assert submit(desk.put).result(PATIENCE_S) == 1
    assert desk.is_free()


@pytest.mark.parametrize("error", [SyncFailed("log", "no answer"), Refused("it is closed")])
def test_one_that_is_called_to_lead_when_all_is_over_does_not_try_for_ever(
    build, monkeypatch, error
):
    desk, gate, started = Desk(build), Event(), Event()
    call = Ticket.call_leader

    def call_too_late(ticket: Ticket) -> bool:
        desk.rig.committer.failure = error
        return call(ticket)

    def hold() -> None:
        started.set()
        assert gate.wait(PATIENCE_S)

    monkeypatch.setattr(Ticket, "call_leader", call_too_late)
    desk.before_run = hold
    first = submit(desk.put)
    assert started.wait(PATIENCE_S)
    second = submit(desk.put)
    until(lambda: desk.arrived() == 1)
    gate.set()
    with suppress(SyncFailed, Refused):
        first.result(PATIENCE_S)
    with pytest.raises(type(error)):
        second.result(PATIENCE_S)
    assert len(desk.runners) == 1
    assert desk.is_free()


def test_who_comes_after_the_end_is_refused_and_leaves_nothing_to_do(build):
    desk = Desk(build)
    with desk.point.maintenance():
        desk.point.close()
    with pytest.raises(Refused):
        submit(desk.put).result(PATIENCE_S)
    with pytest.raises(Refused):
        submit(desk.put).result(PATIENCE_S)
    asked: list[None] = []
    desk.point._ask = lambda: asked.append(None)
    desk.point.commit()
    assert not desk.runners
    assert not asked


def test_another_maintenance_after_the_end_lays_out_nothing_that_would_be_waited_for(build):
    desk = Desk(build)
    with desk.point.maintenance():
        early = submit(desk.put)
        until(desk.arrived)
        desk.point.close()
    for _ in range(2):
        with desk.point.maintenance():
            pass
        for one in (early, submit(desk.put)):
            with pytest.raises(Refused):
                one.result(PATIENCE_S)
    assert not desk.runners


def test_a_failure_just_before_a_maintainer_lays_out_a_ticket_reaches_who_takes_that(build):
    desk, error, late = Desk(build), SyncFailed("log", "no answer"), []

    def fail() -> None:
        # As from another thread, between the look at the failure and the new ticket.
        desk.rig.committer.failure = error
        late.append(submit(desk.put))
        until(desk.arrived)

    desk.rig.committer.ask = lambda _point: None
    with desk.point.lock:
        ticket = desk.point.draw()
    desk.before_run = fail
    with desk.point.maintenance():
        pass
    for wait in (ticket.wait, lambda: late[0].result(PATIENCE_S)):
        with pytest.raises(SyncFailed):
            wait()


def test_a_maintainer_that_fails_ends_everything_before_anybody_else_can_try(build):
    desk, error, failures = Desk(build), SyncFailed("log", "no answer"), []
    desk.rig.committer.ask = lambda _point: None
    fail = desk.rig.committer.fail

    def failing(error: BaseException) -> None:
        failures.append((error, desk.point.lock.locked()))
        fail(error)

    desk.rig.committer.fail = failing
    with desk.point.lock:
        desk.point.draw()
    desk.before_run = raiser(error)
    with pytest.raises(SyncFailed), desk.point.maintenance():
        pass
    assert failures == [(error, True)]
