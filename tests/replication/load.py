"""Clients of a pair of brokers, each with both addresses, and the history of what they were told.

Producers, a shared group that acks, gives back and rejects, an assigned group that reads in order, delayed messages and
transactions over two topics. Each client writes down what was acknowledged to it; `check` compares that with what a
leader has.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.client.synchronous.transactions import Transaction
from penstock.errors import PenstockError
from penstock.sim.history import History
from penstock.sim.violation import Checker, Violation

from .pairs import PATIENCE_S, Node, Pair

# What is repeated goes out again soon; what a client gives up is tried again by its loop.
SETTINGS = ClientSettings(
    timeout_s=5.0,
    connect_timeout_s=1.0,
    retry=RetryPolicy(retries=20, backoff_ms=20, backoff_ms_max=1000),
)
# Many partitions take long to be made.
PATIENT = ClientSettings(timeout_s=PATIENCE_S)
PARTITIONS = 2
# Longer than any run: what comes twice within it was lent twice.
LEASE_MS = 3_600_000
# Nothing more comes in order before an answer to what was lent with a reply that got lost, or the end of its lease.
STRICT_LEASE_MS = 3_000
TOPICS = ("jobs", "ledger", "later", "left", "right")
GROUP, STRICT_GROUP = "shared", "strict"


class AbortOnPurpose(Exception):
    """Ends a transaction without a commit."""


class Load:
    """Runs from `with` on; `until` waits for progress of every client, `check` looks at the end."""

    def __init__(self, nodes: Pair, *, partitions: int = PARTITIONS) -> None:
        """`partitions`: so many has each topic that is not written by transactions."""
        self._nodes, self._is_over = nodes, threading.Event()
        self._partitions = partitions
        self.history = History()
        self.progress: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        # The last one of each client, to be told if it makes no progress.
        self.refusals: dict[str, PenstockError] = {}
        self.delayed: set[bytes] = set()
        # By value: whether the broker has said that it is a dead letter, or is in both topics.
        self.rejected: dict[bytes, bool] = {}
        self.transactions: dict[bytes, bool | None] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=work.__name__)
            for work in (
                self._produce_jobs,
                self._produce_ledger,
                self._work,
                self._read_in_order,
                self._delay,
                self._transact,
            )
        ]

    def __enter__(self) -> "Load":
        with Client(self._nodes.addresses, settings=PATIENT) as client:
            for topic in TOPICS:
                client.create_topic(
                    topic,
                    partitions=1 if topic in {"left", "right"} else self._partitions,
                    visibility_timeout_ms=STRICT_LEASE_MS if topic == "ledger" else LEASE_MS,
                    max_retries=1000,
                )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _client(self) -> Client:
        return Client(self._nodes.addresses, settings=SETTINGS)

    def _run(self, work: Callable[[Client], None]) -> None:
        """One client, again and again: what it was refused, it tries once more."""
        with self._client() as client:
            while not self._is_over.is_set():
                try:
                    work(client)
                except PenstockError as error:
                    self.refusals[work.__name__] = error
                    self._is_over.wait(0.02)
                except BaseException as error:
                    self.failures.append(error)
                    raise

    def until(self, more: int) -> None:
        """Return when every client was told so many times more that something is done."""
        wanted = {thread.name: self.progress[thread.name] + more for thread in self._threads}
        deadline = time.monotonic() + PATIENCE_S
        while late := [name for name, number in wanted.items() if self.progress[name] < number]:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, [(name, self.refusals.get(name)) for name in late]
            time.sleep(0.02)

    # The clients. Each does one thing, and is called again when that was refused.

    def _produce_jobs(self, client: Client) -> None:
        self._publish_all(client, "jobs", "_produce_jobs")

    def _produce_ledger(self, client: Client) -> None:
        self._publish_all(client, "ledger", "_produce_ledger")

    def _publish_all(self, client: Client, topic: str, name: str) -> None:
        while not self._is_over.is_set():
            number = self.progress[name]
            value = f"{topic} {number}".encode()
            # More keys than partitions, so that most of these get some, and each an order of its own.
            key = b"%d" % (number % (2 * self._partitions + 1))
            placed = client.publish(topic, value, key=key, acks="all", idempotency_key=value)
            self.history.published((topic, placed.partition), placed.offset, value, name)
            self.progress[name] += 1

    def _work(self, client: Client) -> None:
        """Of what is lent most is acked; some is given back, some rejected, and some held for ever."""
        chance = random.Random(self.progress["_work"])
        for one in client.poll("jobs", GROUP, limit=5, timeout="200ms"):
            place = (("jobs", one.partition), one.offset)
            self.history.handed_out(*place, one.data, f"{one.receipt} {one.attempts}", GROUP)
            self.progress["_work"] += 1
            what = chance.random()
            if what < 0.6:
                client.ack(one)
            elif what < 0.75:
                self.history.giving_back(*place, GROUP)
                client.nack(one, delay="10ms")
            elif what < 0.9:
                self.rejected[one.data] = False
                client.reject(one, "on purpose")
                self.rejected[one.data] = True

    def _read_in_order(self, client: Client) -> None:
        late: list[object] = []
        consumer = client.consumer(
            "ledger",
            STRICT_GROUP,
            mode="assigned",
            order="strict",
            member="m",
            on_error=late.append,
        )
        with consumer:
            while not self._is_over.is_set():
                late.clear()
                polled = [*consumer.poll(10, wait="200ms")]
                for one in polled:
                    place = ("ledger", one.partition)
                    self.history.read(STRICT_GROUP, place, one.offset, one.data)
                    consumer.ack(one)
                consumer.flush()
                # An answer that came too late may be any of them.
                for one in [] if late else polled:
                    self.history.finished(STRICT_GROUP, ("ledger", one.partition), one.offset)
                    self.progress["_read_in_order"] += 1

    def _delay(self, client: Client) -> None:
        while not self._is_over.is_set():
            value = b"later %d" % self.progress["_delay"]
            client.publish("later", value, delay="300ms", acks="all", idempotency_key=value)
            self.delayed.add(value)
            self.progress["_delay"] += 1

    def _transact(self, client: Client) -> None:
        producer = client.transactional_producer("till")
        for number in count(len(self.transactions)):
            if self._is_over.is_set():
                return
            value = b"transaction %d" % number
            self.transactions[value] = None
            try:
                with producer.transaction() as transaction:
                    self._fill(transaction, value, is_wanted=number % 4 > 0)
                self.transactions[value] = True
                self.progress["_transact"] += 1
            except AbortOnPurpose:
                self.transactions[value] = False

    @staticmethod
    def _fill(transaction: Transaction, value: bytes, *, is_wanted: bool) -> None:
        transaction.publish("left", value)
        transaction.publish("right", value)
        if not is_wanted:
            raise AbortOnPurpose

    # The end.

    def check(self, node: Node) -> None:
        """Whether a leader, whose clients have stopped, keeps every promise. Violation."""
        assert not self.failures, self.failures
        with Client(node.address, settings=SETTINGS) as client:
            node.until(lambda: not [*client.delayed("later")], "nothing delayed any more")
            node.until(lambda: self._has_letters(client), "dead letters")
            node.until_confirmed()
            there = {topic: _content(client, topic) for topic in TOPICS}
            letters = Counter(one.value or b"" for one in client.dead_letters("jobs"))
        for topic, partitions in there.items():
            for number, content in partitions.items():
                self.history.check_content((topic, number), content)
        self._check_letters(letters)
        self._check_delayed(there["later"])
        left, right = ({*there[topic][0].values()} for topic in ("left", "right"))
        for value, was_committed in self.transactions.items():
            is_there = (value in left, value in right)
            if len({*is_there}) > 1 or was_committed not in {None, is_there[0]}:
                said = {None: "not answered", True: "committed", False: "aborted"}[was_committed]
                raise Violation(Checker.TRANSACTION, f"{value!r}, {said}, is there: {is_there}")

    def _has_letters(self, client: Client) -> bool:
        """A dead letter is on its way for a moment."""
        found = {one.value for one in client.dead_letters("jobs")}
        return found >= {value for value, is_sure in self.rejected.items() if is_sure}

    def _check_letters(self, letters: Counter[bytes]) -> None:
        twice = [value for value, times in letters.items() if times > 1]
        unknown = [value for value in letters if value not in self.rejected]
        if twice or unknown:
            raise Violation(Checker.DLQ_ATOMIC, f"twice: {twice}; of no reject: {unknown}")

    def _check_delayed(self, partitions: dict[int, dict[int, bytes]]) -> None:
        found = [value for content in partitions.values() for value in content.values()]
        missing = self.delayed - {*found}
        if missing or len(found) != len({*found}):
            raise Violation(Checker.DELAY, f"missing: {missing}, or some came twice")


def _content(client: Client, topic: str) -> dict[int, dict[int, bytes]]:
    found: dict[int, dict[int, bytes]] = {
        number: {} for number in range(client.topic(topic).partitions)
    }
    for partition, message in client.read(topic, start="earliest"):
        found[partition][message.offset] = message.data
    return found
