"""How the broker is, and what became of deliveries."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.health import (
    DeliveryFigures,
    Health,
    LagFigures,
    Sample,
    SeeFigures,
    SeeHealth,
    SeeLags,
    SeeReliability,
    SeeStored,
    Stored,
)
from ..figures import figures_of
from ..findings import findings_of
from ..groups import lag_of
from ..partition import Now
from ..partition.changes import Handler

if TYPE_CHECKING:
    from ..node import Node


def see_health(node: "Node", _command: SeeHealth, now: Now) -> Health:
    return Health(node.guard.look(now), findings_of(node), node.disk.free_bytes())


def see_figures(node: "Node", command: SeeFigures, now: Now) -> list[Sample]:
    found = figures_of(node, command.groups_max, now)
    is_of_all = command.topic is None and not command.prefixes
    return [one for one in found if is_of_all or _is_covered(command, one.labels)]


def _is_covered(command: SeeFigures, labels: Mapping[str, str]) -> bool:
    """Whether a figure is of a topic that the command covers, or of the node as a whole."""
    topic = labels.get("topic")
    return "group" not in labels if topic is None else command.covers(topic)


def see_reliability(node: "Node", command: SeeReliability, _now: Now) -> dict[str, DeliveryFigures]:
    groups: dict[str, Counter[str]] = {}
    for partition in node.partitions():
        if not command.covers(partition.topic):
            continue
        for name, one in partition.user_groups():
            groups.setdefault(name, Counter()).update(
                in_flight=one.leases.in_flight,
                waiting=len(one.waiting),
                dead=one.dead_count,
                expired=one.expired_count,
                skipped=one.skipped_count,
            )
    return {name: DeliveryFigures(**figures) for name, figures in groups.items()}


def see_lags(node: "Node", command: SeeLags, now: Now) -> dict[str, LagFigures]:
    groups: dict[str, LagFigures] = {}
    for partition in node.partitions():
        if not command.covers(partition.topic):
            continue
        for name, one in partition.user_groups():
            known, lag = groups.get(name, LagFigures()), lag_of(partition, one, now)
            groups[name] = LagFigures(
                known.lag + lag.lag,
                max(known.lag_seconds, lag.lag_seconds),
                known.in_flight + lag.in_flight,
                known.waiting + len(one.waiting),
                known.dead + one.dead_count,
            )
    return groups


def see_stored(node: "Node", command: SeeStored, _now: Now) -> Stored:
    found = [one for one in node.partitions() if command.covers(one.topic)]
    topics = sum(map(command.covers, node.open))
    return Stored(topics, len(found), sum(one.messages.size for one in found))


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    SeeHealth: see_health,
    SeeFigures: see_figures,
    SeeReliability: see_reliability,
    SeeLags: see_lags,
    SeeStored: see_stored,
}
