"""A log with many writers: a full disk, an impatient user, a process that has to stop."""

import linecache
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, main_thread

import pytest

from penstock.config import LogConfig
from penstock.errors import NoSpace, Unavailable
from penstock.log import open_log
from penstock.runtime.fatal import EXIT_CODE
from penstock.runtime.writer import LogWriter

from .rigs import (
    ALWAYS,
    BATCH,
    HEAD,
    MESSAGES,
    NEVER,
    PATIENCE_S,
    Build,
    Recorder,
    batches_in,
    building,
    gated,
    reopened,
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


def test_guard_refuses_while_there_is_still_room_and_resumes(build, monkeypatch):
    rig = build(NEVER)
    room, log = 10_000, None
    monkeypatch.setattr(rig.disk, "free_bytes", lambda: room - (log.size if log else 0))
    writer, log = rig.writer(min_free_bytes=8_000)
    accepted = fill(writer)
    assert accepted == 2_000 // HEAD.length
    assert log.end_offset == accepted * MESSAGES
    room = 1 << 30
    until(lambda: is_accepted(writer))  # The guard looks again every 100 ms.
    assert log.end_offset == (accepted + 1) * MESSAGES
    assert batches_in(log) == accepted + 1


def test_interrupt_at_any_line_of_an_append_leaves_a_good_log(build):
    """A Ctrl-C can come between any two lines; here it comes between all of them, one after the other."""
    recorder = Recorder()
    rig = build(ALWAYS, recorder)
    writer, log = rig.writer(config=LogConfig(segment_size_bytes=3000, index_interval_bytes=1))
    answered = interrupted = line = 0
    is_done = False
    while not is_done or line < 20:
        line += 1
        is_done = append_interrupted_at(line, writer)
        answered, interrupted = answered + is_done, interrupted + (not is_done)
        # Two: the second one waits alone, as if nothing had happened.
        for _ in range(2):
            rig.append(writer).result(PATIENCE_S)
            answered += 1
            assert {segment.path for segment in log.segments} <= recorder.names
    assert interrupted > 50
    assert len(log.segments) > 10
    found = batches_in(log)
    assert answered <= found <= answered + interrupted
    assert log.durable_end == log.end_offset
    assert batches_in(reopened(rig, log, writer)) == found


def append_interrupted_at(line: int, writer: LogWriter) -> bool:
    """Append, with a KeyboardInterrupt at the given line of our own code; False if that came."""
    lines = 0

    def trace(frame, event, _arg):
        nonlocal lines
        code = frame.f_code
        # The interpreter reports what is raised while something is freed, and goes on.
        if "penstock" not in code.co_filename or code.co_name in {"_undo", "__del__"}:
            return None
        is_line = event == "line" and can_be_interrupted(code.co_filename, frame.f_lineno)
        lines += is_line
        if is_line and lines == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        writer.append(BATCH)
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(None)
    return True


def can_be_interrupted(path: str, line: int) -> bool:
    """A tracer also stops where a block is entered and left; the interpreter never looks for signals there."""
    return not linecache.getline(path, line).lstrip().startswith(("with ", "try:"))


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


def test_interrupted_maintenance_stops_the_log_and_not_the_others(build):
    rig = build(ALWAYS)
    writer, _ = rig.writer()
    other, _ = rig.writer("other")
    with pytest.raises(KeyboardInterrupt), writer.maintenance():
        raise KeyboardInterrupt
    with pytest.raises(Unavailable):
        writer.append(BATCH)
    other.append(BATCH)
    writer.close()
    assert not rig.fatal


STOP = "from penstock.runtime.fatal import exit_process\nfrom penstock.errors import SyncFailed\n"


def test_fatal_error_ends_the_process_with_one_line():
    program = STOP + "exit_process(SyncFailed('log/1', 'Input/output error'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == EXIT_CODE
    assert done.stderr == "penstock: fsync of log/1 failed: Input/output error; the process stops\n"


def test_bug_ends_the_process_with_a_traceback():
    program = STOP + "try: 1 / 0\nexcept ZeroDivisionError as error: exit_process(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == EXIT_CODE
    assert "ZeroDivisionError: division by zero" in done.stderr


def test_nobody_has_to_read_the_last_words():
    program = STOP + (
        "import os, sys\n"
        "os.set_blocking(2, False)\n"
        "try:\n"
        "    while os.write(2, bytes(65536)): pass\n"
        "except BlockingIOError: os.set_blocking(2, True)\n"
        "sys.stdout.write('full'); sys.stdout.flush()\n"
        "exit_process(SyncFailed('log/1', 'Input/output error'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout.read(4) == b"full"
        full_s = time.monotonic()
        assert process.wait(timeout=10) == EXIT_CODE
        assert time.monotonic() - full_s < 1
