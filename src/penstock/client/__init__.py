"""Client: a server's topics, groups and dead letters from Python, for plain programs and for asyncio.

    from penstock.client import Client                    from penstock.client import AsyncClient

    with Client() as client:                              async with AsyncClient() as client:
        client.create_topic("orders")                         await client.create_topic("orders")
        client.publish("orders", b"lamp")                     await client.publish("orders", b"lamp")

`asynchronous` is written by hand, `synchronous` is generated from it (tools/unasync.py). The modules here do no I/O and
serve both: what is shown of replies, retries, batches. The guide: docs/client.md.
"""

from typing import TYPE_CHECKING

from ..api.contents import Content as Content
from ..api.letters import Letters as Letters
from ..api.units import Duration as Duration
from ..api.units import Moment as Moment
from .leased_messages import Delivered as Delivered
from .leased_messages import DetachedMessage as DetachedMessage
from .leased_messages import Polled as Polled
from .leased_messages import Received as Received
from .publish import Outgoing as Outgoing
from .publish import Published as Published
from .retry import RetryPolicy as RetryPolicy
from .settings import ClientSettings as ClientSettings
from .stagings import StagingHandle as StagingHandle
from .worker import Reject as Reject
from .worker import Retry as Retry

if TYPE_CHECKING:
    from .asynchronous.client import AsyncClient as AsyncClient
    from .asynchronous.consumer import AsyncConsumer as AsyncConsumer
    from .asynchronous.worker import AsyncWorker as AsyncWorker
    from .synchronous.client import Client as Client
    from .synchronous.consumer import Consumer as Consumer
    from .synchronous.worker import Worker as Worker

# Loaded when they are first used: a plain program does not need asyncio, and the other way round.
_HOMES = {
    "AsyncClient": "penstock.client.asynchronous.client",
    "AsyncConsumer": "penstock.client.asynchronous.consumer",
    "AsyncWorker": "penstock.client.asynchronous.worker",
    "Client": "penstock.client.synchronous.client",
    "Consumer": "penstock.client.synchronous.consumer",
    "Worker": "penstock.client.synchronous.worker",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
