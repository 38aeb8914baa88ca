"""Measures the embedded queue against other queues for Python. 100-byte distinct values, one process.

All contenders run in one pass, in turns, and the best turn counts. `put` and `get` are one call for one message; what a
put leaves in memory is written inside the figure. The peers are measured once, for all the cases that need them.
"""

import gc
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from penstock.api.received import Received
from penstock.broker.partition import Now
from penstock.codec import Columns, encode
from penstock.embedded.broker import Broker
from penstock.embedded.open_queue import open_queue

from .measure import FULL, Clock, Effort
from .queues import PEERS, SYNCED_PEERS, QueueContender, QueuePeer
from .report import Case, CaseResult, Unit, on_ratio, on_value

VALUE_BYTES = 100
# A round has a write of a full batch and some fetches, so that work for many messages is in it in proportion.
OURS = 8192
# Rounds of all contenders take about as long: a few milliseconds, which other processes seldom disturb.
THEIRS = 100
ROUNDS = 12
MANY = 100
POLL = 500
THREADS = 8
# For all contenders: with a few only, most of the time goes into eight threads that start and files that are new.
PUTS_A_THREAD = 100
MEMBERS = 8
CYCLE = 50_000
SMALL_BACKLOG = 60_000
LARGE_BACKLOG, LARGE_BACKLOG_QUICK = 10_000_000, 300_000
FILL = 20_000
# The goals are for calls without an fsync; those of the peers that can be are opened likewise.
NO_SYNC = "never"
SETTINGS: Mapping[str, object] = {"value_bytes": VALUE_BYTES, "clock": "cpu"}


@cache
def make_values(count: int) -> Sequence[bytes]:
    entropy = random.Random(7)  # noqa: S311 - payloads, and the same ones in every run
    return [entropy.randbytes(VALUE_BYTES) for _ in range(count)]


@contextmanager
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def timed_ns(work: Callable[[], object], clock: Clock = Clock.CPU) -> int:
    # Without a collection before: it would go through all of memory and leave cold caches.
    was_on = gc.isenabled()
    gc.disable()
    try:
        started_ns = clock.now_ns()
        work()
        return clock.now_ns() - started_ns
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class OneByOne:
    """The nanoseconds a message of one contender: the best of its turns so far."""

    put: float = float("inf")
    get: float = float("inf")

    def take_turn(self, contender: QueueContender, values: Sequence[bytes]) -> None:
        put, get = contender.put, contender.get

        def put_all() -> None:
            for value in values:
                put(value)
            contender.flush()

        def get_all() -> None:
            for _ in values:
                get()

        # The turn before has left other data in the caches, so each contender warms up first.
        put_all()
        get_all()
        self.put = min(self.put, timed_ns(put_all) / len(values))
        self.get = min(self.get, timed_ns(get_all) / len(values))


@cache
def one_by_one(effort: Effort) -> Mapping[str, OneByOne]:
    """Measure every queue that is installed, Penstock first."""
    peers = {name: peer for name, peer in PEERS.items() if peer.is_installed}
    found = {name: OneByOne() for name in ("penstock", *peers)}
    with scratch() as directory, ExitStack() as stack:
        ours = stack.enter_context(open_queue(directory / "ours", fsync=NO_SYNC))
        contenders = {
            "penstock": QueueContender(ours.put, ours.get, ours.flush),
            **opened(peers, directory, stack),
        }
        for _ in range(effort.turns * ROUNDS):
            for name, contender in contenders.items():
                count = OURS if name == "penstock" else THEIRS
                found[name].take_turn(contender, make_values(count))
    return found


def opened(
    peers: Mapping[str, QueuePeer], directory: Path, stack: ExitStack
) -> Mapping[str, QueueContender]:
    return {
        name: stack.enter_context(peer.open(directory / f"peer-{number}"))
        for number, (name, peer) in enumerate(peers.items())
    }


def missing(peers: Mapping[str, QueuePeer]) -> tuple[str, ...]:
    return tuple(name for name, peer in peers.items() if not peer.is_installed)


def measure_one_by_one(what: str, effort: Effort) -> CaseResult:
    figures = {name: float(getattr(one, what)) for name, one in one_by_one(effort).items()}
    ours = figures.pop("penstock")
    settings = {**SETTINGS, "peers_ns": {name: round(figure) for name, figure in figures.items()}}
    return CaseResult(ours, min(figures.values()), missing=missing(PEERS), settings=settings)


