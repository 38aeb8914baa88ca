"""Who writes the logs of a data directory: one node alone, or a leader that others follow.

A node alone goes on in the next epoch wherever a crash may have taken offsets that were used. Where others have the
same logs, epochs are given out: two nodes that both took the next one would write different batches in it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..codec import Head
from ..model import Buffer, Epoch, Offset

if TYPE_CHECKING:
    from .log import Log


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

    def next_epoch(self, epoch: Epoch) -> Epoch:
        """The epoch to go on in where offsets may have been used in `epoch`; the same one: nothing has to begin."""
        ...

    def opened(self, log: "Log") -> None: ...

    def removed(self, directory: str) -> None:
        """The logs in a directory, and below it, were removed with their files."""
        ...

    def committed_end(self, log: "Log") -> Offset:
        """The first offset that may still be cut."""
        ...


class LocalReign:
    """A node that has its logs for itself."""

    is_shared = is_over = False

    def next_epoch(self, epoch: Epoch) -> Epoch:
        return Epoch(epoch + 1)

    def opened(self, log: "Log") -> None:
        """No other node has to hear of it."""

    def removed(self, directory: str) -> None:
        """No other node has to hear of it."""

    def committed_end(self, log: "Log") -> Offset:
        return log.durable_end


class FollowingReign(LocalReign):
    """Logs that another node writes: here no epoch ever begins by itself."""

    is_shared = True

    def next_epoch(self, epoch: Epoch) -> Epoch:
        return epoch


ALONE, FOLLOWING = LocalReign(), FollowingReign()


def go_on(log: "Log", epoch: Epoch) -> None:
    """Write on in the epoch that the reign gives for a log in which offsets may have been used in `epoch`."""
    following = log.reign.next_epoch(epoch)
    if following > log.epoch:
        log.begin_epoch(following)
