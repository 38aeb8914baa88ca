"""What a node does for one message is the same among few partitions and among many."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType

import pytest

import penstock
from penstock import Broker

MANY = 250


@contextmanager
def broker_with(directory: Path, idle: int) -> Iterator[Broker]:
    """A broker with a topic in use and so many idle partitions, which had messages and a group once."""
    with penstock.Broker(directory, fsync="always") as broker:
        broker.create_topic("idle", partitions=idle)
        broker.create_topic("busy", partitions=1)
        for number in range(idle):
            broker.publish("idle", b"old", partition=number)
        while messages := broker.poll("idle", "group", limit=1000):
            broker.ack(messages)
        yield broker


def calls_of(work: Callable[[], object]) -> int:
    """How many functions a call of `work` mostly runs, in a thread that may sync itself."""
    counts: list[int] = []

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        counts[-1] += event == "call"

    def run() -> None:
        for _ in range(20):
            counts.append(0)
            sys.setprofile(note)
            work()
            sys.setprofile(None)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return sorted(counts)[len(counts) // 2]


def costs(directory: Path, idle: int) -> dict[str, int]:
    with broker_with(directory, idle) as broker:

        def consume() -> None:
            broker.publish("busy", b"new")
            broker.ack(broker.poll("busy", "group"))

        def fail() -> None:
            """Leases come back, and a tick looks for those whose time is over."""
            broker.publish("busy", b"new")
            broker.nack(broker.poll("busy", "group"), delay="1h")
            broker.driver.tick()

        return {
            "publish": calls_of(lambda: broker.publish("busy", b"new")),
            "consume": calls_of(consume),
            "fail": calls_of(fail),
            "delay": calls_of(lambda: broker.publish("busy", b"new", delay="1h")),
            "tick": calls_of(broker.driver.tick),
        }


@pytest.mark.tier("test")
def test_idle_partitions_cost_nothing(tmp_path: Path) -> None:
    many, few = costs(tmp_path / "many", MANY), costs(tmp_path / "few", 1)
    # Some more or less, because another thread may sync meanwhile; not one for each partition.
    assert {name: count - few[name] >= MANY for name, count in many.items()} == dict.fromkeys(
        few, False
    )
