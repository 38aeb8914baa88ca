"""The ASGI application: finds the route, asks who is there and whether they may, and sends what the route says."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from secrets import token_hex
from typing import Any, NamedTuple

from ...api.answers import ReleaseMember
from ...api.principals import Action
from ...broker.authorise import authorise
from ...config import LimitsConfig
from ...errors import PenstockError
from ...runtime.asynchronous import AsyncDriver
from ..settings import Settings
from .gate import Gate
from .inlet import Inlet
from .key_ends import key_ended
from .known_head import KnownHead
from .metrics import SyncTimes
from .pipelines import Pipelines
from .pressure import Arrivals, BodyMemory, RateLimiter, Room
from .requests import ClientGone, Request
from .responses import Answer, Receive, Response, Send
from .routing import Route, Router, TopicIn
from .sharing import SharedMember, SharedMembers
from .statuses import error_response
from .straight import Outcome
from .traffic import Traffic
from .unread import Unread
from .unsent import Unsent

_REQUEST_ID_MAX = 128
_SAFE = frozenset({"GET", "HEAD"})
# What they answer may be many megabytes.
_LARGE = frozenset({Action.FETCH, Action.CONSUME, Action.SEE_DEAD_LETTERS, Action.SEE_DELAYED})
_UNKNOWN_ROUTE = "unknown"
# What nginx calls it; never sent, only counted.
_CLIENT_GONE = 499
_CUT_OFF = 503


class TurnedAway(NamedTuple):
    """An answer without the headers that all have, and for how many seconds whoever gets it has to stay away."""

    head: bytes
    body: bytes | memoryview
    wait_s: float


def _none() -> int:
    return 0


@cache
def full(limit: int, wait_s: int) -> Response:
    """What is said to somebody who finds no room. There are few waits, and each is made once."""
    return error_response(Room(limit, time.monotonic).refusal(wait_s * 1000))


@dataclass(slots=True, kw_only=True)
class Door:
    """Everything that routes share. Belongs to one event loop."""

    driver: AsyncDriver
    settings: Settings
    gate: Gate
    router: Router
    logger: logging.Logger
    inlet: Inlet
    traffic: Traffic = field(default_factory=Traffic)
    is_draining: bool = False
    started_ns: int = 0
    limits: LimitsConfig = field(init=False)
    # For requests that change something, from the end of their body until they are answered.
    room: Room = field(init=False)
    memory: BodyMemory = field(init=False)
    arrivals: Arrivals = field(init=False)
    unread: Unread = field(init=False)
    unsent: Unsent = field(init=False)
    rate: RateLimiter = field(init=False)
    # The last head that a connection has remembered, as long as that is there.
    known: KnownHead | None = None
    syncs: SyncTimes = field(default_factory=SyncTimes)
    # When the certificate expires, in wall time; 0 without one.
    tls_expires_ns: int = 0
    connections: Callable[[], int] = _none
    # How requests wait that are spread over some time.
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    shared: SharedMembers = field(default_factory=lambda: SharedMembers(time.monotonic))
    pipelines: Pipelines = field(default_factory=Pipelines)
    streams: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)
    _prefix: bytes = field(default_factory=lambda: token_hex(6).encode())

    def __post_init__(self) -> None:
        self.limits = self.settings.limits.limits_config()
        self.room = Room(self.settings.http.requests_max, time.monotonic)
        self.unread = Unread(self.driver.loop, time.monotonic)
        self.unsent = Unsent(self.settings.http.answers_bytes_max)
        http = self.settings.http
        self.memory = BodyMemory(http.bodies_bytes_max, http.client_bodies_bytes_max)
        self.arrivals = Arrivals(
            http.body_timeout_ms / 1000, http.body_bytes_per_s_min, time.monotonic
        )
        self.driver.driver.on_synced(self.syncs.add)
        self.rate = RateLimiter(self.settings.http.requests_per_s, time.monotonic)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing else is switched on"
        if "penstock.place" in scope:
            # From here to the room nothing is awaited, so the place is not taken by somebody else.
            self.room.coming -= 1
        started_ns = time.perf_counter_ns()
        request = Request(scope, receive, self)
        self.name(request)
        route: Route | None = None
        try:
            route, answer = await self._answer(request)
            status = answer.status
            await answer.send(send, request.id, scope)
        except PenstockError as error:
            status = await self._refuse(error_response(error), request, send)
        except ClientGone:
            status = _CLIENT_GONE
        except asyncio.CancelledError:
            status = await self._end_cancelled(request, send)
        except Exception:
            # A bug of ours. uvicorn writes it down and answers; we only see to it that it is counted.
            self.count(request, route, 500, started_ns)
            raise
        self.count(request, route, status, started_ns)

    def count(self, request: Request, route: Route | None, status: int, started_ns: int) -> None:
        method, name = request.scope["method"], _UNKNOWN_ROUTE if route is None else route.path
        duration_ns = time.perf_counter_ns() - started_ns
        self.traffic.count(method, name, status, duration_ns)
        if self.logger.isEnabledFor(logging.DEBUG):
            self.logger.debug(
                "%s %s %d in %.1f ms, request %s, %s",
                method[:20],
                name,
                status,
                duration_ns / 1e6,
                request.id.decode("latin-1"),
                request.principal.name,
            )

    async def _answer(self, request: Request) -> tuple[Route, Answer]:
        outcome = request.scope.get("penstock.outcome")
        if outcome is not None:
            return self._told(request, outcome)
        route = self.admit(request)
        if request.scope["method"] in _SAFE:
            if route.action in _LARGE:
                self.unsent.require_room()
            return route, await route.call(request)
        if not request.is_whole:
            await request.receive_body(is_batch=route.is_batch)
            # A body may take half an hour to come, and its key may have ended meanwhile.
            self.gate.ends.require(request.credential)
        with self.room:
            return route, await route.call(request)

    def _told(self, request: Request, outcome: Outcome) -> tuple[Route, Answer]:
        """What came of a request that was carried out already, on the straight way."""
        if isinstance(outcome, Exception):
            raise outcome
        return self.router.find(request.scope["method"], request.scope["path"])[0], outcome

    @property
    def is_open_house(self) -> bool:
        """Whether what a request says decides about it: there are no keys to look up and no rate to count."""
        return not self.gate.is_on and self.rate.per_s <= 0

    def admit(self, request: Request) -> Route:
        """The route of a request, which may go on: its host, its key, how often it came, and what it wants to do."""
        method, path = request.scope["method"], request.scope["path"]
        self.gate.check_host(request)
        route, request.params = self.router.find(method, path)
        request.action = route.action
        self.gate.check_site(request)
        if not route.is_open:
            self.gate.identify(request, route.path)
            if self.rate.per_s > 0:
                self.rate.admit(request.principal.name if self.gate.is_on else request.client)
            topic = request.params["topic"] if route.topic_in is TopicIn.PATH else None
            self.gate.check(request, topic)
        if method not in _SAFE:
            request.require_readable_body()
        return route

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more. Who was served in this turn of the loop came together with it."""
        room = self.room
        # As the room has it; every request comes by here.
        return room.under_way + room.coming + self.inlet.served_early >= room.limit

    def turn_away(self, headers: Sequence[tuple[bytes, bytes]]) -> TurnedAway:
        """The answer to a request that finds no room.

        Asked by connections before anything is made of a request: who is refused here costs little.
        """
        wait_ms = self.room.wait_ms()
        failure = full(self.room.limit, -(-wait_ms // 1000))
        sent = next((value for name, value in headers if name == b"x-request-id"), None)
        head = failure.head(self._id(sent))
        self.traffic.count("any", _UNKNOWN_ROUTE, failure.status, 0)
        return TurnedAway(head, failure.body, wait_ms / 1000)

    async def _refuse(self, failure: Response, request: Request, send: Send) -> int:
        """What has begun as a yes can only end."""
        connection = request.scope.get("penstock.connection")
        if connection is not None and connection.is_answering:
            connection.cut_off()
        else:
            await failure.send(send, request.id, request.scope)
        return failure.status

    async def _end_cancelled(self, request: Request, send: Send) -> int:
        """Cancelled because the client left, its key ended, or because we stop."""
        task = asyncio.current_task()
        assert task is not None, "requests are tasks"
        connection = request.scope.get("penstock.connection")
        if connection is not None and connection.is_lost:
            task.uncancel()
            return _CLIENT_GONE
        if request.has_key_ended:
            task.uncancel()
            return await self._refuse(error_response(key_ended()), request, send)
        if connection is None or not self.is_draining:
            raise asyncio.CancelledError
        # We stop, and waited for it long enough. What has been done is not known, so there is nothing to say.
        task.uncancel()
        connection.cut_off()
        return _CUT_OFF

    def name(self, request: Request) -> bytes:
        """Give a request its id."""
        asked = request.id_asked
        # As below; most clients leave it to us.
        request.id = found = (
            b"%b-%x" % (self._prefix, next(self._numbers)) if asked is None else self._id(asked)
        )
        return found

    def _id(self, found: bytes | None) -> bytes:
        """The client's, if it is short and printable; otherwise one of ours."""
        if found and len(found) <= _REQUEST_ID_MAX and all(32 < byte < 127 for byte in found):
            return found
        return b"%b-%x" % (self._prefix, next(self._numbers))

    def visible(self, request: Request, topics: Sequence[str]) -> list[str]:
        """Of these topics those that whoever asks may see."""
        return [one for one in topics if request.principal.reaches(one)]

    def require(self, request: Request, action: Action, topic: str | None = None) -> None:
        """For routes whose command depends on what is asked."""
        authorise(request.principal, action, topic)

    def configure(self, settings: Settings) -> None:
        """Take over what a running process can."""
        self.settings = settings
        self.arrivals.seconds = settings.http.body_timeout_ms / 1000
        self.arrivals.bytes_per_s = settings.http.body_bytes_per_s_min
        self.rate.per_s = settings.http.requests_per_s
        self.gate.configure(settings)

    def sweep(self) -> None:
        """What has to happen now and then: end slow bodies and ended keys, miss members."""
        self.arrivals.sweep()
        self.unread.sweep()
        self.gate.sweep()
        for member in self.shared.take_missed():
            self.release_shared(member)

    def release_shared(self, member: SharedMember) -> None:
        """Somebody is gone: what they hold is ready again at once."""
        for topic in member.topics:
            with suppress(PenstockError):
                self.driver.driver.start(ReleaseMember(topic, member.group, member.name))

    def drain(self) -> None:
        """Let everybody go who waits, and say that we are not ready; what is under way is finished."""
        self.is_draining = True
        self.driver.drain()
