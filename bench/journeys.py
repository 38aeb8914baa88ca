"""Measures journeys: what they cost a publish and a shared consume, and how soon one is told in a large topic.

The node is driven by hand on the disk of this machine. Without journeys: the same node, with the index of records and
the counts of latencies taken out.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.command import Command
from penstock.api.consume import Poll
from penstock.api.journeys import SEARCH_BYTES, DescribeJourney, SearchJourneys
from penstock.api.principals import LOCAL
from penstock.api.publish import PublishValues
from penstock.api.topics import CreateTopic
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.codec import Columns, encode
from penstock.config import FsyncPolicy, StorageConfig
from penstock.runtime import RealDisk

from .embedded import make_values, scratch, timed_ns
from .measure import FULL, Clock, Effort, best_ns
from .report import Case, CaseResult, Unit, on_ratio, on_value

TOPIC, GROUP = "orders", "billing"
BATCH, POLL = 500, 500
LARGE, LARGE_QUICK = 10_000_000, 500_000
LARGE_BATCH = 10_000
LOOKUPS = 100
START_NS = 1_767_225_600 * 1_000_000_000
STORAGE = StorageConfig(fsync=FsyncPolicy.NEVER, min_free_bytes=0)
_MS = 1e6
_SETTINGS = {
    "retention_hours": -1,
    "max_in_flight_per_consumer": 10_000,
    "journey_retention_hours": -1,
}


def _nothing(*_args: object) -> None:
    return


class Rig:
    """A topic with one partition and a group that shares it."""

    def __init__(self, disk: RealDisk, *, has_journeys: bool = True) -> None:
        self.now = Now(START_NS, 0)
        self.node = Node(disk, now=self.now, entropy=random.Random(3))  # noqa: S311 - nothing secret, and the same in every run
        self.execute(CreateTopic(TOPIC, 1, dict(_SETTINGS)))
        self.partition = self.node.partition(TOPIC, 0)
        if not has_journeys:
            for one in (self.partition.history, self.partition.times):
                for call in ("note", "leased", "acked"):
                    if hasattr(one, call):
                        setattr(one, call, _nothing)
        self.values = make_values(BATCH)

    def execute(self, command: Command[Any]) -> object:
        self.now = Now(self.now.wall_ns + 1000, self.now.monotonic_ns + 1000)
        return self.node.execute(command, LOCAL, self.now).outcome()

    def publish_and_consume(self) -> None:
        self.node.execute(PublishValues(TOPIC, self.values), LOCAL, self.now).outcome()
        self.consume(POLL)

    def consume(self, limit: int) -> int:
        """Poll and ack everything of the poll. Returns how many messages that was."""
        found = self.node.execute(Poll(TOPIC, GROUP, "m", limit, 30_000), LOCAL, self.now).outcome()
        answers = [
            LeaseAnswer(Kind.ACK, TOPIC, 0, one.place.group, one.lease, tuple(one.offsets))
            for one in found.leased()
        ]
        self.node.execute(Answer(answers), LOCAL, self.now).outcome()
        return len(found)

    def fill(self, count: int) -> None:
        """Publish and consume so many messages, a poll of the usual size at a time."""
        encoded = encode(Columns(values=[b"x" * 10] * LARGE_BATCH, timestamps=START_NS))
        for _ in range(count // LARGE_BATCH):
            self.partition.append(encoded, self.now)
            left = LARGE_BATCH
            while left > 0:
                left -= self.consume(POLL)
            self.partition.sync()


@contextmanager
def rig(*, has_journeys: bool = True) -> Iterator[Rig]:
    with scratch() as path, RealDisk(path, STORAGE) as disk:
        yield Rig(disk, has_journeys=has_journeys)


def measure_cost(effort: Effort) -> CaseResult:
    """Measure a publish of 500 messages, a poll that leases them, and their ack; with journeys and without."""
    with rig() as told, rig(has_journeys=False) as untold:
        found = best_ns(
            {"with": told.publish_and_consume, "without": untold.publish_and_consume}, effort
        )
    per_s = {name: BATCH * 1e9 / ns for name, ns in found.items()}
    settings = {"messages": BATCH, "poll": POLL}
    return CaseResult(per_s["with"], per_s["without"], settings=settings)


def measure_single_cost(effort: Effort) -> CaseResult:
    """Measure the same for one message at a time, which leaves as many records as there can be."""

    def one_by_one(of: Rig) -> Callable[[], object]:
        one = [of.values[0]]

        def run() -> None:
            of.node.execute(PublishValues(TOPIC, one), LOCAL, of.now).outcome()
            of.consume(1)

        return run

    with rig() as told, rig(has_journeys=False) as untold:
        found = best_ns({"with": one_by_one(told), "without": one_by_one(untold)}, effort)
    per_s = {name: 1e9 / ns for name, ns in found.items()}
    return CaseResult(per_s["with"], per_s["without"], settings={"messages": 1, "poll": 1})


def measure_lookup(effort: Effort) -> CaseResult:
    """Measure the slowest of some journeys, of messages by chance in a topic of ten million that were all consumed.

    By processor time, because other programs share the machine; all that is read is in the page cache.
    """
    count = LARGE if effort == FULL else LARGE_QUICK
    chance = random.Random(5)  # noqa: S311 - which messages are asked for, the same in every run
    with rig() as large:
        large.fill(count)
        slowest = 0
        for _ in range(LOOKUPS):
            command = DescribeJourney(TOPIC, 0, chance.randrange(count))
            slowest = max(slowest, timed_ns(partial(large.execute, command)))
        size = large.partition.history.size
    settings = {"messages": count, "lookups": LOOKUPS, "history_bytes": size}
    return CaseResult(slowest / _MS, settings=settings)


def measure_search(effort: Effort) -> CaseResult:
    """Measure one page of a search for a key that no message has: it reads as much as a page may."""
    count = 200_000 if effort == FULL else 50_000
    with rig() as large:
        values, keys = [b"x" * 100] * LARGE_BATCH, [b"k%06d" % one for one in range(LARGE_BATCH)]
        encoded = encode(Columns(values=values, keys=keys, timestamps=START_NS))
        for _ in range(count // LARGE_BATCH):
            large.partition.append(encoded, large.now)
        command = SearchJourneys(topic=TOPIC, key=b"none")
        found = best_ns({"page": lambda: large.execute(command)}, effort, clock=Clock.WALL)
    return CaseResult(found["page"] / _MS, settings={"messages": count, "page_bytes": SEARCH_BYTES})


CASES = (
    Case(
        name="journeys_cost",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_cost,
        goal=on_ratio(">=0.9"),
        baseline="without journeys",
    ),
    Case(
        name="journeys_cost_single",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_single_cost,
        goal=on_ratio(">=0.9"),
        baseline="without journeys",
    ),
    Case(name="journey_lookup", unit=Unit.MS, measure=measure_lookup, goal=on_value("<=50")),
    Case(name="journey_search_page", unit=Unit.MS, measure=measure_search),
)
