"""Commands on a data directory that no broker has open. The lock of the directory keeps them out while a broker runs.

They open a whole node, not its meta alone: only the partitions show whether meta is an older copy.
"""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any, NamedTuple

from ..broker.adoption import Adoption, adopt
from ..broker.directories import SET_ASIDE, TOPICS, set_aside_name
from ..broker.lost_state import forget_state, lost_states, open_groups
from ..broker.node import Node
from ..broker.partition import Now
from ..broker.partition.slots import Fault
from ..broker.topics import config_from
from ..config import StorageConfig
from ..errors import Refused
from ..runtime import RealDisk, SystemClock
from ..runtime.fatal import exit_process
from ..runtime.findings import FindingsLog
from ..runtime.world import World

_CLOCK = SystemClock()


@contextmanager
def offline_node(root: Path) -> Iterator[Node]:
    """Returns a node, open inside of the block. AlreadyOpen: a broker runs on the directory."""
    with RealDisk(root, StorageConfig()) as disk, node_on(disk) as node:
        yield node


@contextmanager
def node_on(disk: RealDisk) -> Iterator[Node]:
    """Returns a node, open inside of the block. Its start reports what it found on stderr."""
    world = World(
        clock=_CLOCK,
        entropy=random.SystemRandom(),
        logger=getLogger("penstock"),
        on_fatal=exit_process,
    )
    findings = FindingsLog(world, on_skipped=lambda: None)
    with closing(findings.open_node(disk, offline_now(), StorageConfig())) as node:
        yield node


class Forgotten(NamedTuple):
    """A partition whose state was begun anew, the groups that begin at its start, and where the old state is."""

    topic: str
    partition: int
    groups: list[str]
    kept_as: str


def forget_states(root: Path) -> list[Forgotten]:
    """Begin the state of those partitions anew that have lost it. AlreadyOpen: a broker runs on the directory."""
    with offline_node(root) as node:
        faults = lost_states(node)
        kept = [forget_state(node, fault, offline_now()) for fault in faults]
    if not faults:
        return []
    with offline_node(root) as node:
        return [
            Forgotten(fault.topic, fault.number, open_groups(node, fault, offline_now()), kept_as)
            for fault, kept_as in zip(faults, kept, strict=True)
        ]


def offline_now() -> Now:
    return Now(_CLOCK.now_ns(), _CLOCK.monotonic_ns())


def adopt_topic(
    data: Path | None, path: Path, *, name: str, settings: dict[str, Any]
) -> tuple[Adoption, list[Fault]]:
    """Adopt the directory of a topic. Returns the topic, and its partitions that are faulty at a second start.

    Without `data` the data directory is the one that `path` is in. AlreadyOpen: a broker runs on it.
    """
    config_from(settings)
    parts = (path.resolve() if data is None else path).parts
    begins = [at for at, part in enumerate(parts) if part in {TOPICS, SET_ASIDE}]
    first = begins[-1] if begins else 0
    root, entry = data or Path(*parts[:first]), "/".join(parts[first:])
    if not (root / "meta").is_dir() and not (root / "set-aside").is_dir():
        raise Refused(f"{root} is not the data directory of a broker", path=str(root))
    with offline_node(root) as node:
        moved = f"{SET_ASIDE}/{set_aside_name(entry)}"
        if not node.disk.exists(entry) and node.disk.exists(moved):
            entry = moved  # The start before this line did not know it.
        found = adopt(node, entry, offline_now(), name=name, settings=settings)
    with offline_node(root) as node:
        return found, [one for one in node.faults() if one.topic == found.topic]
