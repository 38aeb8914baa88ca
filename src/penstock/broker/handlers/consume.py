"""Polls of shared groups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.consume import CountHeld, CountReady, Poll
from ...api.groups import Mode
from ...api.leased import LeasedMessages
from ...model import check_name
from .. import groups
from ..partition import Now, consumption
from ..partition.changes import Handler
from ..partition.consumption import Wanted
from ..walks import whole

if TYPE_CHECKING:
    from ..node import Node


def poll(node: "Node", command: Poll, now: Now) -> LeasedMessages:
    """Lease messages of any partition to a member, beginning behind those that were leased from last."""
    check_name(command.member, "member")
    topic, group = node.topic(command.topic), command.group
    partitions, duration_ms = topic.partitions, command.visibility_ms
    partitions.require_serving()
    if group in node.classic.groups:
        node.classic.require_no_reader(group, (command.topic,), asked="shared")
    if duration_ms is not None:
        # A poll that is refused for its lease makes no group.
        consumption.check_duration(partitions.serving[0].rules, duration_ms)
    places = groups.places_of(partitions.serving, group)
    if len(places) < len(partitions.serving):
        opening = groups.open_on(
            node, (command.topic,), group, command.start, now, mode=Mode.SHARED
        )
        whole(opening, now)
        places = groups.places_of(partitions.serving, group)
    groups.require_mode(places, group, Mode.SHARED, now)
    if command.limit:
        node.pollers.note(command, now)
    client = (command.topic, group, command.member)
    if command.request_id:
        known = node.replays.answer_to(client, command.request_id)
        if known is not None:
            return known
    if len(places) > 1:
        # Each lease from a partition moves the beginning on by one, so each partition has its turn.
        first = sum([delivery.next_lease for _, delivery in places]) % len(places)
        places = [*places[first:], *places[:first]]
    limit, limit_with_lanes = command.limit, command.limit_with_lanes
    if limit_with_lanes is not None and not all(one.machine.lanes.is_flat for one in partitions):
        limit = min(limit, limit_with_lanes)
    wanted = Wanted(
        command.member, limit, duration_ms, command.priority, bytes_max=command.bytes_max
    )
    found = consumption.poll_all(places, wanted, now)
    if command.request_id:
        node.replays.keep(client, command.request_id, found)
    return found


def count_ready(node: "Node", command: CountReady, _now: Now) -> int:
    partitions = node.topic(command.topic).partitions
    return sum(consumption.ready_for(one, command.group) for one in partitions)


def count_held(node: "Node", command: CountHeld, _now: Now) -> int:
    return sum(
        one.group(command.group).leases.held_by.get(command.member, 0)
        for one in node.topic(command.topic).partitions
        if command.group in one.machine.numbers
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    Poll: poll,
    CountReady: count_ready,
    CountHeld: count_held,
}
