# Made from ../asynchronous/prefetch.py by tools/unasync.py; change that one.
"""Fetches one request ahead: the server prepares the next answer while the caller uses this one."""

from collections.abc import Callable
from typing import NamedTuple

from ...errors import Unavailable
from ..calls import Call
from ..fetch import Fetched, FetchRequest, fetch, more_at
from ..wire import Headers
from .io import Connection, OnHead
from .pool import Pool

NextRequest = Callable[[int], FetchRequest | None]
"""The request that follows an answer which ends at an offset; None: no more."""


class _EarlyFetch(NamedTuple):
    request: FetchRequest
    call: Call[Fetched]
    connection: Connection


class Prefetch:
    """Keeps at most one early request under way; `drop` it at the end.

    An early answer is checked like any other. If it fails so that another try may help, it is asked for again when
    the caller wants it.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._early: _EarlyFetch | None = None

    def fetch(self, request: FetchRequest, following: NextRequest) -> Fetched:
        """The answer to a request. The request that follows it is sent as soon as the head of this answer is here."""

        def on_head(headers: Headers) -> None:
            self._begin(following, more_at(headers))

        fetched = self._early_answer(request, on_head)
        if fetched is None:
            fetched = self._pool.run(fetch(request), on_head)
        if self._early is None:
            # The answer came in one piece, and `on_head` was not called.
            self._begin(following, fetched.more_at)
        return fetched

    def _early_answer(self, request: FetchRequest, on_head: OnHead) -> Fetched | None:
        """The answer to the early request; None if it is for another one, or has to be asked for again."""
        early = self._early
        if early is None or early.request != request:
            self.drop()
            return None
        self._early = None
        try:
            return self._pool.end_early(early.call, early.connection, on_head)
        except Unavailable:
            self.drop()
            return None

    def _begin(self, following: NextRequest, offset: int | None) -> None:
        self.drop()
        request = None if offset is None else following(offset)
        if request is None:
            return
        # If the answer is damaged, the second request has the server check it, too, and say where.
        call = fetch(request, is_checked=False)
        connection = self._pool.begin_early(call)
        if connection is not None:
            self._early = _EarlyFetch(request, call, connection)

    def drop(self) -> None:
        """Give up the early request."""
        early, self._early = self._early, None
        if early is not None:
            self._pool.drop_early(early.connection)
