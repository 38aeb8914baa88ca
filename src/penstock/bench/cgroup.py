"""A limit on the memory of one process, where the system lets us set one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_limited(process: int, bytes_max: int) -> Iterator[str]:
    """Inside, a process that takes more memory is killed. Gives "", or why there is no limit."""
    is_unified = (_ROOT / "cgroup.controllers").exists()
    parent = _ROOT if is_unified else _ROOT / "memory"
    group = parent / f"penstock-bench-{process}"
    reason = ""
    try:
        group.mkdir()
        limit = group / ("memory.max" if is_unified else "memory.limit_in_bytes")
        limit.write_text(str(bytes_max))
        (group / "cgroup.procs").write_text(str(process))
    except OSError as error:
        reason = f"no memory limit: {error.strerror}"
    try:
        yield reason
    finally:
        # A group goes when nobody is in it any more.
        with suppress(OSError):
            (parent / "cgroup.procs").write_text(str(process))
        with suppress(OSError):
            group.rmdir()
