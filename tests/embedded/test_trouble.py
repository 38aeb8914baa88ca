"""A full disk, a broken disk, and the fixtures that users get."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import penstock
from penstock.config import StorageConfig
from penstock.embedded.open_queue import open_queue
from penstock.embedded.queue import Queue
from penstock.errors import NoSpace, SyncFailed
from penstock.runtime import RealDisk, threads
from penstock.runtime.file import RealFile
from penstock.testing import VirtualClock

pytest_plugins = ["penstock.testing.fixtures"]


@pytest.fixture
def clock():
    return VirtualClock()


def test_puts_are_refused_while_the_disk_is_nearly_full_and_gets_go_on(
    tmp_path, clock, monkeypatch
):
    free = [10**9]
    monkeypatch.setattr(RealDisk, "free_bytes", lambda _disk: free[0])
    with penstock.open(tmp_path, clock=clock, min_free_bytes=10**6) as queue:
        queue.put(b"accepted")
        free[0] = 1000
        clock.advance(1)
        for put in (
            lambda: queue.put(b"x"),
            lambda: queue.put_many([b"x"]),
            lambda: queue.put("x"),
        ):
            with pytest.raises(NoSpace):
                put()
        assert queue.get().value == b"accepted"
        assert queue.get() is None
        free[0] = 10**9
        clock.advance(2)
        assert queue.put(b"again") == 2
        assert queue.get().value == b"again"


def test_what_was_accepted_waits_for_room_and_is_not_lost(tmp_path, clock, monkeypatch):
    with penstock.open(tmp_path, clock=clock) as queue:
        assert queue.put(b"accepted") == 1
        real_append = RealFile.append

        def full(file, *_parts):
            raise NoSpace(file.path)

        monkeypatch.setattr(RealFile, "append", full)
        with pytest.raises(NoSpace):
            queue.flush()
        with pytest.raises(NoSpace):
            queue.put(b"refused")
        monkeypatch.setattr(RealFile, "append", real_append)
        clock.advance(2)
        assert queue.put(b"next") == 2
        assert [one.value for one in queue] == [b"accepted", b"next"]


class Room:
    """Appends to files fail while there is none."""

    def __init__(self, monkeypatch):
        self.is_there = True
        real_append = RealFile.append

        def append(file, *parts):
            if not self.has_some():
                raise NoSpace(file.path)
            return real_append(file, *parts)

        monkeypatch.setattr(RealFile, "append", append)

    def has_some(self):
        return self.is_there


@pytest.fixture
def room(monkeypatch):
    return Room(monkeypatch)


PUTS = {
    "small": lambda queue, value: queue.put(value),
    "large": lambda queue, value: queue.put(value.ljust(2000)),
    "keyed": lambda queue, value: queue.put(value, key=b"k"),
    "once": lambda queue, value: queue.put(value, idempotency_key=value),
    "urgent": lambda queue, value: queue.put(value, priority="high"),
    "many": lambda queue, value: queue.put_many([value])[0],
    "many large": lambda queue, value: queue.put_many([value.ljust(2000)])[0],
    "later": lambda queue, value: queue.put(value, delay="1h"),
}


@pytest.mark.parametrize("fsync", ["always", "interval"])
@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_a_put_without_room_is_not_there_and_the_next_one_is_put_at_once(
    tmp_path, clock, room, put, fsync
):
    """Without an fsync the first may return: then it has its id, and stays. No time passes until there is room."""
    with penstock.open(tmp_path, clock=clock, fsync=fsync, auto_ack=False) as queue:
        put(queue, b"0")
        queue.sync()
        room.is_there, stored = False, [b"0"]
        for value in (b"1", b"2", b"3"):
            try:
                put(queue, value)
            except NoSpace:
                continue
            stored.append(value)
            with suppress(NoSpace):
                queue.flush()
        assert stored == [b"0"] or (fsync == "interval" and stored == [b"0", b"1"])
        room.is_there = True
        assert put(queue, b"4") == len(stored) + 1
        stored.append(b"4")
        queue.sync()
        clock.advance(3600)
        assert [one.value.rstrip() for one in queue.get_many(9)] == stored


def test_others_go_on_while_a_put_has_no_room(tmp_path, clock, room):
    with penstock.open(tmp_path, clock=clock, fsync="always") as queue:
        queue.put(b"x")
        room.is_there = False
        with pytest.raises(NoSpace):
            queue.put(b"refused")
        for call in (queue.flush, queue.sync, queue.peek, queue.stats):
            call()
        room.is_there = True
        assert [one.value for one in queue] == [b"x"]


def test_get_many_returns_what_is_in_memory_when_a_later_put_has_no_room(tmp_path, clock, room):
    with penstock.open(tmp_path, clock=clock) as queue:
        queue.put_many([b"first", b"second", b"third"])
        assert queue.get().value == b"first"
        queue.put(b"late")
        room.is_there = False
        assert [one.value for one in queue.get_many(9)] == [b"second", b"third"]
        with pytest.raises(NoSpace):
            queue.get_many(9)
        room.is_there = True
        clock.advance(2)
        assert [one.value for one in queue.get_many(9)] == [b"late"]


def put_with(queue, value, monkeypatch, meanwhile):
    """Put a value; `meanwhile` is called when it has its id and does not wait for its sync yet."""
    point, real_wait = queue._buffer._point, queue._buffer._point.wait

    def wait():
        monkeypatch.setattr(point, "wait", real_wait)
        meanwhile()
        real_wait()

    monkeypatch.setattr(point, "wait", wait)
    return queue.put(value)


def test_a_put_whose_message_another_call_could_not_write_says_so(tmp_path, room, monkeypatch):
    """There is room again before the put comes to its own sync, and its id is another's by then."""
    with penstock.open(tmp_path, fsync="always") as queue:

        def meanwhile():
            room.is_there = False
            queue.flush()
            room.is_there = True
            assert queue.put(b"another") == 1

        with pytest.raises(NoSpace):
            put_with(queue, b"dropped", monkeypatch, meanwhile)
        assert [one.value for one in queue] == [b"another"]