def measure_put_many(effort: Effort) -> CaseResult:
    """Measure batches of 100 against single puts."""
    values = make_values(OURS)
    batches = [list(values[at : at + MANY]) for at in range(0, OURS, MANY)]
    best_ns = float("inf")
    with scratch() as directory, open_queue(directory / "ours", fsync=NO_SYNC) as queue:

        def put_all() -> None:
            for batch in batches:
                queue.put_many(batch)
            queue.flush()

        for _ in range(effort.turns * ROUNDS):
            best_ns = min(best_ns, timed_ns(put_all) / OURS)
    single = one_by_one(effort)["penstock"].put
    return CaseResult(best_ns, single, settings={**SETTINGS, "batch_messages": MANY})


def measure_get_many_ack(effort: Effort) -> CaseResult:
    """Measure a work queue: 500 messages at a time, then one ack for all of them."""
    values = list(make_values(OURS))
    best_ns = float("inf")
    with scratch() as directory, open_queue(directory / "ours", auto_ack=False) as queue:

        def work_all() -> None:
            while messages := queue.get_many(POLL):
                queue.ack(messages)

        for _ in range(effort.turns * ROUNDS):
            queue.put_many(values)
            queue.flush()
            best_ns = min(best_ns, timed_ns(work_all) / OURS)
    single = one_by_one(effort)["penstock"].get
    return CaseResult(best_ns, single, settings={**SETTINGS, "batch_messages": POLL})


def measure_put_fsync_threads(effort: Effort) -> CaseResult:
    """Measure messages a second of eight threads with an fsync before each put returns."""
    peers = {name: peer for name, peer in SYNCED_PEERS.items() if peer.is_installed}
    best = dict.fromkeys(("penstock", *peers), 0.0)
    with scratch() as directory, ExitStack() as stack:
        ours = stack.enter_context(open_queue(directory / "ours", fsync="always"))
        contenders = {
            "penstock": QueueContender(ours.put, ours.get),
            **opened(peers, directory, stack),
        }
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        for _ in range(effort.turns * 2):
            for name, contender in contenders.items():
                best[name] = max(best[name], puts_per_second(contender, pool))
    figure = best.pop("penstock")
    settings = {"threads": THREADS, "peers": {name: round(rate) for name, rate in best.items()}}
    return CaseResult(figure, max(best.values()), missing=missing(SYNCED_PEERS), settings=settings)


def puts_per_second(contender: QueueContender, pool: ThreadPoolExecutor) -> float:
    values = make_values(OURS)[:PUTS_A_THREAD]

    def put_all(_thread: int) -> None:
        for value in values:
            contender.put(value)

    elapsed_ns = timed_ns(lambda: list(pool.map(put_all, range(THREADS))), Clock.WALL)
    return THREADS * PUTS_A_THREAD * 1_000_000_000 / elapsed_ns


@dataclass(frozen=True, slots=True)
class Cycle:
    """Nanoseconds and journal bytes a message of a cycle of poll and ack on a topic with a backlog."""

    ns: float
    journal_bytes: float


def run_cycle(broker: Broker, topic: str, ack: Callable[[list[Received]], None]) -> Cycle:
    """Poll and ack a part of the backlog in eight members' turns."""
    done = 0

    def work() -> None:
        nonlocal done
        while done < CYCLE:
            for member in range(MEMBERS):
                messages = broker.poll(topic, "workers", member=f"member-{member}", limit=POLL)
                ack(messages)
                done += len(messages)

    before = journal_bytes(broker, topic)
    elapsed_ns = timed_ns(work)
    return Cycle(elapsed_ns / done, (journal_bytes(broker, topic) - before) / done)


def journal_bytes(broker: Broker, topic: str) -> int:
    def look(_now: object) -> int:
        return broker.driver.node.partition(topic, 0).journal.log.size

    return broker.driver.query(look)


def fill(broker: Broker, topic: str, count: int) -> None:
    """Publish a backlog of distinct values, in batches as a busy producer makes them."""
    values = make_values(FILL)

    def append(now: Now) -> None:
        columns = Columns(values=values, timestamps=now.wall_ns)
        broker.driver.node.partition(topic, 0).append(encode(columns), now)

    for _ in range(0, count, FILL):
        broker.driver.run(append)


