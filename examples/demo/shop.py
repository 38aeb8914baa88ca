"""The second part of the demo: a broker, a stream of orders, workers, a crash, and what is left to look at."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.errors import NotFound, NotPending, Unavailable

from . import orders as wares
from .broker import BrokerProcess
from .scene import Scene, Stage
from .workers import (
    LANES,
    ORDERS_TOPIC,
    REMINDERS_TOPIC,
    ClientThread,
    ShopCounts,
    Worker,
    publish_all,
)

if TYPE_CHECKING:
    from rich.live import Live

    from penstock.cli.overview import Overview

PAID_IN_TIME_ONE_IN = 3
DEADLINE_S = 60
LOOK_EVERY_S = 0.25
BILLING, WAREHOUSE, POST, ANALYTICS = "billing", "warehouse", "post", "analytics"


@dataclass(frozen=True, slots=True)
class ShopResult:
    """Promised and stored orders. `back_ms`: from the kill to the first answer of the next broker."""

    promised: int
    present: int
    twice_stored: int
    billed: int
    packed: int
    handled_again: int
    tried_again: int
    dead: dict[str, int]
    reminders: int
    reminders_cancelled: int
    reminders_early: int
    killed_at: int
    back_ms: int
    wait_ms: dict[str, float]
    elapsed_s: float
    data_dir: str = ""

    @property
    def is_good(self) -> bool:
        return (
            self.promised == self.present == wares.ORDERS
            and not self.twice_stored
            and self.billed + self.dead.get(BILLING, 0) == self.promised
            and self.packed + self.dead.get(WAREHOUSE, 0) == self.promised
            and self.reminders + self.reminders_cancelled == wares.REMINDERS
            and not self.reminders_early
        )


def shop_scenes(stage: Stage) -> Iterator[Scene]:
    broker = BrokerProcess(stage.directory / "broker")
    with broker, clients(broker) as client:
        stage.say(f"a broker listens on {broker.address}")
        kept = Shop(stage, broker, client).day()
    yield of_day(kept)
    leave_things(stage, broker)


@contextmanager
def clients(broker: BrokerProcess) -> Iterator[Client]:
    """Returns a client for all threads. It gives up soon, because the callers retry themselves."""
    settings = ClientSettings(timeout_s=5, retry=RetryPolicy(retries=0))
    with Client(broker.address, settings=settings) as client:
        yield client


class Shop:
    """One day: open, work, lose the broker, get it back, finish, count."""

    def __init__(self, stage: Stage, broker: BrokerProcess, client: Client) -> None:
        self.stage, self.broker, self.client = stage, broker, client
        self.counts, self.early = ShopCounts(), 0
        self.due_s: dict[bytes, float] = {}
        self.killed_at = self.back_ms = self.cancelled = 0
        self.headline = "orders come in"
        self.seen: Overview | None = None

    def day(self) -> ShopResult:
        started_s = time.monotonic()
        self._open()
        threads = self._threads()
        try:
            with self._shown() as live:
                self._watch(live, lambda: len(self.counts.stored) >= wares.ORDERS // 2)
                self._cancel_some()
                self._crash(live)
                self._watch(live, self._is_done)
        finally:
            self.counts.stop.set()
            for one in threads:
                one.join(timeout=10)
        return self._kept(time.monotonic() - started_s)

    def _open(self) -> None:
        # A short lease: messages that a killed broker leased without an answer come back after it.
        config: dict[str, Any] = {
            "max_retries": 2,
            "backoff_base_ms": 100,
            "visibility_timeout_ms": 2000,
        }
        self.client.create_topic(ORDERS_TOPIC, partitions=3, **config)
        self.client.create_topic(REMINDERS_TOPIC, partitions=1, **config)
        now_s = time.time()
        soon = list(wares.reminders())
        self.client.publish_many(REMINDERS_TOPIC, [one.outgoing for one in soon])
        self.client.publish_many(REMINDERS_TOPIC, wares.far_reminders())
        self.due_s = {one.value: now_s + one.delay_s for one in soon}

    def _threads(self) -> list[ClientThread]:
        client, counts, items = self.client, self.counts, list(wares.orders())
        orders = [
            Worker(client, counts, (ORDERS_TOPIC, group), job)
            for group, job in ((BILLING, wares.charge), (WAREHOUSE, wares.pack))
            for _ in range(2)
        ]
        post = Worker(client, counts, (REMINDERS_TOPIC, POST), self._deliver)
        threads = [ClientThread("shop", counts, lambda: publish_all(client, counts, items))]
        threads += [ClientThread(one.group, counts, one.work) for one in (*orders, post)]
        for one in threads:
            one.start()
        return threads

    def _deliver(self, value: bytes, _attempts: int) -> None:
        if time.time() < self.due_s[value]:
            self.early += 1

    def _crash(self, live: "Live | None") -> None:
        """Kill the broker in the middle of everything, and start it again on the same directory."""
        self.killed_at = len(self.counts.stored)
        self.stage.say(f"SIGKILL, after {self.killed_at:,} of {wares.ORDERS:,} orders")
        self.headline = "the broker was killed with SIGKILL, and started again"
        if live is not None and self.seen is not None:
            self._draw(live, self.seen)
        killed_s = time.monotonic()
        self.broker.kill()
        self.broker.start()
        self.back_ms = round((time.monotonic() - killed_s) * 1000)
        self.stage.say(f"back after {self.back_ms:,} ms, with everything it had promised")

    def _cancel_some(self) -> None:
        """Some customers have paid; their reminders are not needed any more, if they have not come yet."""
        for number in range(0, wares.REMINDERS, PAID_IN_TIME_ONE_IN):
            try:
                self._cancel(f"order-{number}")
                self.cancelled += 1
            except (NotPending, NotFound):
                continue

    def _cancel(self, delay_key: str) -> None:
        while True:
            try:
                self.client.cancel_delayed(REMINDERS_TOPIC, delay_key=delay_key)
                return
            except Unavailable:
                time.sleep(LOOK_EVERY_S)

    def _is_done(self) -> bool:
        """All are published, nothing waits or is held, all reminders have come, and all dead letters have arrived."""
        if len(self.counts.stored) < wares.ORDERS:
            return False
        client = self.client
        if any(client.lag(one).total for one in (BILLING, WAREHOUSE)):
            return False
        reminded = self.counts.handled[POST].total() + self.cancelled
        if reminded < wares.REMINDERS or client.delay_stats().pending > wares.FAR_REMINDERS:
            return False
        # They go there when it is durable that they are dead.
        arrived = client.count_dead_letters(ORDERS_TOPIC)
        return client.reliability().dead == sum(int(one["count"]) for one in arrived)

    def _watch(self, live: "Live | None", is_over: Callable[[], bool]) -> None:
        """Show the progress until a condition holds."""
        from penstock.cli.overview import query_overview

        until_s = time.monotonic() + DEADLINE_S
        while True:
            if self.counts.failure is not None:
                raise self.counts.failure
            try:
                if live is not None:
                    self.seen = query_overview(self.client, self.seen)
                    self._draw(live, self.seen)
                if is_over():
                    return
            except Unavailable:
                pass  # The broker is about to come back; the deadline is what counts.
            if time.monotonic() > until_s:
                return  # What is missing will be counted.
            time.sleep(LOOK_EVERY_S)

    @contextmanager
    def _shown(self) -> "Iterator[Live | None]":
        if not self.stage.is_live:
            yield None
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
            yield live

    def _draw(self, live: "Live", found: "Overview") -> None:
        from rich.console import Group
        from rich.text import Text

        from penstock.cli.overview_view import render

        done = len(self.counts.stored)
        head = Text(f"{done:,} of {wares.ORDERS:,} orders; {self.headline}", "bold")
        live.update(Group(head, render(found)), refresh=True)

    def _kept(self, elapsed_s: float) -> ShopResult:
        """Read everything once more and compare it with what was promised."""
        client, counts = self.client, self.counts
        found = [
            int(dict(message.headers)["order"] or 0) for _, message in client.read(ORDERS_TOPIC)
        ]
        letters = client.dead_letters(ORDERS_TOPIC)
        dead = {name: sum(one.group == name for one in letters) for name in (BILLING, WAREHOUSE)}
        handled = counts.handled
        first = client.poll(ORDERS_TOPIC, ANALYTICS, limit=1)
        client.ack(first)
        return ShopResult(
            promised=len(counts.stored),
            present=len(counts.stored.intersection(found)),
            twice_stored=len(found) - len(set(found)),
            billed=len(handled[BILLING]),
            packed=len(handled[WAREHOUSE]),
            handled_again=sum(one.total() - len(one) for one in handled.values()),
            tried_again=counts.tried_again,
            dead=dead,
            reminders=len(handled[POST]),
            reminders_cancelled=self.cancelled,
            reminders_early=self.early,
            killed_at=self.killed_at,
            back_ms=self.back_ms,
            wait_ms={
                LANES[one]: round(median(ms), 1) for one, ms in sorted(counts.waits_ms.items())
            },
            elapsed_s=round(elapsed_s, 1),
            data_dir=str(self.broker.data),
        )


def of_day(found: ShopResult) -> Scene:
    waits = ", ".join(f"{name} {ms:,.0f}" for name, ms in found.wait_ms.items())
    dead = ", ".join(f"{count} of {name}" for name, count in found.dead.items())
    lines = [
        ("published", f"{found.promised:,} orders, each acknowledged"),
        ("killed", f"with SIGKILL after {found.killed_at:,}; back after {found.back_ms:,} ms"),
        ("there, and once", f"{found.present:,}; lost {found.promised - found.present}"),
        ("billed, packed", f"{found.billed:,}, {found.packed:,} by two groups of workers"),
        ("tried again", f"{found.tried_again:,} times after a failure"),
        ("handled twice", f"{found.handled_again:,}: done, but the answer died with the broker"),
        ("given up", f"{dead}: dead letters, each with its story"),
        ("reminders", f"{found.reminders} in time, {found.reminders_cancelled} cancelled"),
        ("median wait in ms", f"{waits}"),
        ("in all", f"{found.elapsed_s:.1f} s"),
    ]
    return Scene("shop", "A day in a shop", lines, asdict(found), found.is_good)


def leave_things(stage: Stage, broker: BrokerProcess) -> None:
    stage.leave("check every byte", f"penstock log verify {broker.data}")
    stage.leave("start the broker again", f"penstock serve --data-dir {broker.data}")
    stage.leave("what is there", "penstock top")
    stage.leave("who failed, and why", "penstock dlq list orders --group-by error")
    stage.leave("one dead letter", "penstock dlq list orders --limit 1 --output yaml")
    stage.leave(
        "send the declined again", "penstock dlq redrive orders --reason REJECTED --dry-run"
    )
    stage.leave("what is to come", "penstock delay list reminders")
    stage.leave("a group that is behind", f"penstock group lag {ANALYTICS}")
    stage.leave("read the orders", "penstock consume orders --count 5 --json")
