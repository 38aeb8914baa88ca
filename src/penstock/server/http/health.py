"""Health, version and figures."""

from contextlib import suppress
from functools import cache
from importlib.metadata import version as version_of
from typing import Any

import msgspec

from ...api.bounds import NAMES_MAX
from ...api.health import (
    PASS,
    Check,
    Damage,
    DeliveryFigures,
    Findings,
    SeeHealth,
    SeeReliability,
    health_word,
    status_of,
)
from ...api.json.messages import Strict
from ...api.principals import Action, Principal
from ...api.topics import DescribeTopics, ListTopics, TopicDescription
from ...api.units import time_text
from ...broker.authorise import authorise
from ...errors import Draining, Forbidden, TooManyRequests, Unauthenticated
from .auth import key_sent
from .metrics import render_metrics
from .requests import Request
from .responses import Answer, Response, json_response
from .routing import Route

_S = 1_000_000_000
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class HealthQuery(Strict):
    """`verbose`, without a value or with any but `false`: list what the start found and did, and what is damaged."""

    verbose: str | None = None

    @property
    def is_verbose(self) -> bool:
        return self.verbose not in (None, "false", "False", "0")


class RecoveryOut(msgspec.Struct):
    """One thing that the start found or did; `path` is relative to the data directory."""

    kind: str
    path: str
    position: int
    size_bytes: int
    reason: str
    topic: str
    partition: int


class FaultyOut(msgspec.Struct):
    """A partition that refuses everything."""

    topic: str
    partition: int
    reason: str


class BrokerOut(msgspec.Struct):
    node_id: str
    version: str


class HealthOut(msgspec.Struct, omit_defaults=True):
    """`status` is `pass`, or `warn` if one of the `checks` is; of `/health` it is `ok` or `degraded`.

    `/readyz` has `checks` with `verbose` alone. `recovery`, `faulty` and `damaged` are there with `verbose`, for
    clients that may see statistics.
    """

    status: str
    timestamp: str
    uptime: str
    broker: BrokerOut
    checks: dict[str, Check] | None = None
    # With a standby.
    role: str | None = None
    recovery: list[RecoveryOut] | None = None
    faulty: list[FaultyOut] | None = None
    damaged: list[Damage] | None = None


class VersionOut(msgspec.Struct):
    version: str
    broker: str


class StatsOut(msgspec.Struct):
    node_id: str
    uptime: str
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, Any]


class ReliabilityOut(msgspec.Struct):
    """By group: what is lent, waits for a retry, was given up, expired, or was lost to retention or damage."""

    in_flight: int
    waiting: int
    dead: int
    expired: int
    skipped: int
    groups: dict[str, DeliveryFigures]


def uptime_text(request: Request) -> str:
    """A duration as requests take them, such as `86400.5s`."""
    clock = request.app.driver.clock
    return f"{(clock.monotonic_ns() - request.app.started_ns) / _S:.3f}s"


async def live(request: Request) -> Answer:
    """The process answers."""
    request.query(HealthQuery)
    return json_response(_health(request, {"process": Check(PASS, "ok")}))


async def see_health(request: Request) -> Answer:
    """How the broker is. 503 while stopping."""
    out = await _seen(request)
    out.status = health_word(out.status)
    return json_response(out)


async def check(request: Request) -> Answer:
    """Requests are welcome. 503 while stopping."""
    return json_response(await _seen(request))


async def ready(request: Request) -> Answer:
    """Requests are welcome. 503 while stopping."""
    out = await _seen(request)
    if not request.query(HealthQuery).is_verbose:
        out.checks = None
    return json_response(out)


async def _seen(request: Request) -> HealthOut:
    asked = request.query(HealthQuery)
    app = request.app
    if app.is_draining:
        raise Draining
    health = await request.execute(SeeHealth())
    checks = health.checks()
    checks["auth"] = Check(PASS, "on" if app.auth.is_on else _open_word(request))
    if app.leading is not None:
        checks["replication"] = app.leading.check()
    out = _health(request, checks)
    principal = _reader_of(request) if asked.is_verbose else None
    if principal is not None:
        _list(out, health.findings.seen_by(principal))
    return out


def _reader_of(request: Request) -> Principal | None:
    """Who asks, if they may see statistics. A probe without a key, or with a wrong one, still gets its answer."""
    auth = request.app.auth
    # A probe that sends none is no attempt to get in, and no line in the audit log.
    if auth.is_on and not key_sent(request):
        return None
    with suppress(Unauthenticated, Forbidden, TooManyRequests):
        auth.identify(request, "/readyz")
        authorise(request.principal, Action.SEE_STATS)
        return request.principal
    return None


