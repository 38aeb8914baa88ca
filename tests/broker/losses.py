"""What may happen to the files of a data directory while no broker runs."""

from collections.abc import Callable

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
