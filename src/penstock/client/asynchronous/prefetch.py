"""Reading one request ahead: the server prepares what comes next while this is received, checked and used."""

from collections.abc import Callable
from typing import NamedTuple

from ...errors import Unavailable
from ..calls import Call
from ..fetch import Fetched, FetchRequest, fetch, more_at
from ..wire import Headers
from .io import Connection, OnHead
from .pool import AsyncPool

Following = Callable[[int], FetchRequest | None]
"""What will be asked for next, given where an answer ends; None: nothing."""


class _Early(NamedTuple):
    """A request that nobody waits for yet."""

    asked: FetchRequest
    call: Call[Fetched]
    connection: Connection


class AsyncPrefetch:
    """At most one request is under way beside the one that somebody waits for. `drop` it when nobody will.

    An answer that was asked for early is as good as any: it is checked in the same way, and if it fails so that
    another try may mend it, it is asked for again in its turn.
    """

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool
        self._next: _Early | None = None

    async def fetch(self, asked: FetchRequest, following: Following) -> Fetched:
        """What was asked for; what follows it is under way from then on."""

        async def on_head(headers: Headers) -> None:
            await self._begin(following, more_at(headers))

        fetched = await self._early(asked, on_head)
        if fetched is None:
            fetched = await self._pool.run(fetch(asked), on_head)
        if self._next is None:
            # It came in one piece.
            await self._begin(following, fetched.more_at)
        return fetched

    async def _early(self, asked: FetchRequest, on_head: OnHead) -> Fetched | None:
        """The answer that was asked for before; None if there is none, or if it has to be asked for again."""
        early = self._next
        if early is None or early.asked != asked:
            self.drop()
            return None
        self._next = None
        try:
            return await self._pool.end_early(early.call, early.connection, on_head)
        except Unavailable:
            self.drop()
            return None

    async def _begin(self, following: Following, more_at: int | None) -> None:
        self.drop()
        asked = None if more_at is None else following(more_at)
        if asked is None:
            return
        # If it is damaged it is asked for again, and then the server looks, too, and says where.
        call = fetch(asked, is_checked=False)
        connection = await self._pool.begin_early(call)
        if connection is not None:
            self._next = _Early(asked, call, connection)

    def drop(self) -> None:
        """What was asked for early is not needed."""
        early, self._next = self._next, None
        if early is not None:
            self._pool.drop_early(early.connection)
