"""A small publish, straight from its bytes to the log.

Whoever publishes one by one says the same every time but for the body, so a connection keeps the request that it once
made of that. Each body is put to the same questions with it: `Door.admit` has all of them, on every way. What this one
leaves out is what only serves to wait: a task, futures, uvicorn's cycle. If there is anything else to say than yes,
the usual way says it.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import PenstockError
from .requests import Request
from .responses import JSON, FromFile, Receive, Response
from .routing import Route

if TYPE_CHECKING:
    from ..settings import Settings
    from .door import Door

T = TypeVar("T")
Outcome = Response | FromFile | Exception
Send = Callable[[bytes, bytes | memoryview], None]
"""Sends head and body of an answer that is a yes."""

_OK = 200


class Entrance:
    """The door's questions about requests with one head, asked again only where the answers can differ.

    A key may end and a rate is counted, so there they are asked each time; without both, only new settings matter.
    """

    __slots__ = ("_door", "_request", "_settings")

    def __init__(self, door: "Door", request: Request) -> None:
        self._door, self._request = door, request
        self._settings: Settings | None = None

    def admit(self) -> None:
        door = self._door
        if self._settings is not door.settings:
            door.admit(self._request)
            self._settings = door.settings if door.is_open_house else None


class Straight:
    """For requests with one head. Belongs to the connection that has seen it."""

    __slots__ = ("_at_once", "_door", "_entrance", "_request", "_route")

    def __init__(self, door: "Door", request: Request, route: Route) -> None:
        assert route.at_once is not None, "the others are not kept"
        self._door, self._request, self._route = door, request, route
        self._at_once = route.at_once
        self._entrance = Entrance(door, request)

    @classmethod
    def of(cls, door: "Door", scope: Mapping[str, Any], receive: Receive) -> "Straight | None":
        """None: such requests go the usual way."""
        try:
            route, params = door.router.find(scope["method"], scope["path"])
        except PenstockError:
            return None
        request = Request(scope, receive, door)
        request.params = params
        is_plain = request.content_type == JSON and request.header(b"content-encoding") is None
        if route.at_once is None or scope["query_string"] or not is_plain:
            return None
        return cls(door, request, route)

    def serve(self, body: bytes, send: Send) -> bool | Outcome:
        """Carry a request out and send the answer. False: nothing was done; an outcome is for the usual way to tell."""
        request, door = self._request, self._door
        started_ns = time.perf_counter_ns()
        # Its connection has just seen that there is room, and nobody else comes in before this is done.
        response = outcome_of(self._at_once, request, body, self._entrance.admit)
        if response is None:
            return False
        if isinstance(response, Exception) or response.status != _OK or response.headers:
            return response
        send(response.head(door.name(request)), response.body)
        door.count(request, self._route, _OK, started_ns)
        return True


def outcome_of(work: Callable[..., T], *given: object) -> T | Exception:
    """What work returns, or what it raises: the usual way knows what to do about errors, and about bugs of ours."""
    try:
        return work(*given)
    except Exception as error:
        return error
