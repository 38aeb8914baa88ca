"""What clients see of the world: a node that may be away, a time, and chance."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from .books import Books
from .ownerbook import OwnerBook
from .scene import Scene
from .shell import Shell


class Client(Protocol):
    """Somebody who wakes up now and then and does something to the node."""

    name: str

    def wake(self) -> None: ...


class Place(Protocol):
    """`life` counts the lives of the node; `shell` is the present one, None while it is down."""

    books: Books
    owners: OwnerBook
    entropy: Random
    life: int
    scene: Scene

    @property
    def shell(self) -> Shell | None: ...

    def wake_later(self, mean_ms: int, client: Client) -> None: ...

    def act(self, scene: Scene, call: Callable[[], None]) -> None:
        """Do something to the node as one event, and look at everything afterwards."""
        ...

    def new_scene(self, what: str) -> Scene: ...

    def notice(self, moment: str) -> None: ...

    def note(self, text: str) -> None: ...
