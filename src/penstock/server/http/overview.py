"""What a console begins with: who asks and what they may do, how far groups are behind, and the last hour."""

from heapq import nlargest

import msgspec

from ...api.health import LagFigures, SeeLags
from ...api.json.messages import Int64, Strict
from ...api.json.paging import page_limit
from ...api.json.times import Span, span_ms
from ...api.principals import Action, Role
from ...api.units import time_text
from ...broker.authorise import ALLOWED
from ...observability.recent import STEP_S, Recent
from .requests import Request
from .responses import Answer, Response, encode_json, json_response
from .routing import Route

_MS = 1_000_000


class WhoamiOut(msgspec.Struct):
    """`actions`: what the role may do, under the names that `/openapi.json` has as `x-penstock-command`."""

    name: str
    role: Role
    prefixes: list[str]
    has_key: bool
    actions: list[str]


class LagsQuery(Strict):
    """`max_age`: figures that are not as old will do. For newer ones the broker looks at every partition."""

    limit: Int64 = 100
    max_age: Span = 0


class GroupLagOut(msgspec.Struct):
    group: str
    lag: int
    lag_seconds: float
    in_flight: int
    waiting: int
    dead: int


class LagsOut(msgspec.Struct):
    """The groups that are furthest behind first; `groups` is how many there are, and `total` their lag together."""

    lags: list[GroupLagOut]
    groups: int
    total: int
    lag_seconds: float
    in_flight: int


class RecentOut(msgspec.Struct):
    """Columns with one value for each step; the lag of a group is null where it was not among the furthest behind."""

    step_seconds: int
    times: list[str]
    rates: dict[str, list[float]]
    lag: list[int]
    lag_seconds: list[float]
    in_flight: list[int]
    stored_bytes: list[int]
    topics: list[int]
    disk_free_bytes: list[int]
    groups: dict[str, list[int | None]]


async def whoami(request: Request) -> Answer:
    principal = request.principal
    actions = sorted(one.value for one, roles in ALLOWED.items() if principal.role in roles)
    has_key = request.credential is not None
    return json_response(
        WhoamiOut(principal.name, principal.role, list(principal.prefixes), has_key, actions)
    )


async def lags(request: Request) -> Answer:
    asked, prefixes = request.query(LagsQuery), request.principal.prefixes
    limit, age_ns = page_limit(asked.limit), span_ms("max_age", asked.max_age) * _MS
    recent_figures, clock = request.app.recent, request.app.driver.clock
    found = None if prefixes else recent_figures.lags(clock, age_ns)
    if found is None:
        found = await request.execute(SeeLags(prefixes=prefixes))
        if not prefixes:
            recent_figures.keep_lags(found, clock)
    furthest = nlargest(limit, found, key=lambda name: (found[name].lag, name))
    rows = [_lag_out(name, found[name]) for name in furthest]
    total = sum(one.lag for one in found.values())
    oldest = max((one.lag_seconds for one in found.values()), default=0.0)
    in_flight = sum(one.in_flight for one in found.values())
    return json_response(LagsOut(rows, len(found), total, oldest, in_flight))


def _lag_out(group: str, figures: LagFigures) -> GroupLagOut:
    return GroupLagOut(group, **msgspec.structs.asdict(figures))


async def recent(request: Request) -> Answer:
    """The last hour. A key with prefixes sees the process as a whole, as in `/metrics`, and no group by name."""
    found, has_prefixes = request.app.recent, bool(request.principal.prefixes)
    if has_prefixes not in found.encoded:
        found.encoded[has_prefixes] = encode_json(_recent_out(found, has_prefixes=has_prefixes))
    return Response(found.encoded[has_prefixes])


def _recent_out(found: Recent, *, has_prefixes: bool) -> RecentOut:
    rows = [*found.rows]
    groups = [] if has_prefixes else found.groups()
    names = rows[0].rates if rows else {}
    return RecentOut(
        STEP_S,
        [time_text(row.at_ns) for row in rows],
        {name: [row.rates[name] for row in rows] for name in names},
        [row.lag for row in rows],
        [row.lag_seconds for row in rows],
        [row.in_flight for row in rows],
        [row.stored.size_bytes for row in rows],
        [row.stored.topics for row in rows],
        [row.disk_free_bytes for row in rows],
        {name: [row.group_lags.get(name) for row in rows] for name in groups},
    )


ROUTES = (
    Route(
        method="GET",
        path="/whoami",
        call=whoami,
        action=Action.SEE_HEALTH,
        summary="Whose key this is, and what it may do",
        tag="health",
        answer=WhoamiOut,
    ),
    Route(
        method="GET",
        path="/stats/lag",
        call=lags,
        action=Action.SEE_GROUPS,
        summary="How far all groups are behind, the furthest first",
        tag="health",
        query=LagsQuery,
        answer=LagsOut,
    ),
    Route(
        method="GET",
        path="/stats/recent",
        call=recent,
        action=Action.SEE_STATS,
        summary="Rates and lag of the last hour, in steps of ten seconds",
        tag="health",
        answer=RecentOut,
    ),
)
