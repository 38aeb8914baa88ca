"""Load for a running server: publishers and consumers in threads, with counts, times and rates."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, PenstockError

if TYPE_CHECKING:
    from ..client import Client
    from .progress import Bar

_S_NS = 1_000_000_000
# Messages that a publisher sends before it reads the clock again.
_PORTION_MESSAGES_MAX = 1000
# A paced publisher reads the clock at least so often.
_PORTIONS_A_SECOND = 100
# A consumer that waits for messages checks this often whether the run is over.
_POLL_WAIT = "500ms"
_LOOK_EVERY_S = 0.1
_STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """How much one thread does: until it has done `messages`, or `seconds` are over; at most `rate` a second."""

    messages: int | None
    seconds: float | None
    rate: float | None = None

    def shared(self, threads: int) -> list["Workload"]:
        """Returns this work, shared by so many threads."""
        rate = None if self.rate is None else self.rate / threads
        if self.messages is None:
            return [Workload(None, self.seconds, rate)] * threads
        each, rest = divmod(self.messages, threads)
        return [Workload(each + (number < rest), self.seconds, rate) for number in range(threads)]


@dataclass(slots=True)
class ThreadCounts:
    """What one thread did. Only that thread changes it."""

    messages: int = 0
    size_bytes: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    first_s: float = 0.0
    last_s: float = 0.0

    def add(self, messages: int, size_bytes: int) -> None:
        self.last_s = time.perf_counter()
        self.messages += messages
        self.size_bytes += size_bytes


class Run:
    """Runs threads until all are done, one fails, or the user stops them."""

    def __init__(self) -> None:
        self.counts: list[ThreadCounts] = []
        self.stop = Event()
        self.error: BaseException | None = None
        self._threads: list[Thread] = []

    def start(self, work: Callable[[ThreadCounts], None], *, name: str) -> None:
        """Run `work` in a new thread with its own counts."""
        counts = ThreadCounts()
        self.counts.append(counts)
        thread = Thread(target=self._work, args=(work, counts), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, work: Callable[[ThreadCounts], None], counts: ThreadCounts) -> None:
        counts.first_s = counts.last_s = time.perf_counter()
        try:
            work(counts)
        except PenstockError as error:
            self._fail(error)
        except BaseException as error:
            # A bug of this program: the thread prints where, and the run fails.
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Stop all threads; the command raises the first error at the end."""
        self.error = self.error or error
        self.stop.set()

    def wait(self, bar: "Bar") -> None:
        """Wait until every thread has ended. Ctrl-C ends them; the counts until then stay."""
        try:
            self._look_on(bar)
        except KeyboardInterrupt as interrupt:
            self.error = interrupt
            self.stop.set()
            for thread in self._threads:
                thread.join()

    def _look_on(self, bar: "Bar") -> None:
        started_s = time.perf_counter()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_LOOK_EVERY_S)
                done = self.messages
                rate = done / max(time.perf_counter() - started_s, _LOOK_EVERY_S)
                bar.at(done, f"{done:,} messages, {rate:,.0f} a second")

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.counts)

    def figures(self) -> dict[str, Any]:
        """Returns messages, bytes and rates over the time of the work, and percentiles of the latencies, if any."""
        moved = [one for one in self.counts if one.messages]
        seconds = max((one.last_s for one in moved), default=0.0) - min(
            (one.first_s for one in moved), default=0.0
        )
        size_bytes = sum(one.size_bytes for one in moved)
        found: dict[str, Any] = {
            "messages": self.messages,
            "bytes": size_bytes,
            "seconds": round(seconds, 3),
            "messages_per_s": round(self.messages / seconds) if seconds else 0,
            "mb_per_s": round(size_bytes / seconds / 1e6, 3) if seconds else 0.0,
        }
        latencies_ns = [one for counts in moved for one in counts.latencies_ns]
        return found | percentiles(latencies_ns) if latencies_ns else found


def percentiles(latencies_ns: list[int]) -> dict[str, float]:
    """Returns percentiles in microseconds."""
    import numpy as np

    shares = np.percentile(latencies_ns, (50, 95, 99, 100))
    return {
        f"{name}_us": round(float(share) / 1000, 1)
        for name, share in zip(("p50", "p95", "p99", "max"), shares, strict=True)
    }


