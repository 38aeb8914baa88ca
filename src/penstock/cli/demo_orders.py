"""The last act of `penstock demo`: a broker works through orders, some urgent, some for later, some of them poison."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..broker.received import Received
from ..embedded.broker import Broker
from ..model import Message, Priority

TOPIC, GROUP = "orders", "warehouse"
ORDERS, REMINDERS, POISON = 5000, 200, 25
DELAY_MS = 400
BACKOFF_MS = 50
FLAKY_ONE_IN = 40
WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Worked:
    """What became of the orders. `early` came before their time, `restarted_at` orders were done when it was closed."""

    orders: int
    reminders: int
    handled: int
    twice: int
    retried: int
    dead: int
    early: int
    first_hundred: dict[str, int]
    restarted_at: int
    elapsed_s: float

    @property
    def is_good(self) -> bool:
        done = self.handled + self.dead == self.orders + self.reminders
        return done and not self.twice and not self.early and self.dead == POISON


def work_through_orders(root: Path) -> Worked:
    """Publish, work, close in the middle, open again and finish."""
    started_s, shop = time.monotonic(), _Shop()
    with Broker(root) as broker:
        broker.create_topic(TOPIC, partitions=3, max_retries=1, backoff_base_ms=BACKOFF_MS)
        due_ns = time.time_ns() + DELAY_MS * 1_000_000
        reminders = [f"remind {number}".encode() for number in range(REMINDERS)]
        broker.publish_many(TOPIC, [*map(Message, reminders)], delay=DELAY_MS / 1000)
        broker.publish_many(TOPIC, _orders(), acks="all")
        first = broker.poll(TOPIC, GROUP, limit=100)
        shop.work(broker, first, due_ns)
        shop.work_while(broker, due_ns, lambda: len(shop.handled) < ORDERS // 2)
        restarted_at = len(shop.handled)
    with Broker(root) as broker:
        open_ones = ORDERS + REMINDERS - POISON
        shop.work_while(broker, due_ns, lambda: len(shop.handled) < open_ones)
        dead = len(broker.dead_letters(TOPIC, limit=2 * POISON))
    lanes = Counter(Priority(one.priority).name.lower() for one in first)
    return Worked(
        ORDERS,
        REMINDERS,
        len(shop.handled),
        sum(count - 1 for count in shop.handled.values()),
        shop.retried,
        dead,
        shop.early,
        dict(lanes),
        restarted_at,
        time.monotonic() - started_s,
    )


def _orders() -> list[Message]:
    entropy = random.Random(7)  # noqa: S311  # The same show every time.
    poison = set(entropy.sample(range(ORDERS), POISON))
    return [
        Message(
            f"{'poison' if number in poison else 'order'} {number}".encode(),
            key=f"customer {entropy.randrange(500)}".encode(),
            priority=entropy.choice(tuple(Priority)),
        )
        for number in range(ORDERS)
    ]


class _Shop:
    """Handles orders: some fail at the first try, poison always does."""

    def __init__(self) -> None:
        self.handled: Counter[bytes] = Counter()
        self.retried = self.early = 0

    def work(self, broker: Broker, messages: list[Received], due_ns: int) -> None:
        failed = [one for one in messages if self._fails(one)]
        done = [one for one in messages if not self._fails(one)]
        broker.ack(done)
        broker.nack(failed, "the shelf is stuck")
        self.retried += sum(one.attempts == 1 for one in failed)
        self.handled.update(one.value or b"" for one in done)
        is_before = time.time_ns() < due_ns
        self.early += sum(is_before and (one.value or b"").startswith(b"remind") for one in done)

    def work_while(self, broker: Broker, due_ns: int, is_open: Callable[[], bool]) -> None:
        idle = 0
        while is_open() and idle < 50:
            messages = broker.poll(TOPIC, GROUP, limit=500, timeout=WAIT_S)
            idle = 0 if messages else idle + 1
            self.work(broker, messages, due_ns)

    def _fails(self, message: Received) -> bool:
        value = message.value or b""
        return value.startswith(b"poison") or (
            message.attempts == 1 and message.offset % FLAKY_ONE_IN == 0
        )
