"""A driver of `work` that was killed is followed at once on its machine, and one that lives is not."""

import os
import signal
import subprocess
import sys
from threading import Event

import pytest

from penstock.api.members import DescribeMember
from penstock.spark import work

pytestmark = pytest.mark.tier("test")
# A queue without messages needs no Spark.
DRIVER = "import sys; from penstock.spark import work; work(None, sys.argv[2], 'g', lambda rows: rows, url=sys.argv[1])"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def driver(client, topic, tmp_path):
    """Another process that is the driver of `work.g.TOPIC`."""
    words = [sys.executable, "-c", DRIVER, client.url, topic]
    process = subprocess.Popen(words)
    name = f"work.g.{topic}"
    while str(generation(client, name)) not in [
        one.read_text() for one in tmp_path.rglob("*.lock")
    ]:
        assert process.poll() is None
    yield process
    process.kill()
    process.wait()


def generation(client, name):
    standing = client.execute(DescribeMember("g", name))
    return standing.generation if standing is not None else 0


class Stop(Event):
    """Stops a driver that waits for another one."""

    def __init__(self):
        super().__init__()
        self.errors = []

    def told(self, progress):
        self.errors.append(progress.error)
        self.set()


def follow(client, topic):
    stop = Stop()
    words = {"url": client.url, "on_progress": stop.told}
    work(None, topic, "g", lambda rows: rows, once=True, stop=stop, **words)
    return stop.errors


def test_a_driver_that_was_killed_is_not_waited_for(client, topic, driver):
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert generation(client, f"work.g.{topic}"), "its session has not ended"
    assert follow(client, topic) == []


def test_a_driver_that_lives_is(client, topic, driver):
    before = generation(client, f"work.g.{topic}")
    (error,) = follow(client, topic)
    assert "lives" in error
    assert driver.poll() is None
    assert generation(client, f"work.g.{topic}") == before


def test_a_driver_of_another_machine_is_not_put_out(client, topic, driver, monkeypatch, tmp_path):
    before = generation(client, f"work.g.{topic}")
    # What a driver that died here had written, of a membership before.
    lock = next((tmp_path / "penstock" / "drivers").iterdir())
    elsewhere = tmp_path / "elsewhere" / "penstock" / "drivers"
    elsewhere.mkdir(parents=True)
    (elsewhere / lock.name).write_text(str(before + 1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert len(follow(client, topic)) == 1
    assert generation(client, f"work.g.{topic}") == before
