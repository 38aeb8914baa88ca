"""Debian's Prometheus scrapes a broker with our files: every query of the dashboards is answered, every alert works."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import yaml

from penstock.api.json.pipelines import PipelineIn
from penstock.client import Client
from penstock.client.pipelines import report_pipeline
from penstock.testing.server import running_server
from tests.replication.pairs import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
# Generous: the machine may be busy, and each query needs two scrapes.
PATIENCE_S = 120
pytestmark = [
    pytest.mark.tier("test"),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


@dataclass(frozen=True)
class Prometheus:
    address: str

    def get(self, path: str, **query: str) -> Any:
        with urlopen(f"{self.address}{path}?{urlencode(query)}", timeout=60) as reply:
            return json.load(reply)["data"]

    def ask(self, expression: str) -> list[Any]:
        """The series that a query has now. Raises HTTPError for one that Prometheus does not understand."""
        return self.get("/api/v1/query", query=expression)["result"]

    def rules(self) -> dict[str, Any]:
        (group,) = self.get("/api/v1/rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}


def until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    end = monotonic() + PATIENCE_S
    while not is_so():
        assert monotonic() < end, what()
        Event().wait(0.2)


@contextmanager
def scraped_by_prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    """Runs Prometheus with deploy/prometheus.yml and deploy/alerts.yml, every two seconds instead of every fifteen."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "2s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    directory.joinpath("metrics.key").write_text("not asked for", encoding="utf-8")
    job["authorization"]["credentials_file"] = str(directory / "metrics.key")
    (targets,) = job["static_configs"]
    targets["targets"] = [target]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    shutil.copy(DEPLOY / "alerts.yml", directory)
    subprocess.run(["promtool", "check", "config", file], check=True, capture_output=True)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = ["prometheus", f"--config.file={file}", f"--web.listen-address={address}"]
    log = directory.joinpath("prometheus.log")
    with log.open("w") as said:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={directory / 'tsdb'}"], stderr=said, cwd=directory
        )
    try:
        until(lambda: is_ready(f"http://{address}", process), log.read_text)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def is_ready(address: str, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "prometheus ended"
    try:
        with urlopen(f"{address}/-/ready", timeout=10):
            return True
    except (URLError, OSError):
        return False


def work(client: Client) -> None:
    """Has a broker do something of everything that it counts."""
    client.publish_many("orders", [b"1", b"2", b"3"], acks="all")
    for message in client.poll("orders", "billing", limit=3):
        client.reject(message, "no such customer") if message.value == b"1" else client.ack(message)
    client.publish("orders", b"later", delay="1h")
    client.publish("orders", b"soon", delay="1ms")
    client.publish("orders", b"urgent", priority="critical")
    with urlopen(f"http://{http_of(client)}/topics/orders", timeout=60):
        pass
    with client.transactional_producer("nightly").transaction() as transaction:
        transaction.publish("parcels", b"1")
    done = sum(client.offsets("billing")["orders"].values())
    report = PipelineIn(kind="archive", state="running", messages=done, commits=done, lag=1)
    report_pipeline(client, "lake", report)


def refused(client: Client) -> Request:
    """A publish to a topic that is not there, which is counted."""
    body = b'{"messages": [{"value": "1"}]}'
    kind = {"Content-Type": "application/json"}
    return Request(f"http://{http_of(client)}/topics/none/messages", body, kind)


def http_of(client: Client) -> str:
    return client.server().http.removeprefix("http://").rstrip("/")


def queries() -> list[str]:
    files = (DEPLOY / "grafana").glob("*.json")
    boards = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    panels = [panel for board in boards for panel in board["panels"]]
    return [one["expr"] for panel in panels for one in panel["targets"]]


def test_the_dashboards_have_answers_and_the_alerts_are_raised(tmp_path: Path) -> None:
    # What a broker that is well has nothing to say to: damage, and what a start did.
    silent = {one for one in queries() if one.endswith("> 0")}
    assert len(silent) == 2
    # A broker alone has no figures of a standby.
    shown = [one for one in queries() if one not in silent and "_replication_" not in one]
    with ExitStack() as broker:
        client = broker.enter_context(
            Client(broker.enter_context(running_server(tmp_path / "data")))
        )
        client.create_topic("orders", max_retries=0)
        client.create_topic("parcels")
        with pytest.raises(HTTPError, match="404"):
            urlopen(refused(client), timeout=60)
        consumer = client.consumer("parcels", "packing", mode="assigned")
        broker.enter_context(consumer)
        with scraped_by_prometheus(tmp_path, http_of(client)) as prometheus:

            def is_answered() -> bool:
                work(client)
                return all(prometheus.ask(one) for one in shown)

            until(is_answered, lambda: [one for one in shown if not prometheus.ask(one)])
            for one in silent:
                prometheus.ask(one)
            until(lambda: is_raised(prometheus, "PenstockDeadLetters"), prometheus.rules)
            rules = prometheus.rules()
            written = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
            assert set(rules) == {one["alert"] for one in written["groups"][0]["rules"]}
            assert {rule["health"] for rule in rules.values()} == {"ok"}
            broker.close()
            until(lambda: is_raised(prometheus, "PenstockDown"), prometheus.rules)


def is_raised(prometheus: Prometheus, alert: str) -> bool:
    """Whether what an alert watches for is so; it fires when it was so for long enough."""
    rule = prometheus.rules()[alert]
    return rule["state"] in {"pending", "firing"}
