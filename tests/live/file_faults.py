"""Everything that may happen to one file or directory of a data directory while no broker runs."""

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

REMOVED, EMPTIED, SHORTER, HALF = "removed", "emptied", "3 bytes cut", "half cut"
FLIPPED = "bit flipped"
OLDER, RECENT = "older copy", "copy of the same life"
_SEGMENT = re.compile(r"(\d{20})\.(log|index|timeindex|snapshot)")
# Parts that are put back from a copy as a whole.
_PARTS = re.compile(r"meta|topics/[^/]+/[^/]+(/partition-\d+(/(messages|state|delayed))?)?|topics")


class Fault(NamedTuple):
    """One thing that goes wrong. `path` is relative to the data directory."""

    path: str
    what: str
    position: int = 0
    # Whether it is the last of its kind in its directory: of snapshots only that one is read.
    is_newest: bool = True

    def __str__(self) -> str:
        where = f" at byte {self.position}" if self.what == FLIPPED else ""
        return f"{self.path}: {self.what}{where}"


@dataclass(frozen=True)
class Victim:
    """A data directory that ended in some way, and copies of it from earlier moments."""

    data: Path
    copies: dict[str, Path]

    def faults(self, flips: int) -> list[Fault]:
        """All faults of all files and directories, with so many flipped bits in each file."""
        found = [*self._of_directories(), *self._of_files(flips)]
        assert len(found) == len(set(found))
        return found

    def _of_directories(self) -> Iterator[Fault]:
        for path in sorted(self.data.rglob("*")):
            if not path.is_dir():
                continue
            name = str(path.relative_to(self.data))
            yield Fault(name, REMOVED)
            yield Fault(name, EMPTIED)
            if _PARTS.fullmatch(name):
                yield from self._from_copies(name)

    def _of_files(self, flips: int) -> Iterator[Fault]:
        for path in sorted(self.data.rglob("*")):
            if not path.is_file():
                continue
            size, is_newest = path.stat().st_size, _is_newest(path)
            name = str(path.relative_to(self.data))
            for what, bytes_min in ((REMOVED, 0), (EMPTIED, 1), (SHORTER, 4), (HALF, 8)):
                if size >= bytes_min:
                    yield Fault(name, what, 0, is_newest)
            entropy = random.Random(name)
            edges = [0, size - 1, size // 2, size // 4]
            positions = [*edges, *(entropy.randrange(size) for _ in range(flips) if size)]
            for position in [*dict.fromkeys(positions)][:flips]:
                if 0 <= position < size:
                    yield Fault(name, FLIPPED, position, is_newest)
            yield from self._from_copies(name)

    def _from_copies(self, name: str) -> Iterator[Fault]:
        for what, copy in self.copies.items():
            if (copy / name).exists() and contents(copy / name) != contents(self.data / name):
                yield Fault(name, what)

    def damage(self, fault: Fault, target: Path) -> None:
        """A copy of the directory at `target`, with the fault done to it."""
        shutil.copytree(self.data, target)
        path = target / fault.path
        if fault.what in self.copies:
            _remove(path)
            source = self.copies[fault.what] / fault.path
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, path)
        elif fault.what == REMOVED:
            _remove(path)
        elif path.is_dir():
            shutil.rmtree(path)
            path.mkdir(mode=0o700)
        else:
            _change_file(path, fault)


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a path, or the one at it."""
    if path.is_file():
        return {"": path.read_bytes()}
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path)): one.read_bytes() for one in files}


def _is_newest(path: Path) -> bool:
    return max(path.parent.glob(f"*{path.suffix}")) == path


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _change_file(path: Path, fault: Fault) -> None:
    content = bytearray(path.read_bytes())
    if fault.what == FLIPPED:
        content[fault.position] ^= 1 << fault.position % 8
    else:
        keep = {EMPTIED: 0, SHORTER: len(content) - 3, HALF: len(content) // 2}
        del content[keep[fault.what] :]
    # Not replaced: the inode, its owner and mode are those that it had.
    path.write_bytes(content)


def kind_of(data: Path, path: str) -> str:
    """What a file or directory is to the broker, for tables: one word or two."""
    parts = path.split("/")
    name = parts[-1]
    if (data / path).is_dir():
        return "directory " + {1: name, 2: "namespace", 3: "topic", 4: "partition"}.get(
            len(parts), name
        )
    if parts[0] not in {"meta", "topics"}:
        return name
    log = "meta" if parts[0] == "meta" else parts[-2]
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return f"{log} {name}"
    is_newest = _is_newest(data / path)
    if found[2] == "log":
        return f"{log} {'active' if is_newest else 'sealed'} segment"
    if found[2] == "snapshot":
        return f"{log} {'newest' if is_newest else 'older'} snapshot"
    return f"{log} {found[2]}"
