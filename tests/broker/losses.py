"""What may happen to the files of a data directory while no broker runs."""

from collections.abc import Callable

from penstock.broker.partition import Partition
from penstock.codec import seed_of
from penstock.codec.checksum import checksum
from penstock.model import LogId
from penstock.sim import SimDisk, Tree
from penstock.sim.operations import parent_of


def tree_with(tree: Tree, change: Callable[[dict[str, bytes]], None]) -> SimDisk:
    """A disk with other files; directories that are empty then are gone."""
    files = dict(tree.files)
    change(files)
    directories: set[str] = set()
    for path in files:
        while path := parent_of(path):
            directories.add(path)
    return SimDisk(Tree(files, frozenset(directories)))


def without(part: str) -> Callable[[dict[str, bytes]], None]:
    def remove(files: dict[str, bytes]) -> None:
        for path in [one for one in files if one == part or one.startswith(f"{part}/")]:
            del files[path]

    return remove


def flipped(files: dict[str, bytes], path: str, position: int) -> None:
    data = bytearray(files[path])
    data[position] ^= 1
    files[path] = bytes(data)


def with_version(path: str, version: int) -> Callable[[dict[str, bytes]], None]:
    """A whole checkpoint of another version, as another release would write it."""

    def change(files: dict[str, bytes]) -> None:
        identity = files[path.replace("checkpoint", "identity")]
        log_id = LogId(int.from_bytes(identity[8:16], "little"))
        raw = files[path][:4] + version.to_bytes(4, "little") + files[path][8:-4]
        files[path] = raw + checksum(raw, seed_of(log_id)).to_bytes(4, "little")

    return change


def log_ends(partition: Partition) -> list[int]:
    """Where messages, state, delayed messages and stagings of a partition end."""
    logs = (partition.messages, partition.journal.log, partition.delayed, partition.staging)
    return [one.end_offset for one in logs]
