"""Penstock: a durable message log and a work queue in one.

    import penstock

    with penstock.open("./jobs") as queue:      # a durable FIFO queue, see penstock.Queue
        queue.put(b"resize cat.jpg")
        message = queue.get()

`penstock.Broker` gives topics and groups, `penstock.testing` a clock for tests. Importing the package loads nothing
but this file; each name is found when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api.letters import Letters as Letters
    from .embedded.broker import Broker as Broker
    from .embedded.member import Member as Member
    from .embedded.open_queue import open_queue
    from .embedded.queue import Queue as Queue
    from .errors import PenstockError as PenstockError
    from .model import Message as Message

    # An import under another name would be private to type checkers.
    open = open_queue  # noqa: A001 - named as gzip.open is

_HOMES = {
    "Broker": ("penstock.embedded.broker", "Broker"),
    "Letters": ("penstock.api.letters", "Letters"),
    "Member": ("penstock.embedded.member", "Member"),
    "Message": ("penstock.model", "Message"),
    "PenstockError": ("penstock.errors", "PenstockError"),
    "Queue": ("penstock.embedded.queue", "Queue"),
    "open": ("penstock.embedded.open_queue", "open_queue"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, found = _HOMES[name]
    return getattr(import_module(module), found)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
