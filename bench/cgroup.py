"""Limits on one process, where the system lets us set them: memory, and a share of a processor."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
# Short, so that a process that has used up its share is not away for long.
_PERIOD_US = 20_000


@dataclass(slots=True)
class ProcessLimits:
    """The limits of a process. `reason` says why there are none, or is empty."""

    is_unified: bool
    folders: dict[str, Path] = field(default_factory=dict)
    reason: str = ""

    def _text(self, controller: str, name: str) -> str:
        with suppress(OSError, KeyError):
            return (self.folders[controller] / name).read_text()
        return ""

    def peak_bytes(self) -> int:
        """The peak memory of the process, pages of files included; 0 if it is not known."""
        name = "memory.peak" if self.is_unified else "memory.max_usage_in_bytes"
        return int(self._text("memory", name) or 0)

    @property
    def killed(self) -> int:
        """How many processes were killed by the memory limit."""
        name = "memory.events" if self.is_unified else "memory.oom_control"
        found = re.search(r"oom_kill (\d+)", self._text("memory", name))
        return int(found[1]) if found else 0


@contextmanager
def limited(process: int, *, bytes_max: int, processor_share: float) -> Iterator[ProcessLimits]:
    """Inside, a process that takes more memory is killed, and one that wants more of a processor has to wait."""
    is_unified = (_ROOT / "cgroup.controllers").exists()
    group = ProcessLimits(is_unified)
    share_us = str(int(_PERIOD_US * processor_share))
    try:
        if is_unified:
            _enter(
                group,
                "memory",
                process,
                {"memory.max": str(bytes_max), "cpu.max": f"{share_us} {_PERIOD_US}"},
            )
        else:
            _enter(group, "memory", process, {"memory.limit_in_bytes": str(bytes_max)})
            period = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": share_us}
            _enter(group, "cpu", process, period)
    except OSError as error:
        group.reason = f"no limits: {error.strerror}"
    try:
        yield group
    finally:
        for folder in group.folders.values():
            _leave(folder, process)


def _enter(group: ProcessLimits, controller: str, process: int, limits: dict[str, str]) -> None:
    parent = _ROOT if group.is_unified else _ROOT / controller
    folder = parent / f"penstock-bench-{process}"
    folder.mkdir()
    group.folders[controller] = folder
    for name, value in limits.items():
        (folder / name).write_text(value)
    (folder / "cgroup.procs").write_text(str(process))


def _leave(folder: Path, process: int) -> None:
    """Remove the cgroup once it has no processes."""
    with suppress(OSError):
        (folder.parent / "cgroup.procs").write_text(str(process))
    with suppress(OSError):
        folder.rmdir()
