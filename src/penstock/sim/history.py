"""What clients were promised, whether brokers were simulated or real processes, and whether logs keep it."""

from collections.abc import Hashable, Mapping

from .violation import Checker, Violation

Place = tuple[Hashable, int]


class History:
    """Replies that clients got. A partition and a group are whatever the run calls them."""

    def __init__(self) -> None:
        self.acked: dict[Place, bytes] = {}
        # Who holds a message: leases last longer than a run, unless the holder gives the message back.
        self.leased: dict[tuple[Hashable, Place], object] = {}
        self._producers: dict[tuple[Hashable, Hashable], int] = {}
        # Of groups that read in order: the last offset that a member got, and that it has finished.
        self._read: dict[tuple[Hashable, Hashable], int] = {}
        self._finished: dict[tuple[Hashable, Hashable], int] = {}

    def published(
        self, partition: Hashable, offset: int, value: bytes, producer: Hashable = None
    ) -> None:
        """A producer, which sends one after the other, was told where its message is."""
        known = self.acked.setdefault((partition, offset), value)
        if known != value:
            raise Violation(
                Checker.OFFSET_UNIQUE,
                f"{partition}/{offset} was acknowledged as {known!r} and {value!r}",
            )
        if producer is None:
            return
        before = self._producers.get((producer, partition), -1)
        if offset <= before:
            raise Violation(
                Checker.ORDER, f"{producer} got {partition}/{offset} for {value!r} after {before}"
            )
        self._producers[producer, partition] = offset

    def handed_out(
        self,
        partition: Hashable,
        offset: int,
        value: bytes,
        holder: object,
        group: Hashable = None,
    ) -> None:
        """A member of a shared group was lent a message."""
        place = (partition, offset)
        if (group, place) in self.leased:
            first = self.leased[group, place]
            raise Violation(
                Checker.LEASE_EXCLUSIVE,
                f"{partition}/{offset} was leased by {first} and {holder}",
            )
        self.leased[group, place] = holder
        self.published(partition, offset, value)

    def giving_back(self, partition: Hashable, offset: int, group: Hashable = None) -> None:
        """The holder is about to give a message back: from now on it may be lent again."""
        self.leased.pop((group, (partition, offset)), None)

    def read(self, group: Hashable, partition: Hashable, offset: int, value: bytes) -> None:
        """The member of an assigned group, which reads in order, got a message: none is left out or comes again."""
        place = (group, partition)
        if offset <= self._finished.get(place, -1):
            raise Violation(Checker.COMMIT_SAFE, f"{partition}/{offset} came after it was finished")
        if offset > self._read.get(place, -1) + 1:
            last = self._read.get(place)
            raise Violation(Checker.STRICT_ORDER, f"{partition}/{offset} came after {last}")
        self._read[place] = max(offset, self._read.get(place, -1))
        self.published(partition, offset, value)

    def finished(self, group: Hashable, partition: Hashable, offset: int) -> None:
        """The member was told that its group is past a message."""
        self._finished[group, partition] = max(
            offset, self._finished.get((group, partition), offset)
        )

    def check_content(self, partition: Hashable, there: Mapping[int, bytes]) -> None:
        """Whether a partition has all that was acknowledged, where it was, and no value twice."""
        if len({*there.values()}) != len(there):
            raise Violation(Checker.NO_DUP, f"partition {partition} has a value twice")
        for (name, offset), value in self.acked.items():
            if name == partition and there.get(offset) != value:
                found = there.get(offset)
                raise Violation(
                    Checker.NO_ACKED_LOSS,
                    f"{partition}/{offset} was {value!r} for a client and is {found!r}",
                )
