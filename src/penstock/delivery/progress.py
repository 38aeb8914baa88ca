"""What a group has finished: everything below a floor, and a set of offsets above it."""

from dataclasses import dataclass, field

from pyroaring import BitMap64

from .offsets import first_missing


@dataclass(slots=True)
class Progress:
    """Everything below `floor` is finished, except what was `reopened`; so is everything in `finished`."""

    floor: int
    finished: BitMap64 = field(default_factory=BitMap64)
    reopened: BitMap64 = field(default_factory=BitMap64)

    def is_finished(self, offset: int) -> bool:
        if offset < self.floor:
            return offset not in self.reopened
        return offset in self.finished

    def lowest_unfinished(self) -> int:
        """Returns the first offset that the group has not finished; it may be the end of the log."""
        lowest: int = self.reopened.min() if self.reopened else self.floor
        return lowest

    def finish(self, offsets: BitMap64) -> None:
        """Finish offsets at or above the floor, or reopened ones below it."""
        if self.reopened:
            below = offsets & self.reopened
            self.reopened -= below
            offsets = offsets - below
        self.finished |= offsets
        self.floor = first_missing(self.finished, self.floor)
        self.finished.remove_range(0, self.floor)

    def finish_below(self, offset: int) -> None:
        """Finish everything below an offset; what was reopened below the floor stays open."""
        if offset > self.floor:
            self.floor = first_missing(self.finished, offset)
            self.finished.remove_range(0, self.floor)

    def reopen(self, offsets: BitMap64) -> None:
        """Make finished offsets unfinished again. The floor stays where it is."""
        above = self.finished & offsets
        self.finished -= above
        self.reopened |= offsets - above

    def close_below(self, offset: int) -> BitMap64:
        """Finish what was reopened below an offset. Returns those offsets."""
        closed = BitMap64(self.reopened)
        if closed:
            closed.remove_range(offset, max(offset, closed.max() + 1))
            self.reopened -= closed
        return closed

    def unfinished_below(self, end: int) -> int:
        """Returns how many offsets below `end` the group has not finished."""
        above = max(0, end - self.floor)
        if self.finished:
            above -= self.finished.range_cardinality(0, end)
        return above + (self.reopened.range_cardinality(0, end) if self.reopened else 0)
