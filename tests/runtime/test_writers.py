"""A log with many writers: a full disk, an impatient user."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, main_thread

import pytest

from bench.log_writer import LogWriter
from penstock.config import LogConfig
from penstock.errors import NoSpace
from penstock.log import open_log

from .rigs import (
    ALWAYS,
    BATCH,
    MESSAGES,
    Build,
    batches_in,
    building,
    gated,
    until,
)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with building(tmp_path) as make:
        yield make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    root = tmp_path / "small"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(root)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("a full disk cannot be tried: there is no mount command")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a full disk cannot be tried: {error.stderr.strip()}")
    yield root
    subprocess.run(["umount", "--lazy", str(root)], check=True)


def is_accepted(writer: LogWriter) -> bool:
    try:
        writer.append(BATCH)
    except NoSpace:
        return False
    return True


def fill(writer: LogWriter) -> int:
    """Append until refused; how many were accepted."""
    accepted = 0
    while is_accepted(writer):
        accepted += 1
        assert accepted < 100_000
    return accepted


def test_full_disk_refuses_keeps_what_it_has_and_resumes(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    with building(small_disk) as build:
        rig = build(ALWAYS)
        writer, log = rig.writer(config=LogConfig(segment_size_bytes=100_000))
        accepted = fill(writer)
        assert accepted > 100
        for _ in range(20):
            assert not is_accepted(writer)
        assert log.end_offset == log.durable_end == accepted * MESSAGES
        assert batches_in(log) == accepted
        ballast.unlink()
        until(lambda: is_accepted(writer))
        more = 1 + fill(writer)
        assert more > 100
        assert batches_in(log) == accepted + more
        assert not rig.fatal
        writer.close()  # Without a checkpoint, for which there is no room.
        found, recovery = open_log(rig.disk, "log", log_id=log.log_id, config=log.config)
        assert (batches_in(found), recovery.cut_bytes) == (accepted + more, 0)


def test_interrupt_while_waiting_leaves_the_batch_to_be_synced(build):
    _, writer, log, gate = gated(build)
    raised = Event()

    def raise_once(_signal: int, _frame: object) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        gate.wait_for_one()
        # A signal that comes just before the system call is noticed only after it: users press twice as well.
        while not raised.wait(0.01):
            signal.pthread_kill(main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, raise_once)
    interrupting = Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        writer.append(BATCH)
    interrupting.join()
    signal.signal(signal.SIGINT, before)
    gate.open()
    assert writer.append(BATCH).base_offset == MESSAGES
    assert log.durable_end == 2 * MESSAGES
