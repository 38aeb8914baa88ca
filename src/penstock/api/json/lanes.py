"""Priority lanes as JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Priority
from ..groups import PartitionLanes
from ..units import time_text
from .messages import Strict


class LanesQuery(Strict):
    """Of this group, otherwise of the one that is furthest behind, topic by topic; of all topics, or of this one."""

    group: str | None = None
    topic: str | None = None


class LanesOut(msgspec.Struct):
    """By topic and partition five values each, the most urgent first; `totals` by priority.

    Rates are messages a second over about the last minute; `enqueue_rate` is the partition's, all else the group's.
    `last_served` is null in a lane of which nothing was handed out since the start. `shares` are percent of what is
    handed out while messages wait in every lane.
    """

    topics: dict[str, Any]
    totals: dict[str, dict[str, int]]
    shares: dict[str, int]


def lanes_out(group: str, parts: Sequence[PartitionLanes]) -> dict[str, Any]:
    return {
        "group": group,
        "partitions": {
            str(one.partition): {
                "ready": [lane.waiting for lane in one.lanes],
                "in_flight": [lane.in_flight for lane in one.lanes],
                "served": [lane.served for lane in one.lanes],
                "enqueue_rate": [round(lane.enqueued_per_second, 3) for lane in one.lanes],
                "dequeue_rate": [round(lane.per_second, 3) for lane in one.lanes],
                "last_served": [_moment(lane.served_at_ns) for lane in one.lanes],
                "wait_ms": [round(lane.wait_ms, 3) for lane in one.lanes],
            }
            for one in parts
        },
    }


def _moment(at_ns: int | None) -> str | None:
    return None if at_ns is None else time_text(at_ns)


def totals_of(parts: Sequence[PartitionLanes]) -> dict[str, dict[str, int]]:
    return {
        one.name.lower(): {
            "ready": sum(part.lanes[one].waiting for part in parts),
            "in_flight": sum(part.lanes[one].in_flight for part in parts),
            "served": sum(part.lanes[one].served for part in parts),
        }
        for one in Priority
    }
