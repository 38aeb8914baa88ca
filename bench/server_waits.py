"""What it costs others that Kafka clients wait: one publish after the other, beside consumers that have nothing to do.

The consumers are those of confluent-kafka, which has no fetch sessions: it names all its partitions twice a second.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value
from .server_binary import SETTINGS, binary_answer, binary_request, turn
from .server_process import TOPIC, ServerProcess, broker

WIDE = "wide"
PARTITIONS = 1000
# A consumer that has just been assigned asks for offsets, and fetches without waiting.
_SETTLED_S = 3.0
_LARGE_BYTES = 1 << 20
_MESSAGE_BYTES = 1000


class Crowd(NamedTuple):
    """Consumers that share the partitions of a topic, and how they fetch."""

    consumers: int
    topic: str
    partitions: int
    settings: dict[str, object]


ONE = Crowd(1, WIDE, PARTITIONS, {})
TWENTY = Crowd(20, WIDE, PARTITIONS, {})
# Each of them reads all that is published.
GREEDY = Crowd(3, TOPIC, 1, {"fetch.min.bytes": _LARGE_BYTES, "fetch.wait.max.ms": 50_000})


@contextmanager
def waiting(server: ServerProcess, crowd: Crowd) -> Iterator[None]:
    """Has consumers wait at the ends of partitions until the end of the block."""
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumers: list[Any] = []
    each = max(1, crowd.partitions // crowd.consumers)
    for number in range(crowd.consumers):
        settings = {
            "bootstrap.servers": f"127.0.0.1:{server.binary_port}",
            "group.id": f"waiting-{number}",
            "enable.auto.commit": False,
            **crowd.settings,
        }
        consumer: Any = Consumer(settings)
        first = number * each % crowd.partitions
        # librdkafka looks for the ends of 1,000 partitions for longer than the wait below. `WIDE` is empty.
        start = 0 if crowd.topic == WIDE else OFFSET_END
        consumer.assign([TopicPartition(crowd.topic, first + one, start) for one in range(each)])
        consumers.append(consumer)
    until = time.monotonic() + _SETTLED_S
    while time.monotonic() < until:
        for consumer in consumers:
            consumer.poll(0.05)
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def publishes(server: ServerProcess, request: bytes, count: int) -> tuple[float, float]:
    assert server.binary_port is not None, "it is on"
    return turn(server, server.binary_port, request, binary_answer, count)


def beside(effort: Effort, crowd: Crowd) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The server's processor time and the median of a publish, without the crowd and beside it, by turns."""
    count = 6_000 if effort is FULL else 1_000
    request = binary_request(_MESSAGE_BYTES) if crowd is GREEDY else binary_request()
    pairs = []
    with broker() as server:
        if crowd.topic != TOPIC:
            wide = {"name": crowd.topic, "num_partitions": crowd.partitions}
            server.call("POST", "/topics", wide)
        publishes(server, request, count)
        for _ in range(3):
            alone = publishes(server, request, count)
            with waiting(server, crowd):
                pairs.append((alone, publishes(server, request, count)))
    return pairs


def latency(effort: Effort, crowd: Crowd) -> CaseResult:
    pairs = beside(effort, crowd)
    alone, crowded = min(one[1] for one, _ in pairs), min(one[1] for _, one in pairs)
    settings = {**SETTINGS, "baseline": "no consumer", "client": "confluent-kafka"}
    more = {"consumers": crowd.consumers, "partitions": crowd.partitions}
    return CaseResult(crowded, alone, settings={**settings, **more})


def measure_beside_one(effort: Effort) -> CaseResult:
    return latency(effort, ONE)


def measure_beside_twenty(effort: Effort) -> CaseResult:
    return latency(effort, TWENTY)


def measure_greedy(effort: Effort) -> CaseResult:
    """Processor time of a publish of 1 kB beside three consumers that wait for a megabyte."""
    pairs = beside(effort, GREEDY)
    alone, crowded = min(one[0] for one, _ in pairs), min(one[0] for _, one in pairs)
    settings = {**SETTINGS, "baseline": "no consumer", "fetch.min.bytes": _LARGE_BYTES}
    return CaseResult(crowded, alone, settings=settings)


def idle_ms(server: ServerProcess, seconds: float) -> float:
    """Processor time of the server in a second."""
    before = server.cpu_s()
    time.sleep(seconds)
    return (server.cpu_s() - before) / seconds * 1000


def measure_idle(effort: Effort) -> CaseResult:
    """Processor time in a second in which one consumer waits at the ends of 1,000 partitions."""
    seconds = 10.0 if effort is FULL else 3.0
    found: dict[str, Sequence[float]] = {}
    with broker() as server:
        server.call("POST", "/topics", {"name": WIDE, "num_partitions": PARTITIONS})
        time.sleep(_SETTLED_S)
        alone = median([idle_ms(server, seconds) for _ in range(3)])
        with waiting(server, ONE):
            found["confluent-kafka"] = [idle_ms(server, seconds) for _ in range(3)]
        with session_waiting(server):
            found["kafka-python"] = [idle_ms(server, seconds) for _ in range(3)]
    figures = {client: round(median(some) - alone, 2) for client, some in found.items()}
    settings = {**figures, "alone": alone, "partitions": PARTITIONS, "value": "kafka-python"}
    return CaseResult(figures["kafka-python"], settings=settings)


@contextmanager
def session_waiting(server: ServerProcess) -> Iterator[None]:
    """As `waiting`, with a client that has fetch sessions."""
    from threading import Event, Thread

    from kafka import (  # type: ignore[import-untyped]  # It has no types.
        KafkaConsumer,
        TopicPartition,
    )

    consumer: Any = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{server.binary_port}")
    consumer.assign([TopicPartition(WIDE, number) for number in range(PARTITIONS)])
    consumer.seek_to_end()
    is_over = Event()

    def poll() -> None:
        while not is_over.is_set():
            consumer.poll(timeout_ms=200)

    thread = Thread(target=poll)
    thread.start()
    time.sleep(_SETTLED_S)
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        consumer.close()


CASES = (
    Case(
        name="publish_beside_a_waiting_consumer",
        unit=Unit.US,
        measure=measure_beside_one,
        goal=on_ratio(">=0.83"),
        baseline="no consumer",
    ),
    Case(
        name="publish_beside_waiting_consumers",
        unit=Unit.US,
        measure=measure_beside_twenty,
        goal=on_ratio(">=0.83"),
        baseline="no consumer",
    ),
    Case(
        name="publish_cost_beside_fetch_min_bytes",
        unit=Unit.US,
        measure=measure_greedy,
        goal=on_ratio(">=0.25"),
        baseline="no consumer",
    ),
    Case(name="waiting_consumer_cpu", unit=Unit.MS, measure=measure_idle, goal=on_value("<=10")),
)
