"""Measures what idle partitions cost the busy ones: a message among 1,000 partitions, beside one among 10.

The message is published, leased and answered with an fsync each, and time passes once: what a broker does for a
message, and what it does by itself.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from penstock import Broker

from .measure import Clock, Effort, collector_off
from .report import Case, CaseResult, Unit, on_ratio

MANY, FEW = 1000, 10
CYCLES = 200


def opened(directory: Path, idle: int) -> Broker:
    """A broker with a busy partition, and others that have a group and nothing in them."""
    broker = Broker(directory, fsync="always")
    broker.create_topic("idle", partitions=idle)
    broker.create_topic("busy", partitions=1)
    broker.poll("idle", "group")
    return broker


def cycles_per_second(broker: Broker) -> float:
    with collector_off():
        started_ns = Clock.CPU.now_ns()
        for _ in range(CYCLES):
            broker.publish("busy", b"x" * 100)
            broker.ack(broker.poll("busy", "group"))
            broker.driver.tick()
        return CYCLES * 1_000_000_000 / (Clock.CPU.now_ns() - started_ns)


def measure_partitions(effort: Effort) -> CaseResult:
    best = {MANY: 0.0, FEW: 0.0}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        brokers = {count: stack.enter_context(opened(place / str(count), count)) for count in best}
        for _ in range(effort.turns + 1):
            for count, broker in brokers.items():
                best[count] = max(best[count], cycles_per_second(broker))
    return CaseResult(best[MANY], best[FEW], settings={"partitions": MANY, "few": FEW})


CASES = (
    Case(
        name="idle_partitions",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_partitions,
        goal=on_ratio(">=0.8"),
        baseline="among 10 partitions",
    ),
)