def _list(out: HealthOut, findings: Findings) -> None:
    out.recovery = [
        RecoveryOut(
            one.kind.value,
            one.path,
            one.position,
            one.size_bytes,
            one.reason,
            one.topic,
            one.partition,
        )
        for one in findings.recovery
    ]
    out.faulty = [FaultyOut(one.topic, one.partition, one.reason) for one in findings.faulty]
    out.damaged = findings.damaged


def _open_word(request: Request) -> str:
    is_insecure = not request.app.settings.broker.is_loopback
    return (
        "OFF, and reachable from elsewhere (auth.insecure)"
        if is_insecure
        else "off, this machine only"
    )


def _health(request: Request, checks: dict[str, Check]) -> HealthOut:
    now_ns = request.app.driver.clock.now_ns()
    broker = BrokerOut(request.app.settings.broker.id, _version())
    leading = request.app.leading
    role = None if leading is None else leading.membership.role.value
    uptime = uptime_text(request)
    return HealthOut(status_of(checks), time_text(now_ns), uptime, broker, checks, role)


@cache
def _version() -> str:
    """Read from the package's metadata once: that takes milliseconds, and the route is open to all."""
    return version_of("penstock")


async def version(request: Request) -> Answer:
    return json_response(VersionOut(_version(), request.app.settings.broker.id))


async def stats(request: Request) -> Answer:
    """All topics with their sizes."""
    names = await request.execute(ListTopics(request.principal.prefixes))
    topics: list[TopicDescription] = []
    for start in range(0, len(names), NAMES_MAX):
        part = await request.execute(DescribeTopics(names[start : start + NAMES_MAX]))
        topics += part
    shown = {
        one.name: {
            "partitions": len(one.partitions),
            "messages": sum(part.messages for part in one.partitions),
            "size_bytes": sum(part.size_bytes for part in one.partitions),
        }
        for one in topics
    }
    total = sum(one["size_bytes"] for one in shown.values())
    broker = request.app.settings.broker.id
    return json_response(StatsOut(broker, uptime_text(request), len(shown), total, shown))


async def reliability(request: Request) -> Answer:
    """What became of deliveries."""
    groups = await request.execute(SeeReliability(prefixes=request.principal.prefixes))
    totals = {
        name: sum(getattr(one, name) for one in groups.values())
        for name in DeliveryFigures.__struct_fields__
    }
    return json_response(ReliabilityOut(**totals, groups=groups))


async def metrics(request: Request) -> Answer:
    """For Prometheus. Rendered in a thread: with thousands of series it takes as long as hundreds of publishes."""
    app = request.app
    body = await app.driver.in_thread(lambda: render_metrics(app, request.principal))
    return Response(body, 200, METRICS_TYPE)


def _health_route(path: str, call: Any, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        call=call,
        action=Action.SEE_HEALTH,
        summary=summary,
        tag="health",
        query=HealthQuery,
        answer=HealthOut,
        errors=() if call is live else (Draining,),
        is_open=True,
    )


ROUTES = (
    _health_route("/health", see_health, "Whether the broker is ready, and how it is"),
    _health_route("/healthz", check, "Whether the broker is ready"),
    _health_route("/readyz", ready, "Whether the broker is ready, in short"),
    _health_route("/livez", live, "Whether the process answers"),
    Route(
        method="GET",
        path="/version",
        call=version,
        action=Action.SEE_HEALTH,
        summary="The version of the broker",
        tag="health",
        answer=VersionOut,
        is_open=True,
    ),
    Route(
        method="GET",
        path="/stats",
        call=stats,
        action=Action.SEE_STATS,
        summary="Sizes of everything",
        tag="health",
        answer=StatsOut,
    ),
    Route(
        method="GET",
        path="/reliability/stats",
        call=reliability,
        action=Action.SEE_STATS,
        summary="What became of deliveries, by group",
        tag="health",
        answer=ReliabilityOut,
    ),
    Route(
        method="GET",
        path="/metrics",
        call=metrics,
        action=Action.SEE_STATS,
        summary="Metrics for Prometheus",
        tag="health",
        other_answers={METRICS_TYPE.decode(): "the text format"},
    ),
)
