"""The clients of the demo's shop: a publisher, and workers of groups. All of them outlive their broker."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from penstock.client import Client, Received
from penstock.errors import PenstockError, Unavailable

from .orders import Busy, Declined, Order

ORDERS_TOPIC, REMINDERS_TOPIC = "orders", "reminders"
LANES = ("critical", "high", "normal", "low", "background")
# Orders come faster than they are handled, so that lanes have something to decide.
CHUNK = 40
CHUNK_PAUSE_S = 0.01
WORK_S_EACH = 0.002
POLL_MESSAGES = 20
POLL_WAIT_S = 0.3
PAUSE_S = 0.1

Job = Callable[[bytes, int], None]


@dataclass(slots=True)
class ShopCounts:
    """Counts of all clients. `stored` are the orders that the broker has acknowledged."""

    stored: set[int] = field(default_factory=set)
    handled: dict[str, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    tried_again: int = 0
    outages: int = 0
    waits_ms: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    failure: BaseException | None = None
    lock: Lock = field(default_factory=Lock)
    stop: Event = field(default_factory=Event)

    def note_outage(self) -> None:
        with self.lock:
            self.outages += 1


class ClientThread(Thread):
    """A thread that works until it is stopped, and reports its error."""

    def __init__(self, name: str, counts: ShopCounts, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._book, self._work = counts, work

    def run(self) -> None:
        try:
            self._work()
        except PenstockError as error:
            self._book.failure = error
            self._book.stop.set()


def publish_all(client: Client, counts: ShopCounts, items: Sequence[Order]) -> None:
    """Publish chunk by chunk, and repeat each until it is stored: idempotency keys prevent duplicates."""
    for first in range(0, len(items), CHUNK):
        chunk = items[first : first + CHUNK]
        while not counts.stop.is_set():
            try:
                client.publish_many(ORDERS_TOPIC, [one.outgoing for one in chunk])
            except Unavailable:
                counts.note_outage()
                counts.stop.wait(PAUSE_S)
                continue
            with counts.lock:
                counts.stored.update(one.number for one in chunk)
            break
        if counts.stop.wait(CHUNK_PAUSE_S):
            return


class Worker:
    """Takes messages of a topic for a group, does its job on each, and answers."""

    def __init__(
        self, client: Client, counts: ShopCounts, where: tuple[str, str], job: Job
    ) -> None:
        self.client, self.counts, self.job = client, counts, job
        self.topic, self.group = where

    def work(self) -> None:
        while not self.counts.stop.is_set():
            try:
                found = self.client.poll(
                    self.topic, self.group, limit=POLL_MESSAGES, timeout=POLL_WAIT_S
                )
                self._handle(list(found))
            except Unavailable:
                # Leases survive a restart of the broker; messages without an answer come back after them.
                self.counts.note_outage()
                self.counts.stop.wait(PAUSE_S)

    def _handle(self, held: list[Received]) -> None:
        done, busy, refused = [], [], []
        for one in held:
            try:
                self.job(one.value or b"", one.attempts)
                done.append(one)
            except Declined as error:
                refused.append((one, str(error)))
            except (Busy, ValueError) as error:
                busy.append((one, str(error)))
        time.sleep(WORK_S_EACH * len(held))
        self._write_down(done, len(busy))
        for one, why in refused:
            self._answer(self.client.reject, one, why)
        for one, why in busy:
            self._answer(self.client.nack, one, why)
        self._answer(lambda them, _why: self.client.ack(them), done, "")

    def _answer(self, answer: Callable[..., object], held: object, why: str) -> None:
        """Answer a message. An answer that comes too late is ignored: the message is delivered again."""
        from penstock.errors import StaleReceipt

        try:
            answer(held, why)
        except StaleReceipt:
            return

    def _write_down(self, done: list[Received], busy: int) -> None:
        now_ns = time.time_ns()
        with self.counts.lock:
            self.counts.handled[self.group].update(one.value or b"" for one in done)
            self.counts.tried_again += busy
            for one in done:
                if one.attempts == 1:
                    self.counts.waits_ms[one.priority].append((now_ns - one.timestamp) / 1e6)
