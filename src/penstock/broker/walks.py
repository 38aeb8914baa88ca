"""Commands that look at many entries, such as partitions, groups or messages: carried out slice by slice.

A handler that walks is a generator. It yields how many entries it has looked at since it yielded the last time, is sent
the time in return, and returns the reply. Between two slices other commands run: topics, partitions and groups come and
go. So a handler keeps names and numbers over a yield, or a list of its own, looks each up again after it, and leaves
out what has vanished. Its answer is true for each entry, not for one moment.

A handler may also yield an `Effect`, which is work on files that nothing else touches: its driver runs it without the
lock, before it goes on with the walk.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..api.command import Command, ScopedCommand
from ..api.keys import Credential
from ..api.principals import Principal
from ..delivery import Delivery
from ..errors import Fatal, PenstockError, Unavailable
from .partition import Now, Partition
from .partition.slots import Fault
from .topics import INTERNAL_PREFIX

if TYPE_CHECKING:
    from .catalogue import Catalogue

R = TypeVar("R")


class Effect:
    """Work on files that other commands run beside. Run once, by the driver of the walk that yielded it."""

    __slots__ = ("_refusal", "_work", "is_over")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._refusal: PenstockError | None = None
        self.is_over = False

    def run(self) -> None:
        """What it is refused with is for `check`. Fatal: the disk has failed."""
        try:
            self._work()
        except Fatal:
            raise
        except PenstockError as error:
            self._refusal = error.fresh()
        finally:
            self.is_over = True

    def check(self) -> None:
        """Raise what the work was refused with."""
        if self._refusal is not None:
            raise self._refusal.fresh()


def _nothing() -> None:
    return


WAIT = Effect(_nothing)
"""Another walk has to go on first: its driver runs an effect now."""

Slices = Generator[int, Now, R]
"""What a handler that walks returns."""
Pieces = Generator[int | Effect, Now, R]
"""What one returns that makes or removes files, too."""

_PREFIXES_AN_ENTRY = 50
ALL_ENTRIES = 1 << 62
"""A budget that no walk spends."""


class Walk(Generic[R]):
    """A command that is carried out slice by slice, by the node that took its first one.

    `credential`: what its client has shown; when that has ended the walk does not go on.
    """

    __slots__ = (
        "_slices",
        "command",
        "credential",
        "effect",
        "entries",
        "is_over",
        "owner",
        "principal",
    )

    def __init__(
        self, command: Command[R], principal: Principal, credential: Credential | None = None
    ) -> None:
        self.command, self.principal, self.credential = command, principal, credential
        # The node; none before the first slice.
        self.owner: object = None
        # How many entries the last slice looked at.
        self.entries = 0
        # What the driver has to run before the next slice.
        self.effect: Effect | None = None
        self.is_over = False
        self._slices: Pieces[R] | None = None

    def advance(self, begin: Callable[[], Pieces[R]], now: Now, entries: int) -> R | None:
        """Look at entries until the budget is spent: at no more than these and one item. The reply, once `is_over`.

        `begin` calls the handler, for the first slice. Raises what the handler refuses. An effect ends the slice; with
        a budget that no walk spends, it is run here.
        """
        left, slices = entries, self._slices
        self.effect = None
        try:
            if slices is None and left > 0:
                slices = self._slices = begin()
                left -= self._counted(next(slices), entries)
            while left > 0 and self.effect is None:
                left -= self._counted(slices.send(now), entries)  # type: ignore[union-attr]  # There is one, because there is something left.
        except StopIteration as end:
            self.close()
            reply: R = end.value
            return reply
        except BaseException:
            self.close()
            raise
        finally:
            self.entries = entries - left
        return None

    def _counted(self, step: int | Effect, entries: int) -> int:
        """How many entries a step looked at. An effect is run, or left to the driver."""
        if not isinstance(step, Effect):
            return step
        if entries < ALL_ENTRIES:
            self.effect = step
        elif step is WAIT:
            raise Unavailable("another command is at it; try again")
        else:
            step.run()
        return 1

    def close(self) -> None:
        """Go on no more. What the handler had gathered is let go."""
        self.is_over = True
        slices, self._slices = self._slices, None
        if slices is not None:
            slices.close()


def whole(slices: Slices[R], now: Now) -> R:
    """What a part of a handler that walks returns, for one that does not: everything in one go."""
    try:
        next(slices)
        while True:
            slices.send(now)
    except StopIteration as end:
        reply: R = end.value
        return reply


def partitions_in(catalogue: "Catalogue", topics: Iterable[str]) -> Iterator[Partition]:
    """The partitions that serve of some topics: each is looked up when it is asked for, so a walk may yield between
    any two of them. What has come or gone meanwhile is left out."""
    return (slot for slot in slots_in(catalogue, topics) if isinstance(slot, Partition))


def slots_in(catalogue: "Catalogue", topics: Iterable[str]) -> Iterator[Partition | Fault]:
    """The partitions of some topics, also faulty ones, as `partitions_in` has them."""
    for name in topics:
        topic, number = catalogue.open.get(name), 0
        # Under the same name there may be another topic after a yield.
        while topic is not None and number < len(topic.partitions):
            yield topic.partitions.slots[number]
            number += 1
            if catalogue.open.get(name) is not topic:
                break


def topics_covered(catalogue: "Catalogue", command: ScopedCommand[Any]) -> Slices[list[str]]:
    """The topics that a command covers: the one that it names, or of all that there are.

    NotFound: there is no topic of the name given. PartitionFaulty: none of its partitions serves.
    """
    if command.topic is None:
        return (yield from names_covered(catalogue, command))
    topic = catalogue.topic(command.topic)
    topic.partitions.require_serving()
    return [topic.facts.name]


def names_covered(catalogue: "Catalogue", command: ScopedCommand[Any]) -> Slices[list[str]]:
    """The topics that a command covers, perhaps none."""
    names: list[str] = []
    for name in [*catalogue.open]:
        if command.covers(name):
            names.append(name)
        # A name is compared with each prefix, of which there may be thousands.
        yield 1 + len(command.prefixes) // _PREFIXES_AN_ENTRY
    return names


def groups_in(
    catalogue: "Catalogue", partition: Partition, only: str | None = None
) -> Iterator[tuple[str, Delivery]]:
    """The groups of a partition, without our own, or `only` one of them: each is looked up when it is asked for, as
    `partitions_in` does."""
    machine = partition.machine
    for name in [*machine.numbers] if only is None else [only]:
        number = machine.numbers.get(name)
        if number is not None and not name.startswith(INTERNAL_PREFIX):
            if not is_open(catalogue, partition):
                return
            yield name, machine.groups[number]


def names_on(catalogue: "Catalogue", topic: str) -> Slices[list[str]]:
    """The names of the groups of a topic, without our own."""
    names: set[str] = set()
    for partition in partitions_in(catalogue, [topic]):
        names.update(partition.machine.numbers)
        # Names are gathered some fifty times as fast as anything is looked up.
        yield 1 + len(partition.machine.numbers) // 50
    return [name for name in names if not name.startswith(INTERNAL_PREFIX)]


def is_open(catalogue: "Catalogue", partition: Partition) -> bool:
    """Whether a partition still serves, after a yield."""
    topic = catalogue.open.get(partition.topic)
    return topic is not None and topic.partitions.serving_at(partition.number) is partition
