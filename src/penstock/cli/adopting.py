"""What `penstock topic adopt` does to a data directory that no broker has open."""

from pathlib import Path
from typing import Any

from ..broker.adoption import Adoption
from ..broker.slots import Fault
from ..broker.topics import config_from
from ..errors import Refused
from .offline import offline_node, offline_now


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
    with offline_node(root) as node:
        found = node.adopt(entry, offline_now(), name=name, config=config)
    with offline_node(root) as node:
        return found, [one for one in node.faults() if one.topic == found.topic]
