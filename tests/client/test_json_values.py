"""Values as JSON: in the process and over the binary port."""

from typing import TypedDict

import pytest

import penstock
from penstock.client import AsyncClient, Client, Outgoing
from penstock.errors import Refused

ORDER = {"order": 7, "lines": [{"what": "lämp", "price": 1.5}], "note": None}


class Order(TypedDict):
    order: int


def test_a_queue_takes_and_gives_json(tmp_path):
    with penstock.open(tmp_path / "q") as queue:
        queue.put(json=ORDER)
        queue.put(json=[], key=b"k")
        queue.put(json=None, delay="0s")
        assert [queue.get(timeout=60).json() for _ in range(3)] == [ORDER, [], None]
        for wrong in ({}, {"value": b"x", "json": 1}, {"json": 1j}, {"json": {(): 1}}):
            with pytest.raises(Refused):
                queue.put(**wrong)
        with pytest.raises(Refused):
            queue.put_many([b"x"], json=1)
        assert queue.get() is None


def test_a_broker_takes_and_gives_json():
    with penstock.Broker() as broker:
        broker.create_topic("orders", partitions=1)
        broker.create_topic("orders", partitions=5, exist_ok=True)
        broker.publish("orders", json=ORDER)
        broker.publish("orders", None)
        broker.publish("orders", b"\xff")
        order, tombstone, raw = broker.poll("orders", "g", limit=3)
        assert order.json() == ORDER
        assert tombstone.data == b""
        for unreadable in (tombstone, raw):
            with pytest.raises(Refused):
                unreadable.json()
        with pytest.raises(Refused):
            order.json(list[int])


async def test_clients_take_and_give_json(url):
    with Client(url) as client:
        client.create_topic("jsons", partitions=1)
        client.publish("jsons", json=ORDER, key="k")
        client.publish_many("jsons", [Outgoing(json=1), Outgoing("2")])
        with client.producer("jsons") as producer:
            producer.send(json=3)
            for wrong in ({}, {"value": b"x", "json": 1}):
                with pytest.raises(Refused):
                    producer.send(**wrong)
                with pytest.raises(Refused):
                    client.publish("jsons", **wrong)
        found = client.poll("jsons", "json-readers", timeout=60)
        assert [one.json() for one in found] == [ORDER, 1, 2, 3]
        assert found[0].json(Order) == {"order": 7}
    async with AsyncClient(url) as other:
        await other.publish("jsons", json=4)
        (last,) = await other.poll("jsons", "json-readers", timeout=60)
        assert last.json() == 4
