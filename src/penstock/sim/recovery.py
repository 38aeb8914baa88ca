"""Checks that a second recovery from the same disk gives the same state."""

from random import Random

from ..broker.node import Node
from ..broker.partition import Now, Partition
from ..delivery.machine import Delivery
from ..delivery.offsets import each_offset
from .disk import SimDisk
from .violation import Checker, Violation


def require_same_recovery(node: Node, disk: SimDisk, now: Now) -> None:
    """Start a second node on a copy of the disk, as if this one had been killed right after its start.

    Violation: the state of a partition differs.
    """
    entropy = Random(0)  # noqa: S311  # Only for what the copy does, which is nothing.
    second = Node(SimDisk(disk.tree()), now=now, entropy=entropy, is_resuming=False)
    for one, other in zip(node.partitions(), second.partitions(), strict=True):
        found, again = state_of(one), state_of(other)
        for name, state in found.items():
            if state != again[name]:
                story = (
                    f"{one.topic}/{one.number}: {name} {state}, after another start {again[name]}"
                )
                raise Violation(Checker.RECOVERY, story)


def state_of(partition: Partition) -> dict[str, object]:
    """The state of a partition by name. Future lease numbers are left out: they jump at each start."""
    messages, machine = partition.messages, partition.machine
    state: dict[str, object] = {
        "ends": (messages.start_offset, messages.end_offset, partition.journal.log.end_offset),
        "letters": dict(machine.outbox.pending),
        "next letter": machine.outbox.next_sequence,
        "arrivals": dict(machine.arrived),
        "keys": list(machine.dedup.items()),
        "producers": [(key, one) for key, one in machine.producers.by_id.items()],
    }
    stagings = machine.stagings
    state["stagings"] = (
        {**stagings.open},
        {**stagings.ended},
        {**stagings.names_ended},
        stagings.live,
        stagings.bytes,
    )
    state["staging producers"] = [*machine.staging_producers.by_id.items()]
    state["coordinator"] = [*machine.coordinator.snapshot(), *machine.commit_names.snapshot()]
    delays = machine.delays
    state["delays"] = {one: delays.dues.of(one) for one in each_offset(delays.pending)}
    state["finished delays"] = (delays.finished, delays.counts, delays.by_key)
    for number, delivery in machine.groups.items():
        state[machine.names[number]] = _group_state(delivery)
    return state


def _group_state(delivery: Delivery) -> tuple[object, ...]:
    progress, leases = delivery.progress, delivery.leases.by_number
    return (
        progress.floor,
        progress.finished,
        progress.reopened,
        delivery.cursor,
        delivery.ahead,
        # A wait that ends now may be over in one node and not in the other.
        set(each_offset(delivery.ready)) | set(delivery.waiting),
        delivery.failures,
        {number: (lease.member, lease.offsets()) for number, lease in leases.items()},
    )
