"""Load for a running server: publishers and consumers in threads, counted, timed and paced."""

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
# Messages that a publisher sends before it looks at the clock again.
_RUN_MESSAGES_MAX = 1000
# A paced publisher looks at the clock at least so often.
_RUNS_A_SECOND = 100
# A consumer that waits for messages looks this often whether the run is over.
_POLL_WAIT = "500ms"
_LOOK_EVERY_S = 0.1
_STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Amount:
    """How much one thread does: until it has done `messages`, or `seconds` are over; at most `rate` a second."""

    messages: int | None
    seconds: float | None
    rate: float | None = None

    def shared(self, threads: int) -> list["Amount"]:
        """The same work, shared by so many threads."""
        rate = None if self.rate is None else self.rate / threads
        if self.messages is None:
            return [Amount(None, self.seconds, rate)] * threads
        each, rest = divmod(self.messages, threads)
        return [Amount(each + (number < rest), self.seconds, rate) for number in range(threads)]


@dataclass(slots=True)
class Tally:
    """What one thread did. Only that thread writes to it."""

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
    """Threads at work until all are done, one fails, or the user stops them."""

    def __init__(self) -> None:
        self.tallies: list[Tally] = []
        self.stop = Event()
        self.error: BaseException | None = None
        self._threads: list[Thread] = []

    def start(self, work: Callable[[Tally], None], *, name: str) -> None:
        """Run `work` in a thread of its own with a tally of its own."""
        tally = Tally()
        self.tallies.append(tally)
        thread = Thread(target=self._work, args=(work, tally), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, work: Callable[[Tally], None], tally: Tally) -> None:
        tally.first_s = tally.last_s = time.perf_counter()
        try:
            work(tally)
        except PenstockError as error:
            self.error = self.error or error
            self.stop.set()

    def wait(self, bar: "Bar") -> None:
        """Return when every thread has ended. Ctrl-C ends them; what was done until then is reported."""
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
        return sum(one.messages for one in self.tallies)

    def figures(self) -> dict[str, Any]:
        """Messages, bytes and rates over the time in which they moved; percentiles of the latencies, if any."""
        moved = [one for one in self.tallies if one.messages]
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
        latencies_ns = [one for tally in moved for one in tally.latencies_ns]
        return found | percentiles(latencies_ns) if latencies_ns else found


def percentiles(latencies_ns: list[int]) -> dict[str, float]:
    """In microseconds."""
    import numpy as np

    shares = np.percentile(latencies_ns, (50, 95, 99, 100))
    return {
        f"{name}_us": round(float(share) / 1000, 1)
        for name, share in zip(("p50", "p95", "p99", "max"), shares, strict=True)
    }


def runs(amount: Amount, stop: Event) -> Iterator[int]:
    """How many messages to send now, again and again, as the rate allows, until the amount is done."""
    started_s = time.perf_counter()
    left = amount.messages
    at_once, sent = _RUN_MESSAGES_MAX, 0
    if amount.rate is not None:
        at_once = max(1, min(_RUN_MESSAGES_MAX, int(amount.rate / _RUNS_A_SECOND)))
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
    """The topic of the run: the one that is named, or a new one that is deleted at the end."""
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
    """The group of the run: the one that is named, or a new one that is deleted at the end."""
    if name is not None:
        yield name
        return
    made = f"bench-{token_hex(4)}"
    try:
        yield made
    finally:
        with suppress(NotFound):  # It may never have got as far as its first poll.
            client.delete_group(made)


def publish_batched(
    client: "Client", topic: str, amount: Amount, run: Run, *, size: int, acks: str
) -> Callable[[Tally], None]:
    """A publisher that leaves the making of batches to the client's producer."""

    def work(tally: Tally) -> None:
        value = bytes(size)
        with client.producer(topic, acks=acks) as producer:
            send, counted = producer.send, 0
            for count in runs(amount, run.stop):
                for _ in range(count):
                    send(value)
                stored = producer.stored
                tally.add(stored - counted, (stored - counted) * size)
                counted = stored
            producer.flush()
            tally.add(producer.stored - counted, (producer.stored - counted) * size)

    return work


def publish_singly(
    client: "Client", topic: str, amount: Amount, run: Run, *, size: int, acks: str
) -> Callable[[Tally], None]:
    """A publisher that waits for the answer to each message, and notes how long it took.

    The first bytes of a value are the time at which it was sent.
    """

    def work(tally: Tally) -> None:
        padding = bytes(max(0, size - _STAMP_BYTES))
        for count in runs(amount, run.stop):
            for _ in range(count):
                value = time.time_ns().to_bytes(_STAMP_BYTES, "big") + padding
                started_ns = time.perf_counter_ns()
                client.publish(topic, value, acks=acks)
                tally.latencies_ns.append(time.perf_counter_ns() - started_ns)
                tally.add(1, len(value))

    return work


def consume(
    client: "Client",
    topic: str,
    group: str,
    run: Run,
    *,
    max_poll: int,
    is_over: Callable[[bool], bool],
) -> Callable[[Tally], None]:
    """A consumer of a shared group that acks what it gets, until `is_over`, which is told
    whether the last poll brought anything."""

    def work(tally: Tally) -> None:
        with client.consumer(topic, group, max_poll=max_poll) as consumer:
            while not run.stop.is_set():
                polled = consumer.poll(wait=_POLL_WAIT)
                if polled:
                    consumer.ack(polled)
                    tally.add(len(polled), sum(len(one.value or b"") for one in polled))
                if is_over(bool(polled)):
                    return

    return work


def hear(
    client: "Client", topic: str, group: str, run: Run, *, is_over: Callable[[int], bool]
) -> Callable[[Tally], None]:
    """A consumer that notes how old each message is when it arrives, by the time in its first bytes."""

    def work(tally: Tally) -> None:
        with client.consumer(topic, group) as consumer:
            while not run.stop.is_set() and not is_over(tally.messages):
                polled = consumer.poll(wait=_POLL_WAIT)
                now_ns = time.time_ns()
                for message in polled:
                    sent_ns = int.from_bytes((message.value or b"")[:_STAMP_BYTES], "big")
                    tally.latencies_ns.append(now_ns - sent_ns)
                    tally.add(1, len(message.value or b""))
                consumer.ack(polled)

    return work