def portions(amount: Workload, stop: Event) -> Iterator[int]:
    """Yields how many messages to send next, as the rate allows, until the work is done."""
    started_s = time.perf_counter()
    left = amount.messages
    at_once, sent = _PORTION_MESSAGES_MAX, 0
    if amount.rate is not None:
        at_once = max(1, min(_PORTION_MESSAGES_MAX, int(amount.rate / _PORTIONS_A_SECOND)))
    while not stop.is_set() and (left is None or sent < left):
        if amount.rate is not None:
            stop.wait(max(0.0, started_s + sent / amount.rate - time.perf_counter()))
        if amount.seconds is not None and time.perf_counter() - started_s >= amount.seconds:
            return
        count = at_once if left is None else min(at_once, left - sent)
        yield count
        sent += count


@contextmanager
def topic_for(client: "Client", name: str | None, partitions: int) -> Iterator[str]:
    """Returns the topic that is named, or a new one that is deleted at the end. NotFound."""
    if name is not None:
        client.topic(name)
        yield name
        return
    made = f"bench-{token_hex(4)}"
    client.create_topic(made, partitions=partitions)
    try:
        yield made
    finally:
        client.delete_topic(made)


@contextmanager
def group_for(client: "Client", name: str | None) -> Iterator[str]:
    """Returns the group that is named, or a new one that is deleted at the end."""
    if name is not None:
        yield name
        return
    made = f"bench-{token_hex(4)}"
    try:
        yield made
    finally:
        with suppress(NotFound):  # The first poll makes a group, and there may have been none.
            client.delete_group(made)


def publish_batched(
    client: "Client", topic: str, amount: Workload, run: Run, *, size: int, acks: str
) -> Callable[[ThreadCounts], None]:
    """Returns a publisher that uses the client's producer, which makes batches."""

    def work(counts: ThreadCounts) -> None:
        value = bytes(size)
        with client.producer(topic, acks=acks) as producer:
            send, counted = producer.send, 0
            for count in portions(amount, run.stop):
                for _ in range(count):
                    send(value)
                stored = producer.stored
                counts.add(stored - counted, (stored - counted) * size)
                counted = stored
            producer.flush()
            counts.add(producer.stored - counted, (producer.stored - counted) * size)

    return work


def publish_single(
    client: "Client", topic: str, amount: Workload, run: Run, *, size: int, acks: str
) -> Callable[[ThreadCounts], None]:
    """Returns a publisher that waits for the answer to each message, and records how long it took.

    The first bytes of a value are the time at which it was sent.
    """

    def work(counts: ThreadCounts) -> None:
        padding = bytes(max(0, size - _STAMP_BYTES))
        for count in portions(amount, run.stop):
            for _ in range(count):
                value = time.time_ns().to_bytes(_STAMP_BYTES, "big") + padding
                started_ns = time.perf_counter_ns()
                client.publish(topic, value, acks=acks)
                counts.latencies_ns.append(time.perf_counter_ns() - started_ns)
                counts.add(1, len(value))

    return work


def consume(
    client: "Client",
    topic: str,
    group: str,
    run: Run,
    *,
    max_poll: int,
    is_over: Callable[[bool], bool],
) -> Callable[[ThreadCounts], None]:
    """Returns a consumer of a shared group that acks all messages, until `is_over`.

    `is_over` is called with whether the last poll returned messages.
    """

    def work(counts: ThreadCounts) -> None:
        with client.consumer(topic, group, max_poll=max_poll) as consumer:
            while not run.stop.is_set():
                polled = consumer.poll(wait=_POLL_WAIT)
                if polled:
                    consumer.ack(polled)
                    counts.add(len(polled), sum(len(one.value or b"") for one in polled))
                if is_over(bool(polled)):
                    return

    return work


def measure_latency(
    client: "Client", topic: str, group: str, run: Run, *, is_over: Callable[[int], bool]
) -> Callable[[ThreadCounts], None]:
    """Returns a consumer that records how old each message is when it arrives, by the time in its first bytes."""

    def work(counts: ThreadCounts) -> None:
        with client.consumer(topic, group) as consumer:
            while not run.stop.is_set() and not is_over(counts.messages):
                polled = consumer.poll(wait=_POLL_WAIT)
                now_ns = time.time_ns()
                for message in polled:
                    sent_ns = int.from_bytes((message.value or b"")[:_STAMP_BYTES], "big")
                    counts.latencies_ns.append(now_ns - sent_ns)
                    counts.add(1, len(message.value or b""))
                consumer.ack(polled)

    return work
