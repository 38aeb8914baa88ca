"""Our broker beside others, at the same work in one run: client and server are separate processes on one machine.

Peers are started on loopback with their data on disk. A peer that is not installed is left out, and the result says
why. No Kafka runs here; where it is meant, its figure is taken from Redis in the same run, by the ratio that the two
had when both were measured on one machine.
"""

import atexit
import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import NamedTuple

from penstock.api.frames import COMMAND, request_frame
from penstock.api.publish import Publish
from penstock.api.wire import encode_command
from penstock.model import Message

from .broker_clients import CLIENTS, BrokerContender
from .broker_kafka import ConfluentClient
from .broker_ours import DURABILITY, PenstockContender, following, running_ours, timed_async
from .broker_peers import PEERS, NotStarted, running
from .floors import FloorTimes, floors
from .measure import FULL, Effort, Quantiles, collector_off, least_us
from .report import Case, CaseResult, Unit, on_ratio, on_value

OURS = "penstock"
VALUE_BYTES = 100
LARGE_BYTES = 1000
TURNS = 3
# Confluent's client against Kafka 3.9 (acks=all, no fsync), as multiples of redis-py.
KAFKA_PUBLISH, KAFKA_CONSUME, KAFKA_COMMIT, KAFKA_LATENCY = 8.7, 2.4, 2.2, 102 / 53
SMALL_BATCH_BYTES = 1 << 10
SWEPT = (SMALL_BATCH_BYTES, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
RATE_PER_S = 1000
P99_US_MAX = 5000

Rates = dict[str, float]


class Latencies(NamedTuple):
    """p50 and p99 of each broker in microseconds, the best of the turns, and what the machine cannot go below."""

    times: Mapping[str, Quantiles]
    floors: FloorTimes

    def at(self, place: int) -> Rates:
        return {name: times[place] for name, times in self.times.items()}


Work = Callable[[BrokerContender, str, int], object]
_topics = itertools.count()


def new_topic() -> str:
    return f"bench-{next(_topics)}"


@cache
def values_of(count: int, size: int) -> Sequence[bytes]:
    """Returns distinct payloads, made before the measurement."""
    return [b"%0*d" % (size, number) for number in range(count)]


class Participants:
    """All brokers of a race, each started when first needed and kept until the end of the run."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [*names]
        self.skipped: dict[str, str] = {}
        self._ports: dict[str, int] = {}
        self._clients: dict[str, BrokerContender] = {}
        self._stack = ExitStack()

    @property
    def ours(self) -> PenstockContender:
        client = self._client(OURS)
        assert isinstance(client, PenstockContender), "the only one of its kind"
        return client

    def port(self, name: str) -> int:
        if not self._ports:
            atexit.register(self.close)
            leave_in_good_order()
        if name not in self._ports:
            starting = running_ours() if name == OURS else running(PEERS[name])
            self._ports[name] = self._stack.enter_context(starting)
        return self._ports[name]

    def _client(self, name: str) -> BrokerContender:
        if name not in self._clients:
            port = self.port(name)
            client = PenstockContender(port) if name == OURS else CLIENTS[name](port)
            self._stack.callback(client.close)
            self._clients[name] = client
        return self._clients[name]

    def contenders(self) -> Mapping[str, BrokerContender]:
        """The brokers that can run, Penstock first; the others are in `skipped` with the reason."""
        found = {OURS: self._client(OURS)}
        for name in self.names:
            reason = self.skipped.get(name) or PEERS[name].why_missing()
            if reason is None:
                try:
                    found[name] = self._client(name)
                    continue
                except NotStarted as error:
                    reason = str(error)
            self.skipped[name] = reason
        return found

    def close(self) -> None:
        self._stack.close()
        self._clients.clear()
        self._ports.clear()


def leave_in_good_order() -> None:
    """Let SIGTERM end the run in order, so that it stops the brokers that it started."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def timed(work: Callable[[], object]) -> float:
    with collector_off():
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


class Race:
    """The work that all brokers do in turns; the best of three turns counts."""

    def __init__(self, participants: Participants) -> None:
        self.participants = participants
        self.publishing = cache(self._publishing)
        self.consuming = cache(self._consuming)
        self.answering = cache(self._answering)
        self.answering_each = cache(self._answering_each)
        self.latency = cache(self._latency)
        self.by_kafka_client = cache(self._by_kafka_client)
        self.end_to_end = cache(self._end_to_end)

    def count(self, name: str, effort: Effort, size: int = VALUE_BYTES) -> int:
        """Returns how many messages take about a second."""
        if name != OURS:
            return 30_000 if effort is FULL else 6_000
        messages = 2_000_000 if effort is FULL else 500_000
        return messages * VALUE_BYTES // max(size, VALUE_BYTES) * (2 if size > VALUE_BYTES else 1)

    def rates(self, effort: Effort, work: Work, count: int) -> Rates:
        """Returns messages a second of each broker; peers get fewer messages, because they take longer."""
        best: Rates = {}
        for _ in range(TURNS):
            for name, contender in self.participants.contenders().items():
                topic = new_topic()
                wanted = count if name == OURS else self.count(name, effort)
                contender.publish(topic, values_of(wanted, VALUE_BYTES))
                seconds = timed(partial(work, contender, topic, wanted))
                best[name] = max(best.get(name, 0.0), wanted / seconds)
                if isinstance(contender, PenstockContender):
                    contender.remove(topic)
        return best

    def _publishing(self, effort: Effort, size: int) -> Rates:
        best: Rates = {}
        for _ in range(TURNS):
            for name, contender in self.participants.contenders().items():
                topic, values = new_topic(), values_of(self.count(name, effort, size), size)
                if isinstance(contender, PenstockContender):
                    contender.open(topic)
                seconds = timed(partial(contender.publish, topic, values))
                best[name] = max(best.get(name, 0.0), len(values) / seconds)
                if isinstance(contender, PenstockContender):
                    contender.remove(topic)
        return best

    def filled(self, effort: Effort) -> int:
        return 1_000_000 if effort is FULL else 200_000

    def _consuming(self, effort: Effort) -> Rates:
        return self.rates(effort, lambda one, *asked: one.consume(*asked), self.filled(effort))

    def arrow(self, effort: Effort) -> float:
        ours, topic, count = self.participants.ours, new_topic(), self.filled(effort)
        ours.publish(topic, values_of(count, VALUE_BYTES))
        seconds = min(timed(lambda: ours.consume_arrow(topic, count)) for _ in range(TURNS))
        ours.remove(topic)
        return count / seconds

    def _by_kafka_client(self, effort: Effort) -> tuple[float, float]:
        """Returns messages a second that confluent-kafka publishes to our broker, and consumes from it."""
        ours, count = self.participants.ours, self.filled(effort)
        client, values = (
            ConfluentClient(self.participants.port(OURS)),
            values_of(count, VALUE_BYTES),
        )
        published = consumed = 0.0
        for _ in range(TURNS):
            topic = new_topic()
            ours.open(topic)
            published = max(published, count / timed(partial(client.publish, topic, values)))
            assert ours.client.topic(topic).ends(0).latest == count, "all is stored"
            consumed = max(consumed, count / timed(partial(client.consume, topic, count)))
            ours.remove(topic)
        client.close()
        return published, consumed

    def _answering(self, effort: Effort) -> Rates:
        count = self.filled(effort) // 2
        return self.rates(effort, lambda one, *asked: one.fetch_ack(*asked), count)

    def _answering_each(self, effort: Effort) -> Rates:
        count = self.filled(effort) // 4
        return self.rates(effort, lambda one, *asked: one.fetch_ack_each(*asked), count)

    def sweep(self, effort: Effort, sizes: Sequence[int]) -> dict[int, float]:
        """Returns messages a second by the size of a batch."""
        found = {}
        for size in sizes:
            # Small batches cost mostly requests, of which there are many more.
            share = 4 if size >= SMALL_BATCH_BYTES * 4 else 16
            values = values_of(self.count(OURS, effort) // share, VALUE_BYTES)
            topic = new_topic()
            self.participants.ours.open(topic)
            seconds = timed(lambda: self.participants.ours.publish(topic, values, batch_bytes=size))  # noqa: B023 - called at once
            self.participants.ours.remove(topic)
            found[size] = len(values) / seconds
        return found

    def _latency(self, effort: Effort) -> Latencies:
        """Returns the times of one publish at a time."""
        values = values_of(2000 if effort is FULL else 700, VALUE_BYTES)
        best: dict[str, Quantiles] = {}
        with floors(request_of(values[0])) as floor:
            for _ in range(TURNS):
                for name, contender in self.participants.contenders().items():
                    topic = new_topic()
                    if isinstance(contender, PenstockContender):
                        contender.open(topic)
                        times = timed_async(self.participants.port(name), topic, values)
                        best["async"] = least_us(best.get("async"), times)
                    contender.publish_one(topic, values[0])
                    best[name] = least_us(best.get(name), one_by_one(contender, topic, values))
                floor.take_turn()
        return Latencies(best, floor.times)

    def _end_to_end(self, effort: Effort) -> Latencies:
        """Returns the times from a publish until another process has the message, at a thousand a second."""
        count = 2000 if effort is FULL else 600
        best: dict[str, Quantiles] = {}
        with floors(request_of(values_of(1, VALUE_BYTES)[0])) as floor:
            for _ in range(TURNS if effort is FULL else 2):
                for name, contender in self.participants.contenders().items():
                    topic = new_topic()
                    if isinstance(contender, PenstockContender):
                        contender.open(topic)
                    with following(name, self.participants.port(name), topic, count) as process:
                        assert process.stdout is not None, "it is a pipe"
                        await_ready(contender, topic, process.stdout.fileno())
                        process.stdout.readline()
                        pace(contender, topic, count)
                        times = json.loads(process.stdout.readlines()[-1])
                    best[name] = least_us(best.get(name), times)
                floor.take_turn()
        return Latencies(best, floor.times)


def request_of(value: bytes) -> bytes:
    """Returns the frame of a publish, whose bytes the floors carry too."""
    return b"".join(request_frame(COMMAND, 1, encode_command(Publish("bench", [Message(value)]))))


def one_by_one(contender: BrokerContender, topic: str, values: Sequence[bytes]) -> list[int]:
    times = []
    for value in values:
        started_ns = time.perf_counter_ns()
        contender.publish_one(topic, value)
        times.append(time.perf_counter_ns() - started_ns)
    return times


def await_ready(contender: BrokerContender, topic: str, said: int) -> None:
    """Send empty messages until the consumer gets one: then it is connected and its code is warm."""
    import select

    for _ in range(600):
        contender.publish_one(topic, b"%0*d" % (VALUE_BYTES, 0))
        if select.select([said], [], [], 0.1)[0]:
            return
    raise NotStarted("the consumer heard nothing in a minute")


def pace(contender: BrokerContender, topic: str, count: int) -> None:
    next_ns = time.monotonic_ns()
    for _ in range(count):
        next_ns += 1_000_000_000 // RATE_PER_S
        while (left_ns := next_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        contender.publish_one(topic, b"%020d%0*d" % (time.monotonic_ns(), VALUE_BYTES - 20, 0))


class Judge:
    """Makes results of the figures of a race."""

    def __init__(self, race: Race) -> None:
        self.race = race

    def _settings(self, peers: Mapping[str, float], **more: object) -> dict[str, object]:
        participants = self.race.participants
        durability = {name: PEERS[name].durability for name in peers if name in PEERS}
        return {
            "value_bytes": VALUE_BYTES,
            "peers": {name: round(one, 1) for name, one in peers.items() if name != OURS},
            "durability": {OURS: DURABILITY, **durability},
            "skipped": dict(participants.skipped),
            **more,
        }

    def against(
        self, found: Mapping[str, float], value: float, baseline: float | None, **more: object
    ) -> CaseResult:
        missing = (
            () if baseline is not None else tuple(self.race.participants.skipped) or ("a peer",)
        )
        return CaseResult(value, baseline, missing, self._settings(found, **more))

    def kafka(
        self, found: Mapping[str, float], value: float, times: float, **more: object
    ) -> CaseResult:
        redis = found.get("redis")
        return self.against(found, value, None if redis is None else redis * times, **more)

    def publish(self, effort: Effort) -> CaseResult:
        found = self.race.publishing(effort, VALUE_BYTES)
        return self.kafka(found, found[OURS], KAFKA_PUBLISH)

    def publish_rate(self, effort: Effort) -> CaseResult:
        found = self.race.publishing(effort, VALUE_BYTES)
        return CaseResult(found[OURS], settings=self._settings(found))

    def publish_large(self, effort: Effort) -> CaseResult:
        found = self.race.publishing(effort, LARGE_BYTES)
        mb_per_s = {name: one * LARGE_BYTES / 1e6 for name, one in found.items()}
        settings = self._settings(mb_per_s, value_bytes=LARGE_BYTES)
        return CaseResult(mb_per_s[OURS], settings=settings)

    def sweep(self, effort: Effort) -> CaseResult:
        found = self.race.sweep(effort, SWEPT)
        sizes = {str(size): round(rate) for size, rate in found.items()}
        return CaseResult(
            max(found.values()), settings={"value_bytes": VALUE_BYTES, "batch_bytes": sizes}
        )

    def publish_small_batches(self, effort: Effort) -> CaseResult:
        rates = [self.race.sweep(effort, [SMALL_BATCH_BYTES]) for _ in range(TURNS)]
        settings = {"value_bytes": VALUE_BYTES, "batch_bytes": SMALL_BATCH_BYTES}
        return CaseResult(max(one[SMALL_BATCH_BYTES] for one in rates), settings=settings)

    def consume(self, effort: Effort) -> CaseResult:
        found = self.race.consuming(effort)
        return self.kafka(found, found[OURS], KAFKA_CONSUME)

    def consume_best(self, effort: Effort) -> CaseResult:
        return self._best(self.race.consuming(effort))

    def consume_arrow(self, effort: Effort) -> CaseResult:
        found = self.race.consuming(effort)
        return self.kafka(found, self.race.arrow(effort), KAFKA_CONSUME)

    def fetch_ack(self, effort: Effort) -> CaseResult:
        found = self.race.answering(effort)
        return self.against(found, found[OURS], found.get("redis"))

    def fetch_commit(self, effort: Effort) -> CaseResult:
        found = self.race.answering(effort)
        return self.kafka(found, found[OURS], KAFKA_COMMIT)

    def worker(self, effort: Effort) -> CaseResult:
        return self._best(self.race.answering_each(effort))

    def kafka_publish(self, effort: Effort) -> CaseResult:
        found = self.race.publishing(effort, VALUE_BYTES)
        return self._kafka_client(found, self.race.by_kafka_client(effort)[0], KAFKA_PUBLISH)

    def kafka_consume(self, effort: Effort) -> CaseResult:
        found = self.race.consuming(effort)
        return self._kafka_client(found, self.race.by_kafka_client(effort)[1], KAFKA_CONSUME)

    def _kafka_client(self, found: Rates, value: float, times: float) -> CaseResult:
        """Beside Kafka as Redis stands for it, the share of what our own client does in the same run is noted."""
        redis = found.get("redis")
        baseline = None if redis is None else redis * times
        share = round(value / found[OURS], 3)
        return self.against(found, value, baseline, of_our_own_client=share)

    def _best(self, found: Rates) -> CaseResult:
        others = [one for name, one in found.items() if name != OURS]
        return self.against(found, found[OURS], max(others, default=None))

    def latency(self, name: str, place: int) -> Callable[[Effort], CaseResult]:
        def measure(effort: Effort) -> CaseResult:
            latencies = self.race.latency(effort)
            found = latencies.at(place)
            beside = latencies.floors.beside(found[name], place)
            return self.kafka(found, found[name], KAFKA_LATENCY, **beside)

        return measure

    def end_to_end(self, effort: Effort) -> CaseResult:
        found, beside = self._end_to_end_at(effort, 0)
        others = [one for name, one in found.items() if name != OURS]
        best = min(others, default=None)
        return self.against(found, found[OURS], best, per_s=RATE_PER_S, **beside)

    def end_to_end_p99(self, effort: Effort) -> CaseResult:
        found, beside = self._end_to_end_at(effort, 1)
        others = [one for name, one in found.items() if name != OURS]
        best = max(P99_US_MAX, min(others, default=0))
        return self.against(found, found[OURS], best, **beside)

    def _end_to_end_at(self, effort: Effort, place: int) -> tuple[Rates, dict[str, float]]:
        latencies = self.race.end_to_end(effort)
        found = latencies.at(place)
        return found, latencies.floors.beside(found[OURS], place)


def cases(peers: Iterable[str] = tuple(PEERS)) -> tuple[Case, ...]:
    """Returns all cases, against some peers."""
    judge = Judge(Race(Participants(peers)))
    messages, us = Unit.MESSAGES_PER_S, Unit.US

    def case(
        name: str,
        unit: Unit,
        measure: Callable[[Effort], CaseResult],
        goal: str,
        baseline: str = "",
    ) -> Case:
        judged = on_ratio(goal) if baseline else on_value(goal)
        return Case(name=name, unit=unit, measure=measure, goal=judged, baseline=baseline or None)

    kafka = "Kafka ({} x redis-py)"
    return (
        case("publish_binary", messages, judge.publish, ">=2", kafka.format(KAFKA_PUBLISH)),
        case("publish_binary_rate", messages, judge.publish_rate, ">=1000000"),
        case("publish_binary_1000", Unit.MB_PER_S, judge.publish_large, ">=600"),
        Case(name="publish_batch_sizes", unit=messages, measure=judge.sweep),
        # Three times what the client over HTTP did.
        case("publish_small_batches", messages, judge.publish_small_batches, ">=81000"),
        case("consume_messages", messages, judge.consume, ">=1", kafka.format(KAFKA_CONSUME)),
        case("consume_messages_peers", messages, judge.consume_best, ">=1.5", "the best other"),
        case("consume_arrow", messages, judge.consume_arrow, ">=10", kafka.format(KAFKA_CONSUME)),
        case("fetch_ack", messages, judge.fetch_ack, ">=2", "redis, one XACK of 100"),
        Case(
            name="fetch_ack_kafka",
            unit=messages,
            measure=judge.fetch_commit,
            baseline=kafka.format(KAFKA_COMMIT),
        ),
        case("worker", messages, judge.worker, ">=1", "the best peer, one by one"),
        case("kafka_publish", messages, judge.kafka_publish, ">=0.7", kafka.format(KAFKA_PUBLISH)),
        case("kafka_consume", messages, judge.kafka_consume, ">=0.7", kafka.format(KAFKA_CONSUME)),
        case("publish_latency", us, judge.latency(OURS, 0), ">=1", kafka.format("1.92")),
        case("publish_latency_async", us, judge.latency("async", 0), ">=0.5", kafka.format("1.92")),
        case("publish_latency_p99", us, judge_p99(judge), "<=10000"),
        case("end_to_end_latency", us, judge.end_to_end, ">=0.667", "the best peer"),
        case("end_to_end_latency_p99", us, judge.end_to_end_p99, ">=1", "5 ms, or the best peer's"),
    )


def judge_p99(judge: Judge) -> Callable[[Effort], CaseResult]:
    def measure(effort: Effort) -> CaseResult:
        measured = judge.latency(OURS, 1)(effort)
        return CaseResult(measured.value, settings=measured.settings)

    return measure


CASES = cases()