@cache
def cycles(effort: Effort) -> Mapping[str, Cycle]:
    """Returns the best turns with a small backlog, a large one, and with every second message acked first."""
    large = large_backlog(effort)
    best: dict[str, Cycle] = {}

    def ack_alternating(broker: Broker, messages: list[Received]) -> None:
        broker.ack(messages[::2])
        broker.ack(messages[1::2])

    with scratch() as directory, Broker(directory, fsync="never") as broker:
        broker.create_topic("large", partitions=1)
        broker.open_group("large", "workers")
        fill(broker, "large", large)
        for turn in range(effort.turns):
            for name in ("small", "alternating"):
                broker.create_topic(f"{name}-{turn}", partitions=1)
                fill(broker, f"{name}-{turn}", SMALL_BACKLOG)
            turns = {
                "small": run_cycle(broker, f"small-{turn}", broker.ack),
                "large": run_cycle(broker, "large", broker.ack),
                "alternating": run_cycle(
                    broker, f"alternating-{turn}", partial(ack_alternating, broker)
                ),
            }
            broker.reset("workers", "earliest", topic="large", force=True)
            for name in ("small", "alternating"):
                broker.delete_topic(f"{name}-{turn}")
            for name, cycle in turns.items():
                best[name] = min(best.get(name, cycle), cycle, key=lambda one: one.ns)
    return best


def measure_delivery_cycle(effort: Effort) -> CaseResult:
    small = cycles(effort)["small"]
    return CaseResult(1_000_000_000 / small.ns, settings=cycle_settings(SMALL_BACKLOG))


def measure_delivery_backlog(effort: Effort) -> CaseResult:
    found = cycles(effort)
    settings = cycle_settings(large_backlog(effort))
    return CaseResult(found["large"].ns, found["small"].ns, settings=settings)


def large_backlog(effort: Effort) -> int:
    return LARGE_BACKLOG if effort == FULL else LARGE_BACKLOG_QUICK


def measure_delivery_alternating(effort: Effort) -> CaseResult:
    found = cycles(effort)
    settings = cycle_settings(SMALL_BACKLOG)
    return CaseResult(found["alternating"].ns, found["small"].ns, settings=settings)


def measure_journal_bytes(effort: Effort) -> CaseResult:
    return CaseResult(cycles(effort)["small"].journal_bytes, settings=cycle_settings(SMALL_BACKLOG))


def cycle_settings(backlog: int) -> Mapping[str, object]:
    return {**SETTINGS, "members": MEMBERS, "poll": POLL, "backlog": backlog}


BEST_PEER = "the best of persist-queue, litequeue, sqlite3 WAL, diskcache Deque and LMDB"

CASES = (
    Case(
        name="put",
        unit=Unit.NS,
        measure=partial(measure_one_by_one, "put"),
        goal=on_value("<=400"),
        baseline=BEST_PEER,
    ),
    Case(
        name="put_against_peers",
        unit=Unit.NS,
        measure=partial(measure_one_by_one, "put"),
        goal=on_ratio(">=10"),
        baseline=BEST_PEER,
    ),
    Case(
        name="put_many",
        unit=Unit.NS,
        measure=measure_put_many,
        goal=on_value("<=120"),
        baseline="put one by one",
    ),
    Case(
        name="get",
        unit=Unit.NS,
        measure=partial(measure_one_by_one, "get"),
        goal=on_value("<=1000"),
        baseline=BEST_PEER,
    ),
    Case(
        name="get_against_peers",
        unit=Unit.NS,
        measure=partial(measure_one_by_one, "get"),
        goal=on_ratio(">=10"),
        baseline=BEST_PEER,
    ),
    Case(
        name="get_many_ack",
        unit=Unit.NS,
        measure=measure_get_many_ack,
        goal=on_value("<=1500"),
        baseline="get one by one, without ack",
    ),
    Case(
        name="put_fsync_threads",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_put_fsync_threads,
        goal=on_ratio(">=3"),
        baseline="the best of persist-queue SQLite, sqlite3 WAL and LMDB with fsync",
    ),
    Case(
        name="delivery_cycle",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_delivery_cycle,
        goal=on_value(">=400000"),
    ),
    Case(
        name="delivery_cycle_backlog",
        unit=Unit.NS,
        measure=measure_delivery_backlog,
        # Bigger is better: 1 / 1.3.
        goal=on_ratio(">=0.77"),
        baseline="the same with a small backlog",
    ),
    Case(
        name="delivery_cycle_alternating",
        unit=Unit.NS,
        measure=measure_delivery_alternating,
        goal=on_ratio(">=0.5"),
        baseline="the same with one ack for all",
    ),
    Case(
        name="journal_bytes",
        unit=Unit.BYTES,
        measure=measure_journal_bytes,
        goal=on_value("<=8"),
    ),
)
