"""The HTTP application: finds a request's route, checks its key and rights, and sends the answer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from ...api.health import SeeHealth, SeeLags, SeeStored
from ...api.principals import LOCAL, Action
from ...broker.authorise import authorise
from ...broker.keys import key_ended
from ...config import LimitsConfig
from ...errors import PenstockError
from ...observability.activity import Activity
from ...observability.recent import Recent
from ...ports import Clock
from ...runtime.asynchronous import AsyncDriver
from ..body_memory import BodyMemory
from ..otlp import SpanExport
from ..pipelines import Pipelines
from ..rate_limiter import RateLimiter
from ..send_budget import SendBudget
from ..settings import Settings
from ..shared_members import SharedMember, SharedMembers
from ..standby.leader import LeaderRole
from ..traffic import BinaryTraffic, Traffic
from .auth import Auth
from .limits import Room
from .metrics import SyncTimes
from .publish_coalescer import PublishCoalescer
from .read_pause import ReadPauses
from .requests import SAFE, ClientGone, NoQuery, Request
from .responses import NDJSON, TEXT, Answer, Response
from .routing import Route, Router, TopicIn
from .statuses import error_response

if TYPE_CHECKING:
    from .connection import Connection

_REQUEST_ID_MAX = 128
# To read more of it in one piece would hold all other requests up: lines are read some at a time.
JSON_BYTES_MAX = 8 << 20
# What they answer may be many megabytes.
_LARGE = frozenset({Action.FETCH, Action.CONSUME, Action.SEE_DEAD_LETTERS, Action.SEE_DELAYED})
_UNKNOWN_ROUTE = "unknown"
# What nginx calls it; never sent, only counted.
_CLIENT_GONE = 499
_CUT_OFF = 503
_BUG = 500


class Refusal(NamedTuple):
    """A 429 without the headers that all answers have, and for how many seconds its client has to stay away."""

    fields: bytes
    body: bytes | memoryview
    wait_s: float


@cache
def _full(limit: int, wait_s: int) -> Response:
    """The answer to a request that finds no room. There are few waits, and each is made once."""
    return error_response(Room(limit, time.monotonic).refusal(wait_s * 1000))


@dataclass(slots=True, kw_only=True)
class App:
    """Everything that requests share. Belongs to one event loop."""

    driver: AsyncDriver
    settings: Settings
    auth: Auth
    router: Router
    logger: logging.Logger
    clock: Clock
    coalescer: PublishCoalescer
    activity: Activity
    traffic: Traffic = field(default_factory=Traffic)
    is_draining: bool = False
    started_ns: int = 0
    limits: LimitsConfig = field(init=False)
    # For requests that change something, from the end of their body until they are answered.
    room: Room = field(init=False)
    memory: BodyMemory = field(init=False)
    read_pauses: ReadPauses = field(init=False)
    send_budget: SendBudget = field(init=False)
    rate: RateLimiter = field(init=False)
    syncs: SyncTimes = field(default_factory=SyncTimes)
    # When the certificate expires, in wall time; 0 without one.
    tls_expires_ns: int = 0
    connections: set["Connection"] = field(default_factory=set)
    # Set when a connection has ended.
    has_lost: asyncio.Event = field(default_factory=asyncio.Event)
    # Requests that have a task.
    running: set[Request] = field(default_factory=set)
    now: Callable[[], float] = time.monotonic
    # How requests wait that are spread over some time.
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    shared: SharedMembers = field(default_factory=lambda: SharedMembers(time.monotonic))
    pipelines: Pipelines = field(init=False)
    spans: SpanExport | None = None
    # With a standby.
    leading: LeaderRole | None = None
    recent: Recent = field(default_factory=Recent)
    # Of the other port, which counts here.
    binary: BinaryTraffic = field(default_factory=BinaryTraffic)
    streams: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)
    _prefix: bytes = field(default_factory=lambda: token_hex(6).encode())

    def __post_init__(self) -> None:
        http = self.settings.http
        self.limits = self.settings.limits.limits_config()
        self.pipelines = Pipelines(self.limits)
        self.room = Room(http.requests_max, time.monotonic)
        self.read_pauses = ReadPauses(self.driver.loop, time.monotonic)
        self.send_budget = SendBudget(http.answers_bytes_max)
        self.memory = BodyMemory(http.bodies_bytes_max, http.client_bodies_bytes_max)
        self.driver.driver.on_synced(self.syncs.add)
        self.rate = RateLimiter(http.requests_per_s, time.monotonic)

    def begin(self, request: Request) -> None:
        """Have a task answer a request."""
        self.running.add(request)
        request.task = self.driver.loop.create_task(self._serve(request))

    async def _serve(self, request: Request) -> None:
        """Answer a request, count it, and let its connection go on."""
        started_ns = time.perf_counter_ns()
        request.id = self._id(request.header(b"x-request-id"))
        status = _CLIENT_GONE
        try:
            status = await self._respond(request)
        except ClientGone:
            pass
        except Exception:
            self.logger.exception("a request failed: %s %s", request.method, request.path[:200])
            status = await self._answer_bug(request)
        finally:
            self.running.discard(request)
            if request.has_place:
                self.room.leave()
            self._count(request, status, started_ns)
            request.connection.end_answer(request)

    async def _respond(self, request: Request) -> int:
        """The status of the answer that was sent."""
        connection, failure = request.connection, None
        try:
            answer = await self._answer(request)
            await answer.send(request)
            return answer.status
        except PenstockError as error:
            failure = self._failure(request, error)
        except asyncio.CancelledError:
            if connection.is_over:
                return _CLIENT_GONE
            if request.has_key_ended:
                failure = error_response(key_ended())
            elif self.is_draining:
                # The server stops, and waited long enough. What has been done is not known, so nothing is said.
                connection.cut_off()
                return _CUT_OFF
            else:
                raise
        request.drop_body()
        if connection.is_answering:
            # What has begun as a yes can only end.
            connection.cut_off()
        else:
            await failure.send(request)
        return failure.status

    def _failure(self, request: Request, error: PenstockError) -> Response:
        """The answer that says no, as the route has it, if there is one."""
        with suppress(PenstockError):
            route, _ = self.router.find(request.method, request.path)
            if route.refusal is not None:
                return route.refusal(error, request)
        return error_response(error)

    async def _answer(self, request: Request) -> Answer:
        route = self.admit(request)
        request.route = route
        if request.method in SAFE:
            if route.action in _LARGE:
                self.send_budget.require_room()
            return await route.call(request)
        await request.receive_body(*self._body_limit(route, request))
        if not request.has_place:
            raise self.room.refusal(self.room.wait_ms())
        return await route.call(request)

    def _body_limit(self, route: Route, request: Request) -> tuple[int, str]:
        """How many bytes a body may have, and what a client can do that has more."""
        most = self.settings.http.body_bytes_max
        if route.is_batch:
            return self.limits.batch_bytes_max, ""
        if request.content_type == NDJSON or most <= JSON_BYTES_MAX:
            return most, ""
        if NDJSON.decode() in route.other_bodies:
            return JSON_BYTES_MAX, "send more as application/x-ndjson, or in batches"
        return JSON_BYTES_MAX, "send less at once"

    async def _answer_bug(self, request: Request) -> int:
        request.drop_body()
        if request.connection.is_answering:
            request.connection.cut_off()
        else:
            with suppress(ClientGone):
                await Response(b"Internal Server Error", _BUG, TEXT, is_last=True).send(request)
        return _BUG

    def _count(self, request: Request, status: int, started_ns: int) -> None:
        method, route = request.method, request.route
        name = _UNKNOWN_ROUTE if route is None else route.path
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

    def admit(self, request: Request) -> Route:
        """The route of a request, which may go on: its host, its key, how often it came, and what it wants to do."""
        method = request.method
        self.auth.check_host(request)
        route, request.params = self.router.find(method, request.path)
        request.action = route.action
        self.auth.check_site(request)
        if not route.is_open:
            self.auth.identify(request, route.path)
            if self.rate.limit > 0:
                self.rate.admit(request.principal.name if self.auth.is_on else request.client)
            topic = request.params["topic"] if route.topic_in is TopicIn.PATH else None
            self.auth.check(request, topic)
        if request.query_string and route.refuses_queries:
            request.query(NoQuery)
        if method not in SAFE:
            request.require_readable_body()
        return route

    def refuse(self, headers: Mapping[bytes, bytes]) -> Refusal:
        """The answer to a request with these headers that finds no room.

        Connections ask before a request is made, a route is found or a key is looked up: to refuse has to cost little.
        """
        wait_ms = self.room.wait_ms()
        failure = _full(self.room.limit, -(-wait_ms // 1000))
        self.traffic.count("any", _UNKNOWN_ROUTE, failure.status, 0)
        fields = failure.fields(self._id(headers.get(b"x-request-id")))
        return Refusal(fields, failure.body, wait_ms / 1000)

    def _id(self, found: bytes | None) -> bytes:
        """The client's, if it is short and printable; otherwise one of ours."""
        if found and len(found) <= _REQUEST_ID_MAX and all(32 < byte < 127 for byte in found):
            return found
        return b"%b-%x" % (self._prefix, next(self._numbers))

    def visible(self, request: Request, topics: Sequence[str]) -> list[str]:
        """Of these topics those that the principal of the request reaches."""
        return [one for one in topics if request.principal.reaches(one)]

    def require(self, request: Request, action: Action, topic: str | None = None) -> None:
        """For routes whose command depends on what is asked."""
        authorise(request.principal, action, topic)

    def configure(self, settings: Settings) -> None:
        """Take over what a running process can."""
        self.settings = settings
        self.rate.limit = settings.http.requests_per_s
        self.auth.configure(settings)

    def sweep(self) -> None:
        """Every second: end what is late, requests of keys that ended, and members that were not heard of."""
        now = self.now()
        late = [one for one in self.connections if one.read_due_s <= now or one.write_due_s <= now]
        for one in late:
            one.look(now)
        self.read_pauses.sweep()
        self.auth.sweep()
        for member in self.shared.take_missed():
            self.release_shared(member)

    async def sample(self) -> None:
        """Take a row of the figures of the last hour."""
        lags = await self.driver.execute(SeeLags(), LOCAL)
        free_bytes = (await self.driver.execute(SeeHealth(), LOCAL)).free_bytes
        stored = await self.driver.execute(SeeStored(), LOCAL)
        self.recent.add(self.driver.clock, self.activity, lags, stored, free_bytes)

    def release_shared(self, member: SharedMember) -> None:
        """Make the messages that a member holds ready again, at once."""
        for topic in member.topics:
            with suppress(PenstockError):
                self.driver.start(member.release(topic))

    def drain(self) -> None:
        """End the waits of long polls and streams, and say that the server is not ready; the rest is finished."""
        self.is_draining = True
        self.driver.drain()

    async def stop(self) -> None:
        """End all connections: idle ones at once, the others with their answers, or without after a while."""
        for one in [*self.connections]:
            one.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.http.drain_timeout_ms / 1000):
                while self.connections:
                    self.has_lost.clear()
                    await self.has_lost.wait()
        tasks = [one.task for one in self.running if one.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        for connection in [*self.connections]:
            connection.cut_off()
