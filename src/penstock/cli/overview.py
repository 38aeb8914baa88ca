"""The figures of `penstock top`: one query of a server, and rates since the query before."""

import time
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..client import Client
    from ..client.topics import Topic

# Each of them costs two requests: of more groups, those that are furthest behind are shown.
GROUPS_MAX = 200
LANES = ("critical", "high", "normal", "low", "background")


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic. `written` counts all messages that were ever appended, `lanes` what waits in each priority."""

    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    delayed: int
    written: int
    lanes: tuple[int, ...] = ()
    written_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group. `finished` counts finished messages; `lag_seconds` is the age of the oldest that is not."""

    group: str
    topics: tuple[str, ...]
    lag: int
    lag_seconds: float
    in_flight: int
    waiting: int
    dead: int
    finished: int
    finished_per_s: float | None = None
    # Those that polled of late, or hold messages.
    members: int = 0


@dataclass(frozen=True, slots=True)
class StandbyLine:
    """A standby that is connected: what it has not confirmed, and for how long the oldest of that waits."""

    node: int
    is_in_sync: bool
    lag_bytes: int
    lag_s: float


@dataclass(frozen=True, slots=True)
class Replication:
    """A broker that has standbys. `in_sync` counts its machine, too; `uncommitted` counts appends."""

    in_sync: int
    min_isr: int
    uncommitted: int
    standbys: list[StandbyLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Overview:
    """The figures of a server at one time. What a route of HTTP shows, too, has its name there."""

    server: str
    node_id: str
    uptime: float
    total_size_bytes: int
    seen_s: float
    topics: list[TopicLine] = field(default_factory=list)
    groups: list[GroupLine] = field(default_factory=list)
    # None: the broker has no standby, or does not say.
    replication: Replication | None = None

    def record(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["seen_s"]
        for one in fields["topics"]:
            one["lanes"] = dict(zip(LANES, one["lanes"], strict=False))
        return fields


def query_overview(client: "Client", before: Overview | None = None) -> Overview:
    """Ask the server for all figures: of the `GROUPS_MAX` groups that are furthest behind, without those that are
    deleted meanwhile.
    """
    stats, delays, lanes = client.stats(), client.delay_stats(), client.lanes()
    seen_s = time.monotonic()
    elapsed_s = 0.0 if before is None else seen_s - before.seen_s
    earlier_topics = {} if before is None else {one.name: one.written for one in before.topics}
    earlier_groups = {} if before is None else {one.group: one.finished for one in before.groups}
    topics = [
        _topic_line(
            one,
            delays.by_topic.get(one.name, {}).get("pending", 0),
            lanes.topics.get(one.name),
            _EarlierCount(earlier_topics.get(one.name), elapsed_s),
        )
        for one in client.describe_topics()
    ]
    groups = _group_lines(
        client, {name: _EarlierCount(n, elapsed_s) for name, n in earlier_groups.items()}
    )
    # A broker without a standby, or without HTTP, is not asked again.
    is_asked = before is None or before.replication is not None
    return Overview(
        client.url,
        stats.node_id,
        stats.uptime,
        stats.total_size_bytes,
        seen_s,
        topics,
        groups,
        _replication(client) if is_asked else None,
    )


def _replication(client: "Client") -> Replication | None:
    from ..client.http_page import client_call
    from ..errors import Forbidden, NotFound, Unreachable

    try:
        found = client_call(client, "/cluster")
    except (NotFound, Forbidden, Unreachable):
        return None
    return Replication(
        found["in_sync"],
        found["min_isr"],
        found["sequence"] - found["committed"],
        [standby_line(one) for one in found["standbys"]],
    )


def standby_line(found: dict[str, Any]) -> StandbyLine:
    """A standby as its leader tells it."""
    return StandbyLine(found["node"], found["is_in_sync"], found["lag_bytes"], found["lag_s"])


@dataclass(frozen=True, slots=True)
class _EarlierCount:
    """A count of the query before."""

    count: int | None
    elapsed_s: float

    def rate(self, now: int) -> float | None:
        if self.count is None or self.elapsed_s <= 0:
            return None
        # The count of a group that was reset, or of a topic that was made again, goes back.
        return max(0, now - self.count) / self.elapsed_s


_NEVER = _EarlierCount(None, 0.0)


def _topic_line(
    one: "Topic", delayed: int, lanes: dict[str, Any] | None, earlier: _EarlierCount
) -> TopicLine:
    written = sum(ends.latest for ends in one.partition_offsets.values())
    parts = [] if lanes is None else [part["ready"] for part in lanes["partitions"].values()]
    return TopicLine(
        one.name,
        one.partitions,
        one.total_messages,
        one.total_size_bytes,
        delayed,
        written,
        tuple(map(sum, zip(*parts, strict=True))),
        earlier.rate(written),
    )


def _group_lines(client: "Client", earlier: dict[str, _EarlierCount]) -> list[GroupLine]:
    from ..api.health import LagFigures, SeeLags
    from ..errors import NotFound

    figures, groups = client.reliability().groups, client.groups()
    if len(groups) > GROUPS_MAX:
        lags = client.execute(SeeLags())
        furthest = nlargest(
            GROUPS_MAX, groups, key=lambda one: lags.get(one.group, LagFigures()).lag
        )
        shown = {one.group for one in furthest}
        groups = [one for one in groups if one.group in shown]
    lines = []
    for one in groups:
        try:
            parts = client.lag(one.group).partitions
            members = len(client.group(one.group).members)
        except NotFound:
            continue
        counts = figures.get(one.group, {})
        finished = sum(part.floor + part.finished_above for part in parts)
        lines.append(
            GroupLine(
                one.group,
                tuple(one.topics),
                sum(part.lag for part in parts),
                max((part.lag_seconds or 0.0 for part in parts), default=0.0),
                sum(part.in_flight for part in parts),
                counts.get("waiting", 0),
                counts.get("dead", 0),
                finished,
                earlier.get(one.group, _NEVER).rate(finished),
                members,
            )
        )
    return sorted(lines, key=lambda line: -line.lag)
