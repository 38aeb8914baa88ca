"""Simulated clients of one node: producers, members of groups, and those who administer it."""

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

from .administrators import Administrator
from .assigned_members import AssignedMember
from .client import Client
from .commit_writers import CommitWriter
from .delay_producers import DelayProducer
from .members import Member
from .producers import Producer, ProducerKind
from .schedule_owners import ScheduleOwner
from .schema_registrants import SchemaRegistrant
from .transaction_book import INPUT_GROUP
from .transaction_inputs import equip
from .transaction_producers import TransactionProducer

if TYPE_CHECKING:
    from .world import World

TOPIC = "jobs"
# The number of the assigned member that commits automatically.
_AUTO_COMMITS = 2


class Population:
    """All clients of a world, as many of each kind as its parameters say."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world = world
        parameters = world.parameters
        lease_ms = parameters.config.visibility_timeout_ms
        self.producers = [
            Producer(f"{kind.value}-{number}", kind, TOPIC, number, world, parameters)
            for number, kind in enumerate(
                (*ProducerKind, world.entropy.choice(tuple(ProducerKind)))
            )
        ]
        self.members = [
            Member(f"m{group}-{number}", f"group-{group}", TOPIC, world, lease_ms)
            for group in range(parameters.groups)
            for number in range(parameters.members_each)
        ]
        self.assigned = [
            AssignedMember(
                f"a-{number}",
                "assigned",
                TOPIC,
                world,
                lease_ms,
                mode=parameters.assigned_mode,
                is_auto_commit=number == _AUTO_COMMITS,
            )
            for number in range(parameters.assigned_members)
        ]
        self.administrators = [
            Administrator(f"admin-{number}", world, Random(f"administrator {seed} {number}"))  # noqa: S311  # As above.
            for number in range(parameters.administrators)
        ]
        self.schema_registrants = [
            SchemaRegistrant(f"registrant-{number}", world, Random(f"registrant {seed} {number}"))  # noqa: S311  # As above.
            for number in range(parameters.schema_registrants)
        ]
        self.delay_producers = [
            DelayProducer(f"later-{number}", TOPIC, world)
            for number in range(parameters.delay_producers)
        ]
        self.schedule_owners = [
            ScheduleOwner(f"owner-{number}", TOPIC, world, Random(f"owner {seed} {number}"))  # noqa: S311  # As above.
            for number in range(parameters.schedule_owners)
        ]
        is_delaying = parameters.has_transaction_delays
        self.transaction_producers = [
            TransactionProducer(f"ledger-{number * 7}", TOPIC, world, is_delaying)
            for number in range(parameters.transaction_producers)
        ]
        self.commit_writers = [
            CommitWriter(f"sink-{number * 7}", TOPIC, world, is_delaying)
            for number in range(parameters.commit_writers)
        ]

    def join_groups(self) -> None:
        """Give transactions messages to answer, once the topic is there."""
        if self._world.parameters.has_transaction_inputs:
            equip([*self.transaction_producers, *self.commit_writers], TOPIC, self._world)
            lease_ms = self._world.parameters.config.visibility_timeout_ms
            self.members.append(
                Member("m", INPUT_GROUP, TOPIC, self._world, lease_ms, is_idle=True)
            )

    def clients(self) -> Iterator[Client]:
        """Returns all of them, in the order in which they are woken first."""
        return chain(
            self.producers,
            self.members,
            self.assigned,
            self.delay_producers,
            self.transaction_producers,
            self.commit_writers,
            self.schedule_owners,
            self.administrators,
            self.schema_registrants,
        )

    def stop(self) -> None:
        """Let producers begin nothing new, and members take what is left."""
        for producer in self.producers:
            producer.is_stopping = True
        for delay_producer in self.delay_producers:
            delay_producer.is_stopping = True
        for transaction_producer in self.transaction_producers:
            transaction_producer.is_stopping = True
        for writer in self.commit_writers:
            writer.is_stopping = True
        for owner in self.schedule_owners:
            owner.is_stopping = True
        for member in (*self.members, *self.assigned):
            member.is_draining = True

    def outstanding(self) -> list[str]:
        """Returns the names of those that wait for a reply."""
        waiting = [one.name for one in self.producers if one.outstanding]
        waiting += [one.name for one in self.delay_producers if one.outstanding]
        waiting += [one.name for one in self.transaction_producers if one.outstanding]
        waiting += [one.name for one in self.commit_writers if one.outstanding]
        waiting += [one.name for one in self.schedule_owners if one.outstanding]
        return waiting
