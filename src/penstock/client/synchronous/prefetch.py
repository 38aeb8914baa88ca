# Made from ../asynchronous/prefetch.py by tools/unasync.py; change that one.
"""Fetches one request ahead: the server prepares the next reply while the caller uses this one."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ...api.units import duration_s
from ...errors import PartitionFaulty, PenstockError, Unavailable
from ..calls import Call
from ..fetch import Fetched, FetchRequest, fetch_command, fetched_of
from ..retry import chance
from .connector import Connector, Sent
from .io import sleep

NextRequest = Callable[[int], FetchRequest | None]
"""The request that follows a reply which ends at an offset; None: no more."""


class _EarlyFetch(NamedTuple):
    request: FetchRequest
    sent: Sent


class Prefetch:
    """Keeps at most one early request under way; `drop` it at the end.

    An early reply is checked like any other. If it fails so that another try may help, it is asked for again when
    the caller wants it.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._early: _EarlyFetch | None = None

    def fetch(self, request: FetchRequest, following: NextRequest) -> Fetched:
        """The reply to a request. The request that follows it is sent before this returns."""
        fetched = self._early_reply(request)
        if fetched is None:
            fetched = fetch(self._connector, request)
        following_request = None if fetched.more_at is None else following(fetched.more_at)
        if following_request is not None:
            self._begin(following_request)
        return fetched

    def _early_reply(self, request: FetchRequest) -> Fetched | None:
        """The reply to the early request; None if it is for another one, or has to be asked for again."""
        early = self._early
        if early is None or early.request != request:
            self.drop()
            return None
        self._early = None
        try:
            reply = self._connector.end(early.sent, is_early=True)
            return fetched_of(reply.value, self._connector.name)
        except Unavailable:
            return None

    def _begin(self, request: FetchRequest) -> None:
        # A server that did not answer before gets no early requests.
        if self._connector.breaker.failures:
            return
        # If the reply is damaged, the second request has the server check it, too, and say where.
        command = fetch_command(request, is_checked=False)
        try:
            sent = self._connector.begin(Call(command, wait_s=duration_s(request.timeout)))
        except Unavailable:
            return
        self._early = _EarlyFetch(request, sent)

    def drop(self) -> None:
        """Give up the early request."""
        early, self._early = self._early, None
        if early is not None:
            early.sent.pending.cancel()


def fetch(connector: Connector, request: FetchRequest, *, patience_s: float = 0.0) -> Fetched:
    """The reply to a request, after as many tries as the policy allows, also if what comes is damaged.

    For `patience_s` from the first of them on it is asked for again while the server is away.
    """
    command, wait_s = fetch_command(request), duration_s(request.timeout, "timeout")
    tries, until_s = 0, connector.until_s(wait_s)
    patient_until_s = time.monotonic() + patience_s
    while True:
        tries += 1
        try:
            reply = connector.end(connector.begin(Call(command, wait_s=wait_s)))
            return fetched_of(reply.value, connector.name)
        except PenstockError as error:
            if connector.pause(error, tries, until_s, is_repeatable=True):
                continue
            is_away = isinstance(error, Unavailable) and not isinstance(error, PartitionFaulty)
            if not is_away or time.monotonic() >= patient_until_s:
                raise
            sleep(connector.retry.pause_s(tries, chance()))
