"""A full disk, a broken disk, and the fixtures that users get."""

import pytest

import penstock
from penstock.config import StorageConfig
from penstock.embedded.open_queue import open_queue
from penstock.embedded.queue import Queue
from penstock.errors import NoSpace, SyncFailed
from penstock.runtime import RealDisk
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
