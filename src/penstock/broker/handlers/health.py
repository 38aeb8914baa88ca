"""How the broker is, and what became of deliveries."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
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
from ..walks import Slices, groups_in, names_covered, partitions_in

if TYPE_CHECKING:
    from ..node import Node


def see_health(node: "Node", _command: SeeHealth, now: Now) -> Slices[Health]:
    findings = yield from findings_of(node)
    return Health(node.guard.look(now), findings, node.disk.free_bytes())


def see_figures(node: "Node", command: SeeFigures, now: Now) -> Slices[list[Sample]]:
    samples: list[Sample] = []
    is_of_all = command.topic is None and not command.prefixes
    # There are few topics, thousands of samples of each, and perhaps thousands of prefixes.
    covers = cache(command.covers)

    def tell(name: str, labels: Mapping[str, str], value: float) -> None:
        topic = labels.get("topic")
        # Of a topic that the command covers, or of the node as a whole.
        if is_of_all or ("group" not in labels if topic is None else covers(topic)):
            samples.append(Sample(name, labels, value))

    yield from figures_of(node, command.groups_max, tell, now)
    return samples


def see_reliability(
    node: "Node", command: SeeReliability, _now: Now
) -> Slices[dict[str, DeliveryFigures]]:
    figures: dict[str, Counter[str]] = {}
    for partition in partitions_in(node, (yield from names_covered(node, command))):
        for name, delivery in groups_in(node, partition):
            figures.setdefault(name, Counter()).update(
                in_flight=delivery.leases.in_flight,
                waiting=len(delivery.waiting),
                dead=delivery.dead_count,
                expired=delivery.expired_count,
                skipped=delivery.skipped_count,
            )
            yield 1
        yield 1
    return {name: DeliveryFigures(**counts) for name, counts in figures.items()}


def see_lags(node: "Node", command: SeeLags, now: Now) -> Slices[dict[str, LagFigures]]:
    figures: dict[str, LagFigures] = {}
    for partition in partitions_in(node, (yield from names_covered(node, command))):
        for name, delivery in groups_in(node, partition):
            known, lag = figures.get(name, LagFigures()), lag_of(partition, delivery, now)
            figures[name] = LagFigures(
                known.lag + lag.lag,
                max(known.lag_seconds, lag.lag_seconds),
                known.in_flight + lag.in_flight,
                known.waiting + len(delivery.waiting),
                known.dead + delivery.dead_count,
            )
            now = yield 1
        now = yield 1
    return figures


def see_stored(node: "Node", command: SeeStored, _now: Now) -> Slices[Stored]:
    topics = partitions = size = 0
    for name in (yield from names_covered(node, command)):
        if name in node.open:
            topics += 1
            for partition in partitions_in(node, [name]):
                partitions, size = partitions + 1, size + partition.messages.size
                yield 1
        yield 1
    return Stored(topics, partitions, size)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    SeeHealth: see_health,
    SeeFigures: see_figures,
    SeeReliability: see_reliability,
    SeeLags: see_lags,
    SeeStored: see_stored,
}
