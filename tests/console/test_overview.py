"""The overview of a broker without keys that has lost files: no login, and what is wrong is said."""

import shutil

import penstock

from ..server.rigs import served
from .visitor import Visitor


def test_a_faulty_partition_and_what_the_start_did_are_told(browser, tmp_path):
    data = tmp_path / "data"
    with penstock.Broker(data) as broker:
        broker.create_topic("orders", partitions=2)
        broker.open_group("orders", "billing")
        for number in range(2):
            broker.publish("orders", b"x", partition=number)
    shutil.rmtree(data / "topics" / "default" / "orders.1" / "partition-1" / "messages")
    with served(data) as server:
        visitor = Visitor(browser, server.address)
        visitor.page.get_by_role("link", name="Penstock").wait_for()
        visitor.sees("Keys are off")
        visitor.sees("1 faulty partition")
        visitor.sees("orders/1")
        visitor.sees("The broker needs a look")
        assert visitor.faults() == []
        visitor.go("topics")
        visitor.sees("faulty partition")
        assert visitor.problems == []
        visitor.close()


def test_standbys_and_their_lag_are_told(browser, tmp_path):
    standby = {"node": 2, "is_in_sync": True, "lag_bytes": 2048, "lag_s": 1.5, "sent_bytes": 0}
    cluster = {"in_sync": 2, "min_isr": 2, "standbys": [standby]}

    def with_role(route):
        route.fulfill(json={**route.fetch().json(), "role": "leading"})

    with served(tmp_path / "data") as server:
        visitor = Visitor(browser, server.address)
        visitor.page.route("**/readyz*", with_role)
        visitor.page.route("**/cluster", lambda route: route.fulfill(json=cluster))
        visitor.page.reload()
        visitor.sees("Machines in sync")
        visitor.sees("Standby 2")
        visitor.sees("2.0 KiB, 1.5 s behind")
        assert visitor.problems == []
        visitor.close()


def test_the_console_of_the_node_that_leads_is_named(browser, tmp_path):
    refusal = {"error": "NOT_LEADER", "message": "another one leads", "http": "http://leader:8080"}

    with served(tmp_path / "data") as server:
        visitor = Visitor(browser, server.address)
        visitor.page.get_by_role("link", name="Penstock").wait_for()
        visitor.page.route("**/topics?*", lambda route: route.fulfill(status=421, json=refusal))
        visitor.go("topics")
        visitor.sees("another one leads; its console is at http://leader:8080")
        visitor.close()
