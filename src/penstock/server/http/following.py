"""Who follows a partition: straight from the bytes of a request to those of its answer, with a wait in between.

A follower asks for the same again and again but for the offset, so its connection keeps the request that it once made
of that, as for a publish (`straight`). While it waits there is no task: the partition calls when it grows.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...api.fetch import Fetch, FetchReply
from ...api.start import Start
from ...errors import PenstockError
from .consuming import poll_timeout_ns
from .key_ends import key_ended
from .reading import asked_of, batches, fetch, is_checked_here
from .requests import Request
from .responses import BATCH, COPIED_BYTES_MAX, Receive, is_for_pieces
from .routing import Route
from .straight import Entrance, Outcome, Send, outcome_of

if TYPE_CHECKING:
    from ...runtime.asynchronous import Place
    from .door import Door

_S_NS = 1_000_000_000
_OK = 200
# As `reading` has them.
_HEAD = (
    b"x-request-id: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
    b"penstock-offset: %d\r\npenstock-next-offset: %d\r\npenstock-earliest: %d\r\n"
    b"penstock-latest: %d\r\npenstock-seed: %d\r\n"
)
Tell = Callable[[Outcome], None]
"""Takes what has to be told the usual way."""


class Follower:
    """For requests with one head, one at a time. Belongs to the connection that has seen it."""

    def __init__(self, door: "Door", request: Request, route: Route) -> None:
        self._door, self._request, self._route = door, request, route
        self._entrance = Entrance(door, request)
        self._asked, self._settings = asked_of(request), door.settings
        self._is_checked = is_checked_here(request)
        self._wait_s = poll_timeout_ns(request, self._asked.timeout) / _S_NS
        self._topic, self._partition = request.params["topic"], int(request.params["partition"])
        self._started_ns = 0
        # What is waited for, with the timer that ends the wait; and whether it is about to end.
        self._place: Place | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    @classmethod
    def of(cls, door: "Door", scope: Mapping[str, Any], receive: Receive) -> "Follower | None":
        """None: such requests go the usual way."""
        request = Request(scope, receive, door)
        try:
            route, request.params = door.router.find(scope["method"], scope["path"])
            if route.call is not fetch or not request.accepts(BATCH):
                return None
            found = cls(door, request, route)
        except PenstockError:
            return None
        # Whatever else a query says may be wrong beside an offset, which is for the usual way to tell.
        is_usual = found._asked.from_time is None and found._asked.encoding is None
        return found if is_usual else None

    @property
    def is_current(self) -> bool:
        """Whether the settings are still those that it was made for."""
        return self._settings is self._door.settings

    @property
    def is_waiting(self) -> bool:
        return self._place is not None

    def begin(self, offset: int, send: Send, tell: Tell) -> None:
        """Answer, now or when there is something to say."""
        self._started_ns = time.perf_counter_ns()
        self._send, self._tell = send, tell
        driver = self._door.driver
        fetched = outcome_of(self._admitted, offset)
        is_over = isinstance(fetched, Exception) or fetched.wake_at is None
        if is_over or not self._wait_s or driver.is_draining:
            self._answer(fetched)
            return
        try:
            self._door.gate.ends.watch(self._request.credential, self._key_ended)
        except PenstockError as error:
            self._answer(error)
            return
        place = (self._topic, self._partition, offset)
        self._place, self._is_woken = place, False
        self._timer = driver.loop.call_later(self._wait_s, self._end, place)
        driver.sit(place, self._wake)

    def _admitted(self, offset: int) -> FetchReply:
        self._entrance.admit()
        return self._fetched(offset)

    def _fetched(self, offset: int) -> FetchReply:
        self._door.unsent.require_room()
        asked, start = self._asked, Start.at_offset(offset)
        command = Fetch(
            self._topic, self._partition, start, asked.max_bytes, asked.limit, self._is_checked
        )
        return self._door.driver.driver.execute(command, self._request.principal)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._door.driver.call_from_anywhere(partial(self._end, self._place))

    def leave(self) -> None:
        """Wait no longer, and say nothing."""
        if self._place is not None and self._timer is not None:
            self._timer.cancel()
            self._door.driver.rise(self._place, self._wake)
            self._door.gate.ends.unwatch(self._request.credential, self._key_ended)
            self._place = None

    def _key_ended(self) -> None:
        self.leave()
        self._tell(key_ended())

    def _end(self, place: "Place | None") -> None:
        # It may have ended otherwise, and another wait begun, for the same place even.
        if place is None or self._place is not place:
            return
        # First things first: somebody waits for the answer, and nobody for the rest.
        bug = outcome_of(self._answer, outcome_of(self._fetched, place[2]))
        self.leave()
        if bug is not None:
            # For the loop to tell, and not for whoever published what was waited for.
            self._door.driver.loop.call_soon(_raise, bug)

    def _answer(self, found: FetchReply | Exception) -> None:
        if isinstance(found, Exception):
            self._tell(found)
            return
        size = len(found.data)
        is_large = size > COPIED_BYTES_MAX and is_for_pieces(self._request.scope, size)
        if is_large or found.file_range is not None or found.skipped:
            self._tell(batches(found))
            return
        name = self._door.name(self._request)
        places = (found.offset, found.next_offset, found.start_offset, found.end_offset, found.seed)
        self._send(_HEAD % (name, BATCH, size, *places), found.data)
        self._door.count(self._request, self._route, _OK, self._started_ns)


def _raise(error: Exception) -> None:
    raise error
