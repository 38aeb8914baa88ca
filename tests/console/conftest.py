"""A broker with keys, a real browser, and visitors that log in with a key of their role."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from ..server.rigs import Served, request
from .visitor import Visitor

CHROMIUM = shutil.which("chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder share one worker: a browser takes a core for itself."""
    missing = pytest.mark.skip(reason="chromium is not installed")
    for item in items:
        if item.nodeid.startswith("tests/console/"):
            item.add_marker(pytest.mark.tier("test"))
            item.add_marker(pytest.mark.xdist_group("console"))
            if CHROMIUM is None:
                item.add_marker(missing)


class Broker:
    """A broker with keys, and a key of each role."""

    def __init__(self, served: Served) -> None:
        self.served, self.address = served, served.address
        self.keys = {"admin": (served.data / "admin.key").read_text().strip()}
        for role in ("readonly", "consumer", "producer"):
            made = self.call("POST", "/admin/keys", {"name": f"a-{role}", "role": role})
            self.keys[role] = made["key"]

    def call(self, method: str, target: str, body: object = None) -> Any:
        """The answer to an administrator's request, which has to succeed."""
        connection = HTTPConnection("127.0.0.1", self.served.port, timeout=120)
        try:
            headers = {"authorization": f"Bearer {self.keys['admin']}"}
            reply = request(connection, method, target, body, **headers)
        finally:
            connection.close()
        assert reply.status < 300, (method, target, reply)
        return json.loads(reply.body) if reply.body else None

    def topic(self, name: str, *values: Any, partitions: int = 1, **config: Any) -> None:
        body = {"name": name, "num_partitions": partitions, "config": config}
        self.call("POST", "/topics", body)
        if values:
            messages = {"messages": [{"value": one} for one in values]}
            self.call("POST", f"/topics/{name}/messages", messages)

    def poll(self, topic: str, group: str, most: int = 1, held: str = "10m") -> list[Any]:
        query = f"group={group}&max={most}&visibility_timeout={held}&timeout=30s"
        return self.call("GET", f"/topics/{topic}/messages?{query}")["messages"]

    def dead_letters(self, topic: str, *reasons: str) -> None:
        """Publish a message for each reason, and have a group reject it."""
        self.topic(topic, *[json.dumps({"order": number}) for number in range(len(reasons))])
        for one, reason in zip(self.poll(topic, "billing", len(reasons)), reasons, strict=True):
            body = {"receipt_handle": one["receipt_handle"], "reason": reason}
            self.call("POST", "/messages/reject", body)
        self.letters(topic, len(reasons))

    def letters(self, topic: str, count: int) -> list[Any]:
        """The dead letters of a topic, once so many have arrived: they travel by themselves."""
        while (
            len(found := self.call("GET", f"/topics/{topic}/dlq?limit=1000")["dead_letters"])
            < count
        ):
            time.sleep(0.02)
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    environment = {"PENSTOCK_AUTH__ENABLED": "true"}
    served = Served(tmp_path_factory.mktemp("console") / "data", environment=environment)
    try:
        yield Broker(served)
    finally:
        served.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed with its module: while it is open no event loop of another test can run in this thread."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield opened
        opened.close()


@pytest.fixture
def visit(broker: Broker, browser: Any) -> Iterator[Callable[..., Visitor]]:
    """`visit(role)` opens the console and logs in. At the end nothing may have gone wrong in any page."""
    visitors: list[Visitor] = []

    def enter(role: str | None = "admin", **options: Any) -> Visitor:
        visitor = Visitor(browser, broker.address, **options)
        visitors.append(visitor)
        if role is not None:
            visitor.log_in(broker.keys[role])
        return visitor

    yield enter
    problems = [one for visitor in visitors for one in visitor.problems]
    for visitor in visitors:
        visitor.close()
    assert problems == []
