"""Measures priority lanes: shares of full lanes, and a cycle of poll and ack over mixed ones."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from penstock.broker.partition import Now
from penstock.codec import Columns, encode
from penstock.delivery.lane_turns import WEIGHTS
from penstock.embedded.broker import Broker
from penstock.model import Priority
from penstock.sim.schedule import SimClock

from .embedded import CYCLE, SETTINGS, SMALL_BACKLOG, Cycle, make_values, run_cycle, scratch
from .measure import Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value

START_NS = 1_700_000_000_000_000_000
TOPIC, GROUP = "lanes", "workers"
MESSAGES = 100_000
POLL = 500
BATCH = 1000
# Slow enough for messages to grow older than the rule against starving allows: 100 in 10 s.
OVERLOAD_POLL, OVERLOAD_EVERY_NS = 100, 10_000_000_000


def fill(broker: Broker, topic: str, count: int, priorities: Sequence[Sequence[Priority]]) -> None:
    """Publish batches whose priorities alternate, as do the messages in them."""
    values = make_values(BATCH)

    def append(now: Now, lanes: Sequence[Priority]) -> None:
        each = [int(lanes[one % len(lanes)]) for one in range(BATCH)]
        columns = Columns(values=values, timestamps=now.wall_ns, priorities=each)
        broker.driver.node.partition(topic, 0).append(encode(columns), now)

    for number in range(count // BATCH):
        lanes = priorities[number % len(priorities)]
        broker.driver.run(partial(append, lanes=lanes))


def worst_deviation(served: Mapping[Priority, int], lanes: Sequence[Priority]) -> float:
    """Returns the largest deviation of a lane's share, in percentage points."""
    total, weights = sum(served.values()), sum(WEIGHTS[one] for one in lanes)
    return max(abs(served[one] / total - WEIGHTS[one] / weights) * 100 for one in lanes)


def serve(
    broker: Broker, count: int, *, limit: int, after: Callable[[], object]
) -> Counter[Priority]:
    served: Counter[Priority] = Counter()
    while served.total() < count:
        messages = broker.poll(TOPIC, GROUP, limit=limit)
        broker.ack(messages)
        served.update(Priority(one.priority) for one in messages)
        after()
    return served


def measure_shares(lanes: Sequence[Priority]) -> CaseResult:
    with scratch() as directory, Broker(directory, fsync="never") as broker:
        broker.create_topic(TOPIC, partitions=1)
        fill(broker, TOPIC, MESSAGES * len(lanes), [lanes])
        served = serve(broker, MESSAGES, limit=POLL, after=lambda: None)
    return shares_found(served, lanes)


def shares_found(served: Counter[Priority], lanes: Sequence[Priority]) -> CaseResult:
    total = served.total()
    shares = {one.name.lower(): round(served[one] / total * 100, 2) for one in lanes}
    return CaseResult(
        worst_deviation(served, lanes), settings={"messages": total, "shares": shares}
    )


def measure_all_lanes(_effort: Effort) -> CaseResult:
    return measure_shares(tuple(Priority))


def measure_idle_lane(_effort: Effort) -> CaseResult:
    """Measure shares without the normal lane: the others divide its share by their weights."""
    return measure_shares([one for one in Priority if one is not Priority.NORMAL])


def measure_overload(_effort: Effort) -> CaseResult:
    """Measure shares when all messages are older than the starvation limit, so that both rules serve each lane."""
    clock = SimClock(START_NS)
    with scratch() as directory, Broker(directory, fsync="never", clock=clock) as broker:
        broker.create_topic(TOPIC, partitions=1)
        fill(broker, TOPIC, MESSAGES, [tuple(Priority)])
        served = serve(
            broker,
            MESSAGES // 5,
            limit=OVERLOAD_POLL,
            after=lambda: clock.advance(OVERLOAD_EVERY_NS),
        )
    return shares_found(served, tuple(Priority))


@cache
def cycles(effort: Effort) -> Mapping[str, Cycle]:
    """Returns the best turns with one priority, with five producers of one each, and with all five in every batch."""
    best: dict[str, Cycle] = {}
    kinds: dict[str, Sequence[Sequence[Priority]]] = {
        "plain": [(Priority.NORMAL,)],
        "lanes": [(one,) for one in Priority],
        "mixed": [tuple(Priority)],
    }
    with scratch() as directory, Broker(directory, fsync="never") as broker:
        for turn in range(effort.turns):
            for name, priorities in kinds.items():
                topic = f"{name}-{turn}"
                broker.create_topic(topic, partitions=1)
                fill(broker, topic, SMALL_BACKLOG, priorities)
                cycle = run_cycle(broker, topic, broker.ack)
                broker.delete_topic(topic)
                best[name] = min(best.get(name, cycle), cycle, key=lambda one: one.ns)
    return best


def measure_cycle(kind: str, effort: Effort) -> CaseResult:
    found = cycles(effort)
    settings = {**SETTINGS, "messages": CYCLE, "batch_messages": BATCH}
    return CaseResult(found[kind].ns, found["plain"].ns, settings=settings)


CASES = (
    Case(
        name="priority_shares",
        unit=Unit.POINTS,
        measure=measure_all_lanes,
        goal=on_value("<=1"),
    ),
    Case(
        name="priority_shares_idle_lane",
        unit=Unit.POINTS,
        measure=measure_idle_lane,
        goal=on_value("<=1"),
    ),
    Case(
        name="priority_shares_overload",
        unit=Unit.POINTS,
        measure=measure_overload,
        goal=on_value("<=2"),
    ),
    Case(
        name="lanes_cycle",
        unit=Unit.NS,
        measure=partial(measure_cycle, "lanes"),
        # Bigger is better: 1 / 1.3.
        goal=on_ratio(">=0.77"),
        baseline="the same without priorities",
    ),
    Case(
        name="lanes_cycle_mixed",
        unit=Unit.NS,
        measure=partial(measure_cycle, "mixed"),
        baseline="the same without priorities",
    ),
)
