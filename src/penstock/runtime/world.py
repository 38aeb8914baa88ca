"""What a driver is given besides the disk: time, chance, a logger."""

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import Logger
from typing import Protocol, runtime_checkable

from ..broker.node import Observer
from ..broker.progress import OpeningProgress
from ..config import LimitsConfig, NodeConfig
from ..log.reign import ALONE, Reign
from ..ports import Clock, Entropy
from .commit_gate import CommitGate


@runtime_checkable
class SteppedClock(Protocol):
    """A clock that only moves when it is told to, and says so to functions that return when they want to know again."""

    def listen(self, moved: Callable[[], float]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The world outside, as a driver sees it."""

    clock: Clock
    entropy: Entropy
    logger: Logger
    on_fatal: Callable[[BaseException], None]
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    config: NodeConfig = field(default_factory=NodeConfig)
    observer: Observer | None = None
    # With a standby: the reign in which logs are written, and where replies wait for others to confirm.
    reign: Reign = ALONE
    gate: CommitGate | None = None
    progress: OpeningProgress = field(default_factory=OpeningProgress)
