"""Filters that Spark pushes down: they narrow what is read. Spark still applies them all, so none has to be exact.

With Spark's own setting for pushdown off, every read of a reader with `pushFilters` fails. So only the option
`pushFilters` selects it.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .batch import BatchReader
from .offsets import OffsetRange
from .options import SourceOptions

if TYPE_CHECKING:
    from .decoder import BatchPart

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


class Bounds(NamedTuple):
    """The numbers from `low` to `high`, both included."""

    low: int = _FIRST
    high: int = _LAST

    def narrowed(self, other: "Bounds") -> "Bounds":
        return Bounds(max(self.low, other.low), min(self.high, other.high))


class ReadBounds(NamedTuple):
    """What filters leave of a read. Times are timestamps of messages in nanoseconds."""

    partitions: frozenset[int] | None = None
    offsets: Bounds = Bounds()
    times: Bounds = Bounds()

    def by(self, one: Filter) -> "ReadBounds":
        """Returns these bounds narrowed by a filter, or unchanged if the filter is not one of these columns."""
        column = getattr(one, "attribute", ())
        if column == ("partition",):
            return self._by_partition(one)
        if column == ("offset",):
            return self._replace(offsets=self.offsets.narrowed(_bounds(one, int)))
        if column == ("timestamp",):
            return self._replace(times=self.times.narrowed(_bounds(one, _micros, 1000)))
        return self

    def _by_partition(self, one: Filter) -> "ReadBounds":
        if isinstance(one, EqualTo):
            wanted = frozenset({one.value})
        elif isinstance(one, In):
            wanted = frozenset(one.value)
        else:
            return self
        return self._replace(
            partitions=wanted if self.partitions is None else self.partitions & wanted
        )

    def ranges(self, whole: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
        for one in whole:
            if self.partitions is None or one.partition in self.partitions:
                part = one._replace(
                    start=max(one.start, self.offsets.low), end=min(one.end, self.offsets.high + 1)
                )
                if part.start < part.end:
                    yield part


def read_bounds(filters: Iterable[Filter]) -> ReadBounds:
    found = ReadBounds()
    for one in filters:
        found = found.by(one)
    return found


def _bounds(one: Filter, number: Any, width: int = 1) -> Bounds:
    """Returns the bounds of a comparison. `width`: how many numbers of the broker one number of Spark stands for."""
    match one:
        case EqualTo(_, value):
            return Bounds(number(value) * width, number(value) * width + width - 1)
        case GreaterThan(_, value):
            return Bounds(low=number(value) * width + width)
        case GreaterThanOrEqual(_, value):
            return Bounds(low=number(value) * width)
        case LessThan(_, value):
            return Bounds(high=number(value) * width - 1)
        case LessThanOrEqual(_, value):
            return Bounds(high=number(value) * width + width - 1)
        case In(_, values) if values:
            numbers = [number(value) * width for value in values]
            return Bounds(min(numbers), max(numbers) + width - 1)
    return Bounds()


def _micros(when: datetime) -> int:
    """Returns microseconds since 1970. Times without a zone are in the zone of the process."""
    return (when.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


class FilteredBatchReader(BatchReader):
    """A batch that is planned when its filters are known."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self.narrowed = ReadBounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.narrowed = read_bounds(filters)
        return filters

    def _ranges(self) -> Iterable[OffsetRange]:
        return self.narrowed.ranges(super()._ranges())

    def _is_wanted(self, stored: "BatchPart") -> bool:
        times = self.narrowed.times
        return stored.head.max_timestamp >= times.low and stored.head.base_timestamp <= times.high