def test_a_put_whose_message_another_call_has_written_returns(tmp_path, room, monkeypatch):
    """The one after it has no room, which is nothing to this one."""
    with penstock.open(tmp_path, fsync="always") as queue:

        def meanwhile():
            queue.flush()
            room.is_there = False
            with pytest.raises(NoSpace):
                queue.put(b"dropped")

        assert put_with(queue, b"written", monkeypatch, meanwhile) == 1
        room.is_there = True
        assert [one.value for one in queue] == [b"written"]


def test_threads_know_of_each_put_whether_it_is_there(tmp_path, room, monkeypatch, effort):
    each = effort(check=40, test=200, torture=5000)
    with penstock.open(tmp_path, fsync="always") as queue:
        dice = random.Random(7)
        monkeypatch.setattr(room, "has_some", lambda: dice.random() < 0.6)

        def put_some(thread):
            found = {}
            for number in range(each):
                value = b"%d-%d" % (thread, number)
                with suppress(NoSpace):
                    if number % 3:
                        found[queue.put(value.ljust(2000 * (number % 2)))] = value
                    else:
                        found[queue.put_many([value, b"second"])[0]] = value
            return found

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(put_some, range(4)))
        monkeypatch.undo()
        values = {one.id: one.value.rstrip() for one in queue}
    values = {number: value for number, value in values.items() if value != b"second"}
    assert values == told[0] | told[1] | told[2] | told[3]
    assert len(values) == sum(map(len, told))
    assert 0 < len(values) < 4 * each


def test_failed_fsync_stops_the_queue_and_not_the_process(tmp_path, monkeypatch, caplog):
    queue = open_queue(tmp_path, fsync="always")
    queue.put(b"x")

    def broken(file):
        raise SyncFailed(file.path, "input/output error")

    monkeypatch.setattr(RealFile, "sync", broken)
    for call in (lambda: queue.put(b"y"), queue.sync, queue.get, lambda: queue.put(b"z", key=b"k")):
        with pytest.raises(SyncFailed):
            call()
    assert "stopped for good" in caplog.text
    monkeypatch.undo()
    queue.close()
    with penstock.open(tmp_path) as queue:
        assert queue.get().value == b"x"


@pytest.mark.parametrize("open_it", [penstock.open, penstock.Broker])
def test_a_close_that_fails_lets_go_of_the_directory(tmp_path, monkeypatch, open_it):
    def fail(*_arguments):
        raise NoSpace("log")

    opened = open_it(tmp_path)
    monkeypatch.setattr(threads, "close_node", fail)
    with pytest.raises(NoSpace):
        opened.close()
    monkeypatch.undo()
    open_it(tmp_path).close()


def test_fixtures_work_together(penstock_clock, penstock_broker, penstock_queue):
    assert isinstance(penstock_queue, Queue)
    penstock_queue.put(b"x")
    penstock_queue.nack(penstock_queue.get(), delay="1h")
    penstock_broker.create_topic("t", partitions=1)
    penstock_broker.publish("t", b"y")
    penstock_broker.nack(penstock_broker.poll("t", "g"), delay="1h")
    penstock_clock.advance("59m")
    assert penstock_queue.get() is None
    assert penstock_broker.poll("t", "g") == []
    penstock_clock.advance("1m")
    assert penstock_queue.get().attempts == 2
    assert penstock_broker.poll("t", "g")[0].attempts == 2


def test_clock_stops_at_everything_that_is_due_on_the_way(penstock_broker, penstock_clock):
    penstock_broker.create_topic("t", partitions=1)
    penstock_broker.publish("t", b"x")
    (message,) = penstock_broker.poll("t", "g", visibility_timeout="30s")
    # The lease ends after 30 s, the backoff of 1 s after 31: one long step has to see both.
    penstock_clock.advance("31s")
    (again,) = penstock_broker.poll("t", "g")
    assert (again.offset, again.attempts) == (message.offset, 2)


def test_importing_the_package_loads_nothing_heavy():
    import subprocess
    import sys

    program = "import sys, penstock; sys.exit(any(m in sys.modules for m in ('numpy', 'msgspec', 'logging')))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_storage_defaults_are_those_of_the_configuration(tmp_path):
    with penstock.open(tmp_path) as queue:
        assert queue._driver.config == StorageConfig()
