"""Who writes the logs of a data directory: one node alone, or a leader that others follow.

A node begins one epoch for all of its logs at each start, and has it in meta, durably, before it appends to any of
them. In a log it begins with the first batch: until then nothing of that log changes. Where others have the same logs,
epochs are given out: two nodes that both took the next one would write different batches in it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..codec import Head
from ..errors import NoSpace
from ..model import Buffer, Epoch, Offset
from .closed import ClosedLog, ClosedLogs

if TYPE_CHECKING:
    from .log import Log


class Mandate(NamedTuple):
    """Why a node may begin an epoch: its number, 0 if it is alone, whether a person had it lead although it may lack
    what was acknowledged, and the nodes that have promised to follow no earlier epoch."""

    node: int = 0
    is_forced: bool = False
    asked: tuple[int, ...] = ()


RecordEpoch = Callable[[Epoch], None]
"""Makes it durable that the node begins an epoch. NoSpace: it did not."""


class Tap(Protocol):
    """Hears of what happens to a log, in the order in which it happens."""

    def appended(self, log: "Log", head: Head, parts: Sequence[Buffer]) -> None:
        """A batch was written, in these parts. The buffers are not to be kept: their owners may write to them."""
        ...

    def started(self, log: "Log") -> None:
        """Segments were removed at the front."""
        ...

    def snapshot(self, log: "Log", offset: Offset) -> None:
        """A snapshot of the journal in this log was written, and is durable."""
        ...


class Reign(Protocol):
    """Says in which epoch a log goes on, and hears of every log that is opened or made."""

    @property
    def is_shared(self) -> bool:
        """Whether other nodes have these logs too, so that what is at the end of one may still be cut."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether another node leads now: what would still be written here is in no history, and would be cut."""
        ...

    @property
    def is_begun(self) -> bool:
        """Whether the epoch of the node is in meta: durable, and committed where other nodes have the logs, too."""
        ...

    @property
    def epoch(self) -> Epoch:
        """The epoch that all logs of the node are written in; 0: it has not begun, or each log has its own."""
        ...

    @property
    def has_one_epoch(self) -> bool:
        """Whether the epoch of the node begins in a log with its first batch, and not when the log is opened."""
        ...

    @property
    def mandate(self) -> "Mandate": ...

    def take_closed(self, directory: str) -> ClosedLog | None:
        """The log in a directory as this process has closed it. Told once: from then on it may change."""
        ...

    def closing(self, log: "Log") -> None:
        """The files of a log are about to be closed, and all that is to be durable of it is."""
        ...

    def begin(self, record: "RecordEpoch") -> None:
        """Begin the epoch of the node. NoSpace: it could not be recorded."""
        ...

    def found(self, epoch: Epoch) -> None:
        """Offsets were used in this epoch, by whomever: the node writes in a later one."""
        ...

    def epoch_for(self, log: "Log") -> Epoch:
        """The epoch of the next batch of a log. NoSpace: the node could not begin one."""
        ...

    def next_epoch(self, epoch: Epoch) -> Epoch:
        """The epoch to go on in where offsets may have been used in `epoch`; the same one: nothing has to begin."""
        ...

    def opened(self, log: "Log") -> None: ...

    def closed(self, directory: str) -> None:
        """The logs in a directory are used no more; their files are about to be removed."""
        ...

    def removed(self, directory: str) -> None:
        """The files of the logs in a directory that was `closed` are gone."""
        ...

    def committed_end(self, log: "Log") -> Offset:
        """The first offset that may still be cut."""
        ...


class LocalReign:
    """A log without a node around it, whose epochs are its own."""

    is_shared = is_over = has_one_epoch = False
    is_begun = True
    epoch, mandate = Epoch(0), Mandate()

    def take_closed(self, directory: str) -> ClosedLog | None:
        return None

    def closing(self, log: "Log") -> None:
        """The next start reads it."""

    def begin(self, record: "RecordEpoch") -> None:
        """Each log begins its own."""

    def found(self, epoch: Epoch) -> None:
        """No other log has to be written in a later one."""

    def epoch_for(self, log: "Log") -> Epoch:
        return log.epoch

    def next_epoch(self, epoch: Epoch) -> Epoch:
        return Epoch(epoch + 1)

    def opened(self, log: "Log") -> None:
        """No other node has to hear of it."""

    def closed(self, directory: str) -> None:
        """No other node has to hear of it."""

    def removed(self, directory: str) -> None:
        """No other node has to hear of it."""

    def committed_end(self, log: "Log") -> Offset:
        return log.durable_end


class NodeReign(LocalReign):
    """A node that has its logs for itself, from one start to the next.

    Without room for the record the epoch is not begun: everything can be read, and each append tries again.
    """

    has_one_epoch = True

    def __init__(self) -> None:
        self.is_begun = False
        self._used = Epoch(0)
        self._record: RecordEpoch = _ignore

    def begin(self, record: "RecordEpoch") -> None:
        self._record = record
        self._begin()

    def found(self, epoch: Epoch) -> None:
        """A log that was repaired, adopted, or written by a version with an epoch for each log, may be ahead."""
        self._used = max(self._used, epoch)
        if self.is_begun and epoch >= self.epoch:
            self.is_begun, self.epoch = False, Epoch(0)
            with suppress(NoSpace):
                self._begin()

    def _begin(self) -> None:
        # The record itself is written in the epoch, too.
        self.epoch = Epoch(self._used + 1)
        try:
            self._record(self.epoch)
        except NoSpace:
            self.epoch = Epoch(0)
            raise
        self._used, self.is_begun = self.epoch, True

    def epoch_for(self, log: "Log") -> Epoch:
        if not self.epoch:
            self._begin()
        return self.epoch

    def next_epoch(self, epoch: Epoch) -> Epoch:
        return max(epoch, self.epoch)


class FollowingReign(LocalReign):
    """Logs that another node writes: here no epoch ever begins by itself."""

    is_shared = has_one_epoch = True

    def __init__(self, closed: ClosedLogs | None = None) -> None:
        self._closed = closed or ClosedLogs()

    def take_closed(self, directory: str) -> ClosedLog | None:
        return self._closed.take(directory)

    def next_epoch(self, epoch: Epoch) -> Epoch:
        return epoch


ALONE, FOLLOWING = LocalReign(), FollowingReign()


def _ignore(_epoch: Epoch) -> None:
    return


def go_on(log: "Log", epoch: Epoch) -> None:
    """Write on in the epoch that the reign gives for a log in which offsets may have been used in `epoch`."""
    following = log.reign.next_epoch(epoch)
    if following > log.epoch:
        log.begin_epoch(following)
