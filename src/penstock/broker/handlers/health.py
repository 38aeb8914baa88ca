"""How the broker is, and what became of deliveries."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.health import DeliveryFigures, Health, SeeHealth, SeeReliability
from ..changes import Handler
from ..findings import findings_of
from ..partition import Now

if TYPE_CHECKING:
    from ..node import Node


def see_health(node: "Node", _command: SeeHealth, now: Now) -> Health:
    return Health(node.guard.look(now), findings_of(node))


def see_reliability(node: "Node", command: SeeReliability, _now: Now) -> dict[str, DeliveryFigures]:
    groups: dict[str, Counter[str]] = {}
    for partition in node.partitions():
        if command.prefixes and not partition.topic.startswith(command.prefixes):
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


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    SeeHealth: see_health,
    SeeReliability: see_reliability,
}
