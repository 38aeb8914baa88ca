"""What a simulated client is, and what it sees of the world."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from .books import Books
from .driver import SimDriver
from .event import Event
from .owner_book import OwnerBook


class Client(Protocol):
    """A user of the node: the schedule wakes it now and then, and it sends commands."""

    name: str

    def wake(self) -> None: ...


class WorldView(Protocol):
    """The part of `World` that clients use. `life` counts starts of the node; `driver` is None while it is down."""

    books: Books
    owners: OwnerBook
    entropy: Random
    life: int
    event: Event

    @property
    def driver(self) -> SimDriver | None: ...

    def wake_later(self, mean_ms: int, client: Client) -> None: ...

    def act(self, event: Event, call: Callable[[], None]) -> None:
        """Run a call as one event, then let the books compare the node with what they expect."""
        ...

    def new_event(self, what: str) -> Event: ...

    def notice(self, moment: str) -> None: ...

    def note(self, text: str) -> None: ...
