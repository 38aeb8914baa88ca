"""What `penstock topic adopt` does to a data directory that no broker has open."""

import random
from pathlib import Path
from typing import Any

from ..broker.adoption import Adoption
from ..broker.node import Node
from ..broker.partition import Now
from ..broker.slots import Fault
from ..broker.topics import config_from
from ..config import StorageConfig
from ..errors import Refused
from ..runtime import RealDisk, SystemClock


def adopted(
    root: Path, path: Path, *, name: str, settings: dict[str, Any]
) -> tuple[Adoption, list[Fault]]:
    """Adopt a directory, start once more, and tell which of its partitions are faulty all the same.

    AlreadyOpen: a broker runs on the data directory.
    """
    config = config_from(settings)
    if not (root / "meta").is_dir() and not (root / "set-aside").is_dir():
        raise Refused(f"{root} is not the data directory of a broker", path=str(root))
    entry = "/".join(path.parts[-2:])
    with RealDisk(root, StorageConfig()) as disk:
        node = _opened(disk)
        try:
            found = node.adopt(entry, _now(), name=name, config=config)
        finally:
            node.close()
        node = _opened(disk)
        faults = [one for one in node.faults() if one.topic == found.topic]
        node.close()
    return found, faults


def _opened(disk: RealDisk) -> Node:
    # It names leases, and adopting takes none.
    return Node(disk, now=_now(), entropy=random.Random())  # noqa: S311 - nothing secret


def _now() -> Now:
    clock = SystemClock()
    return Now(clock.now_ns(), clock.monotonic_ns())
