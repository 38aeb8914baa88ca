"""The node of a data directory that no broker has open: the lock keeps commands out as it does a second broker.

A whole node is opened, not its meta alone: only the partitions know whether meta is an older copy, and one that grew
could not be told from the right one any more.
"""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from logging import getLogger
from pathlib import Path
from typing import TypeVar

from ..api.command import Command
from ..api.principals import LOCAL
from ..broker.node import Node
from ..broker.partition import Now
from ..config import StorageConfig
from ..runtime import RealDisk, SystemClock
from ..runtime.fatal import exit_process
from ..runtime.findings import FindingsLog
from ..runtime.world import World

R = TypeVar("R")
_CLOCK = SystemClock()


@contextmanager
def offline_node(root: Path) -> Iterator[Node]:
    """A node, open inside of the block. What its start found and did is told on stderr.

    AlreadyOpen: a broker runs on the directory.
    """
    world = World(
        clock=_CLOCK,
        entropy=random.SystemRandom(),
        logger=getLogger("penstock"),
        on_fatal=exit_process,
    )
    with RealDisk(root, StorageConfig()) as disk:
        findings = FindingsLog(world, on_skipped=lambda: None)
        node = findings.open_node(disk, offline_now(), StorageConfig(), usual_sweep_times=1)
        with closing(node):
            yield node


def offline_now() -> Now:
    return Now(_CLOCK.now_ns(), _CLOCK.monotonic_ns())


def executed(node: Node, command: Command[R]) -> R:
    """The reply to a command, or raises what it was refused with."""
    return node.execute(command, LOCAL, offline_now()).outcome()
