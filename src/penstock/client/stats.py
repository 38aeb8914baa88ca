"""Figures as the client shows them: sizes, deliveries, priority lanes."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ..api.frames import HelloReply
from ..api.groups import TopicLanes
from ..api.health import DeliveryFigures, Health, health_word, status_of
from ..api.json.lanes import lanes_out, totals_of
from ..api.topics import TopicDescription

_S_NS = 1_000_000_000


class Stats(msgspec.Struct, frozen=True):
    """Sizes of everything; `topic_stats` by topic: partitions, messages, size_bytes."""

    node_id: str
    uptime: float
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, dict[str, int]]


class Reliability(msgspec.Struct, frozen=True):
    """Messages that are leased, wait for a retry, were given up, expired or were lost; in all and by group."""

    in_flight: int
    waiting: int
    dead: int
    expired: int
    skipped: int
    groups: dict[str, dict[str, int]]


class Lanes(msgspec.Struct, frozen=True):
    """The group of each topic and its partitions; each figure has a value for every priority, the most urgent first."""

    topics: dict[str, dict[str, Any]]
    totals: dict[str, dict[str, int]]


def _uptime_s(server: HelloReply) -> float:
    """How long the broker has run, by the clocks of both machines."""
    return round(max(0, time.time_ns() - server.started_at_ns) / _S_NS, 3)


def stats_of(server: HelloReply, topics: Sequence[TopicDescription]) -> Stats:
    shown = {
        one.name: {
            "partitions": len(one.partitions),
            "messages": sum(part.messages for part in one.partitions),
            "size_bytes": sum(part.size_bytes for part in one.partitions),
        }
        for one in topics
    }
    total = sum(one["size_bytes"] for one in shown.values())
    return Stats(server.broker_id, _uptime_s(server), len(shown), total, shown)


def health_of(found: Health, server: HelloReply) -> dict[str, Any]:
    """Returns what `/health` of HTTP shows."""
    checks = found.checks()
    return {
        "status": health_word(status_of(checks)),
        "uptime": f"{_uptime_s(server):.3f}s",
        "broker": {"node_id": server.broker_id, "version": server.server},
        "checks": {
            name: {"status": one.status, "message": one.message} for name, one in checks.items()
        },
    }


def reliability_of(found: dict[str, DeliveryFigures]) -> Reliability:
    names = DeliveryFigures.__struct_fields__
    totals = {name: sum(getattr(one, name) for one in found.values()) for name in names}
    groups = {group: msgspec.structs.asdict(one) for group, one in found.items()}
    return Reliability(**totals, groups=groups)


def lanes_of(found: dict[str, TopicLanes]) -> Lanes:
    shown = {topic: lanes_out(one.group, one.partitions) for topic, one in found.items()}
    return Lanes(shown, totals_of([part for one in found.values() for part in one.partitions]))
