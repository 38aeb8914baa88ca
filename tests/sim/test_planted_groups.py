"""Bugs of assigned groups and of lanes, planted one at a time: owned twice, not fenced, out of order."""

from typing import Any

import pytest

from penstock.broker import groups as broker_groups
from penstock.broker.catalogue import Catalogue
from penstock.broker.memberships import Memberships
from penstock.broker.partition import machine as partition_machine
from penstock.broker.partition.records import LaneImage
from penstock.delivery import Delivery, commands, strict
from penstock.delivery import machine as delivery_machine
from penstock.delivery.progress import Progress
from penstock.delivery.records import (
    Committed,
    OffsetsImage,
    OffsetsKind,
)
from penstock.groups import Membership
from penstock.groups import commands as group_commands
from penstock.groups import records as group_records
from penstock.model import Priority, TopicPartition
from penstock.sim.violation import Checker

from .planting import Bug, Patch, patch_record, planter, require_found

BUGS: list[Bug] = []
bug = planter(BUGS)


@bug(4, Checker.OWNED_ONCE, is_assigned=True)
def partition_owned_twice(patch: Patch) -> None:
    def readable(membership: Membership, member: str) -> list[TopicPartition]:
        return sorted(one for one, to in membership.target.items() if to == member)

    patch.setattr(Membership, "readable", readable)


@bug(4, Checker.OWNED_ONCE, is_assigned=True)
def partition_given_before_it_is_released(patch: Patch) -> None:
    original = group_commands._rebalance

    def rebalance(*args: Any) -> group_commands.Records:
        records = original(*args)
        taken = [
            group_records.PartitionsReleased(one.member, one.partitions, True, args[3].time.at_ns)
            for one in records
            if isinstance(one, group_records.ReleaseAsked)
        ]
        free = [partition for one in taken for partition in one.partitions]
        target = records[-1].target
        return (*records[:-1], *taken, *group_commands._give(target, free), records[-1])

    patch.setattr(group_commands, "_rebalance", rebalance)


@bug(6, Checker.FENCED, Checker.OWNED_ONCE, is_assigned=True)
def revoke_acknowledged_by_a_zombie(patch: Patch) -> None:
    def require_current(membership: Membership, member: str, generation: int | None) -> None:
        group_commands.require_member(membership, member)

    patch.setattr(group_commands, "require_current", require_current)


@bug(6, Checker.FENCED, is_assigned=True)
def commit_by_a_former_owner(patch: Patch) -> None:
    patch.setattr(group_commands, "require_owner", lambda *_: None)


@bug(6, Checker.FENCED, is_assigned=True, is_stormy=True)
def generations_come_again_after_a_restart(patch: Patch) -> None:
    patch.setattr(Catalogue, "reserve_generations", lambda *_: None)


@bug(6, Checker.COMMIT_SAFE, Checker.SURPRISE, is_assigned=True)
def floor_moves_back(patch: Patch) -> None:
    def commit(delivery: Delivery, offset: int, *, member: str) -> commands.Records:
        return (Committed(delivery.group, offset, delivery.progress.floor, member),)

    def finish_below(progress: Progress, offset: int) -> None:
        progress.floor = offset

    patch.setattr(broker_groups, "decide_commit", commit)
    patch.setattr(Progress, "finish_below", finish_below)


@bug(12, Checker.STRICT_ORDER, is_assigned=True)
def strict_order_goes_on_behind_a_failure(patch: Patch) -> None:
    patch.setattr(strict, "choose", commands.choose)


@bug(10, Checker.LEASE_EXCLUSIVE, Checker.STRICT_ORDER, is_assigned=True)
def former_owner_keeps_its_leases(patch: Patch) -> None:
    patch.setattr(Memberships, "_end_leases", lambda *_: None)


@bug(8, Checker.LANE_ORDER)
def lanes_forgotten_at_restart(patch: Patch) -> None:
    patch.setitem(partition_machine._APPLY, LaneImage, lambda *_: None)


@bug(8, Checker.LANE_ORDER, Checker.LIVENESS)
def lane_skipped_at_restart(patch: Patch) -> None:
    original = Delivery.__init__

    def begin(delivery: Delivery, group: int, start: int, *, now_ns: int) -> None:
        original(delivery, group, start, now_ns=now_ns)
        delivery.hints.starts[Priority.LOW] = start + 20

    patch.setattr(Delivery, "__init__", begin)


@bug(8, Checker.LEASE_EXCLUSIVE, Checker.COMMIT_SAFE, Checker.RECOVERY, Checker.ATTEMPTS)
def what_priority_let_pass_forgotten_at_restart(patch: Patch) -> None:
    original = delivery_machine._APPLY[OffsetsImage]

    def restore(delivery: Delivery, record: OffsetsImage) -> None:
        if record.offsets_are is not OffsetsKind.AHEAD:
            original(delivery, record)

    patch_record(patch, OffsetsImage, restore)


@pytest.mark.tier("test")
@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    require_found(planted, monkeypatch)
