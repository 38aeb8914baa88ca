"""A disk whose syncs are slow, or fail: strace answers them in place of the kernel, for a broker that runs."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .pairs import Node

# What `penstock serve` exits with when its disk has failed.
DISK_FAILED = 70
_SYNCS = "fsync,fdatasync"


def why_not() -> str:
    """Why no disk can be made to fail here; empty: one can."""
    if shutil.which("strace") is None:
        return "slow and failing syncs need the command strace"
    traced = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "-e", f"inject={_SYNCS}:error=EIO", "true"],
        check=False,
        capture_output=True,
        text=True,
    )
    return f"strace cannot trace: {traced.stderr.strip()}" if traced.returncode else ""


@contextmanager
def slow_syncs(node: Node, ms: int) -> Iterator[None]:
    """Every sync of a node takes so long, and succeeds."""
    with _injected(node, f"delay_exit={ms * 1000}"):
        yield
    assert node.is_running, node.log.read_text()[-3000:]


def fail_sync(node: Node) -> list[str]:
    """The next sync of each thread fails, and those after it succeed, as the kernel has it. The process ends.

    Returns the lines of its log that tell of a failure.
    """
    since = node.log.stat().st_size
    with _injected(node, "error=EIO:when=1"):
        node.until_ended(DISK_FAILED)
    lines = node.log.read_bytes()[since:].decode().splitlines()
    return [line for line in lines if os.strerror(errno.EIO) in line]


@contextmanager
def _injected(node: Node, fault: str) -> Iterator[None]:
    assert node.process is not None
    words = ["-o", "/dev/null", "-e", f"trace={_SYNCS}", "-e", f"inject={_SYNCS}:{fault}"]
    tracer = subprocess.Popen(
        ["strace", "-f", *words, "-p", str(node.process.pid)], stderr=subprocess.DEVNULL
    )
    try:
        # A sync that fails may have ended the process before it is seen that each thread is traced.
        node.until(lambda: not node.is_running or _is_traced(node.process.pid), "traced")
        yield
    finally:
        # Whoever is traced goes on as if nothing had been.
        tracer.terminate()
        tracer.wait()


def _is_traced(process: int) -> bool:
    """Whether each thread of a process is."""
    tasks = [*Path(f"/proc/{process}/task").iterdir()]
    return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)
