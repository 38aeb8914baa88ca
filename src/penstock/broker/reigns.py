"""The epochs of a node. Meta knows each one, durably, before the first append in it to any other log.

What a cluster has committed rests on this record: of two nodes with equally long logs the one leads that has the later
one, and nothing is committed in an epoch before its record is.
"""

from collections.abc import Iterable

import msgspec


class ReignBegun(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=24):
    """From here on the node writes all of its logs in this epoch; no epoch is begun twice.

    `node` is the number of the node that writes, 0 if it is alone. `is_forced`: a person had it lead although it may
    lack what was acknowledged. `asked` has the nodes that promised before to follow no earlier epoch.
    """

    epoch: int
    node: int
    is_forced: bool = False
    asked: tuple[int, ...] = ()


class Reigns:
    """The machine. `latest` is None before the first record."""

    def __init__(self) -> None:
        self.latest: ReignBegun | None = None
        self._first: ReignBegun | None = None

    @property
    def begun_in_all_logs(self) -> int:
        """Up to this epoch, each began in every log when a node opened it, though nothing may have been written in it:
        there was no record of it."""
        return 0 if self._first is None else self._first.epoch - 1

    def apply(self, record: ReignBegun) -> None:
        self._first, self.latest = self._first or record, record

    def snapshot(self) -> Iterable[ReignBegun]:
        if self._first is not None and self.latest is not None:
            yield self._first
            if self.latest != self._first:
                yield self.latest
