"""A data directory with something of everything in it, and a ledger of what its users were told.

It lives through three lives of a broker. `older` is a copy after the first one, which ended in good order; `recent`
is a copy from within the last one, which was killed; `killed` is what the kill left; `stopped` is the same directory
after one more life that ended in good order.
"""

import hashlib
import re
import shutil
import signal
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .commands import Broker, Commands

SETTINGS = """\
auth: {enabled: true}
storage: {min_free_bytes: 0, fsync: always}
topic: {num_partitions: 1}
"""
# One publish after the other fills a segment in some five batches, so that most are sealed.
SEGMENT_BYTES = 2500
LEASE = "12h"
# Every value holds one of these, and no two messages the same.
TOKEN = re.compile(rb"<[a-z.]+-[0-9]+-[0-9a-f]{8}>")

Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class Ledger:
    """What clients were told. Places are (topic, partition); groups are named with their topic."""

    published: dict[Place, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    acked: dict[tuple[str, str], set[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    deleted_values: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)
    tokens: int = 0

    def value(self, topic: str) -> str:
        """A value that no other message has."""
        self.tokens += 1
        seal = hashlib.sha256(f"{topic} {self.tokens}".encode()).hexdigest()[:8]
        return f"<{topic}-{self.tokens}-{seal}>" + "." * (40 + 13 * (self.tokens % 9))


@dataclass
class Furnished:
    """The copies, and what their users know."""

    settings: Path
    older: Path
    recent: Path
    killed: Path
    stopped: Path
    ledger: Ledger
    admin_key: str


class Household:
    """The users of the broker: producers, members of groups, an administrator."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.broker: Broker

    def topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        config = {"segment_size_bytes": SEGMENT_BYTES, **config}
        body = {"name": name, "num_partitions": partitions, "config": config}
        self.broker.must("POST", "/topics", body)

    def publish(self, topic: str, partition: int, count: int, **fields: Any) -> list[str]:
        """So many messages, three in a batch, all fsynced; their values."""
        values = [self.ledger.value(topic) for _ in range(count)]
        for first in range(0, count, 3):
            messages = [
                {"value": value, "partition": partition, **fields}
                for value in values[first : first + 3]
            ]
            body = {"messages": messages, "acks": "all"}
            for result in self.broker.must("POST", f"/topics/{topic}/messages", body)["results"]:
                if not result["delayed"]:
                    offsets = self.ledger.published[topic, result["partition"]]
                    offsets[result["offset"]] = messages[0]["value"]
                    messages.pop(0)
        return values

    def publish_keyed(self, topic: str, rounds: int) -> None:
        """The same five keys again and again, for compaction."""
        for number in range(rounds):
            value = self.ledger.value(topic)
            message = {"key": f"k{number % 5}", "value": value, "partition": 0}
            body = {"messages": [message], "acks": "all"}
            (result,) = self.broker.must("POST", f"/topics/{topic}/messages", body)["results"]
            self.ledger.published[topic, 0][result["offset"]] = value

    def poll(self, topic: str, group: str, most: int) -> list[dict[str, Any]]:
        target = f"/topics/{topic}/messages?group={group}&max={most}&visibility_timeout={LEASE}"
        return self.broker.must("GET", target)["messages"]

    def ack(self, topic: str, group: str, messages: list[dict[str, Any]]) -> None:
        receipts = [one["receipt_handle"] for one in messages]
        if receipts:
            self.broker.must("POST", "/messages/ack", {"receipt_handles": receipts})
        done = {(one["partition"], one["offset"]) for one in messages}
        self.ledger.acked[topic, group] |= done

    def compact(self, topic: str) -> dict[str, Any]:
        return self.broker.must("POST", f"/admin/topics/{topic}/compact")

    def wait_for(self, topic: str, partition: int, end: int) -> None:
        """Until the log of a partition is so long: a delay fires, a dead letter arrives."""
        target = f"/topics/{topic}/partitions/{partition}/messages?offset={end - 1}&timeout=30s"
        assert self.broker.must("GET", target)["messages"], f"{topic}/{partition} stays below {end}"


def furnish(commands: Commands, root: Path) -> Furnished:
    """Live through it all; some seconds."""
    data, settings = root / "data", root / "settings.yaml"
    settings.write_text(SETTINGS)
    ledger = Ledger()
    users = Household(ledger)
    with commands.broker(data, "--config", str(settings)) as users.broker:
        assert users.broker.address, users.broker.output
        admin_key = users.broker.key = (data / "admin.key").read_text().strip()
        first_life(users)
        assert users.broker.end() == 0
    shutil.copytree(data, root / "older")
    with commands.broker(data, "--config", str(settings)) as users.broker:
        users.broker.key = admin_key
        second_life(users)
        assert users.broker.end() == 0
    with commands.broker(data, "--config", str(settings)) as users.broker:
        users.broker.key = admin_key
        third_life(users)
        shutil.copytree(data, root / "recent")
        some_work(users)
        users.broker.end(signal.SIGKILL)
    shutil.copytree(data, root / "killed")
    with commands.broker(data, "--config", str(settings)) as users.broker:
        users.broker.key = admin_key
        assert users.broker.end() == 0
    data.rename(root / "stopped")
    return Furnished(
        settings,
        root / "older",
        root / "recent",
        root / "killed",
        root / "stopped",
        ledger,
        admin_key,
    )


def first_life(users: Household) -> None:
    broker = users.broker
    for name, role in (("reader", "readonly"), ("shop", "producer")):
        made = broker.must("POST", "/admin/keys", {"name": name, "role": role})
        users.ledger.keys.append(made["key"])
    users.topic("orders", 2, max_retries=0)
    users.topic("prices", cleanup="compact")
    users.topic("events", retention_bytes=3 * SEGMENT_BYTES)
    users.topic("gone")
    for partition in range(2):
        users.publish("orders", partition, 30)
        users.publish("orders", partition, 2, delay="30d")
    users.publish_keyed("prices", 20)
    users.publish("events", 0, 60)
    users.ledger.deleted_values |= {*users.publish("gone", 0, 12)}
    users.ack("orders", "billing", users.poll("orders", "billing", 20)[::2])
    users.ack("events", "readers", users.poll("events", "readers", 10))
    users.ack("prices", "readers", users.poll("prices", "readers", 3))
    users.compact("events")


def second_life(users: Household) -> None:
    broker = users.broker
    broker.must("DELETE", "/topics/gone")
    del users.ledger.published["gone", 0]
    users.topic("gone")
    users.publish("gone", 0, 9)
    bury(users)
    for partition in range(2):
        fire(users, partition)
        users.publish("orders", partition, 20)
    made = broker.must("POST", "/admin/keys", {"name": "later", "role": "consumer"})
    users.ledger.keys.append(made["key"])
    users.publish_keyed("prices", 30)
    assert users.compact("prices")["segments_removed"]
    users.publish("events", 0, 60)
    assert users.compact("events")["segments_removed"]
    some_work(users)


def third_life(users: Household) -> None:
    users.topic("late", 1)
    users.publish("late", 0, 7)
    for partition in range(2):
        users.publish("orders", partition, 10, delay="60d")
        fire(users, partition)
    some_work(users)


def bury(users: Household) -> None:
    """Some messages become dead letters."""
    rejected = users.poll("orders", "strangers", 6)
    receipts = [one["receipt_handle"] for one in rejected]
    body = {"receipt_handles": receipts, "reason": "not ours"}
    users.broker.must("POST", "/messages/reject", body)
    by_partition: dict[int, int] = defaultdict(int)
    for one in rejected:
        users.ledger.acked["orders", "strangers"].add((one["partition"], one["offset"]))
        offset = by_partition[one["partition"]]
        by_partition[one["partition"]] += 1
        users.ledger.published["orders.dlq", one["partition"]][offset] = one["value"]
    for partition, end in by_partition.items():
        users.wait_for("orders.dlq", partition, end)


def fire(users: Household, partition: int) -> None:
    """A delayed message whose time comes, and one that is cancelled."""
    described = users.broker.must("GET", "/topics/orders")
    end = described["partition_offsets"][str(partition)]["latest"]
    (value,) = users.publish("orders", partition, 1, delay="5ms")
    users.wait_for("orders", partition, end + 1)
    users.ledger.published["orders", partition][end] = value
    message = {
        "value": users.ledger.value("orders"),
        "partition": partition,
        "delay": "30d",
        "delay_key": "k",
    }
    users.broker.must("POST", "/topics/orders/messages", {"messages": [message], "acks": "all"})
    users.broker.must("DELETE", "/topics/orders/delayed?delay_key=k")


def some_work(users: Household) -> None:
    """Publish, ack out of order, hold some, fail some."""
    for partition in range(2):
        users.publish("orders", partition, 13)
    users.publish("gone", 0, 5)
    held = users.poll("orders", "billing", 24)
    users.ack("orders", "billing", held[3::2])
    receipts = [one["receipt_handle"] for one in users.poll("gone", "slow", 2)]
    body = {"receipt_handles": receipts, "reason": "later", "delay": LEASE}
    users.broker.must("POST", "/messages/nack", body)
    users.ack("gone", "slow", users.poll("gone", "slow", 4)[1:])
    users.ack("events", "readers", users.poll("events", "readers", 10)[1:])
    users.ack("prices", "readers", users.poll("prices", "readers", 2))
    users.publish("events", 0, 6)
    users.publish_keyed("prices", 4)
