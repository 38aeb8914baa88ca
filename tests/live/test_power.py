"""The power goes while real processes write to a real file system: what was acknowledged is there afterwards.

ext4 in a file, and its own request to shut down at once, which throws away everything that was not synced.
"""

import fcntl
import os
import random
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from penstock.runtime.fatal import EXIT_CODE

from .victims import Victims, check_survivor, outcome, wait_for_reports
from .writer import Job

SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
ENDLESS = 100_000


class PowerCut:
    """A file system that can lose its power. Its content is what reached the disk."""

    def __init__(self, tmp_path: Path) -> None:
        self.image, self.root = tmp_path / "image", tmp_path / "mounted"
        self.root.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 << 20)

    def make(self) -> None:
        run("mkfs.ext4", "-q", "-F", self.image)
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", self.image, self.root)

    def unmount(self) -> None:
        run("umount", self.root)

    def cut(self) -> None:
        root = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(root)

    def come_back(self) -> None:
        self.unmount()
        self.mount()


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Nothing moves in the process. A sync that runs into the cut may return as if all were well."""
    os.kill(pid, signal.SIGSTOP)
    while not all(is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        Event().wait(0.001)
    yield
    os.kill(pid, signal.SIGCONT)


def is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TZ"


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def power(tmp_path: Path) -> Iterator[PowerCut]:
    found = PowerCut(tmp_path)
    try:
        found.make()
        found.cut()
    except FileNotFoundError as error:
        pytest.skip(f"the power cannot be cut: {error.filename} is not installed")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the power cannot be cut: {error.stderr.strip()}")
    except OSError as error:
        found.unmount()
        pytest.skip(f"the power cannot be cut: {error.strerror}")
    found.unmount()
    yield found
    if found.root.is_mount():  # The test failed half way.
        found.unmount()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    server = Victims()
    yield server
    server.close()


def test_power_cut_takes_nothing_that_was_acknowledged(victims, power, tmp_path, effort, tier):
    entropy = random.Random(1) if tier != "torture" else random.SystemRandom()
    acknowledged = 0
    for number in range(effort(check=3, test=10, torture=500)):
        power.make()
        threads = entropy.choice([1, 2, 8])
        reports = str(tmp_path / f"reports{number}")
        job = Job(str(power.root / "data"), reports, ENDLESS, threads, retain_every=40)
        pid = victims.prepare(job)
        victims.start()
        wait_for_reports(job, entropy.choice([0, 1, entropy.randrange(10, 150)]))
        Event().wait(entropy.uniform(0, 0.02))
        with held(pid):
            power.cut()
        stopped = outcome(job, victims.code(pid), [])
        # Still opening its log, it has not promised anything; afterwards it has to stop by itself.
        assert stopped.code == EXIT_CODE or not stopped.acks
        power.come_back()
        check_survivor(power.root / "data", stopped.acks, extras_max=threads)
        power.unmount()
        acknowledged += len(stopped.acks)
    assert acknowledged > 10
