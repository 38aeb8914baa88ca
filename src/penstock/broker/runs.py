"""Messages of one batch that were stored one after the other: where each is, made only when somebody asks."""

from collections.abc import Sequence
from typing import overload

from .partition import Published


class PublishedRun(Sequence[Published]):
    """As good as a list of `Published`, and costs the same for one message and for a hundred thousand."""

    __slots__ = ("_count", "first")

    def __init__(self, first: Published, count: int) -> None:
        self.first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Published: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Published]: ...
    def __getitem__(self, place: int | slice) -> Published | Sequence[Published]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(f"{self._count} messages, none at {place}")
        return self.first._replace(offset=self.first.offset + place % self._count)
