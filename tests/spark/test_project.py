"""The project of `penstock pipeline init`, run by the command `spark-pipelines`, here and on a Connect server."""

import json
import os
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from .conftest import QUICK_JAVA

# What the command `spark-pipelines` runs.
PIPELINES = Path(pyspark.__path__[0]) / "pipelines" / "cli.py"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
DEADLINE_S = 1200


def init(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock", "pipeline", "init", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True)


def free_port() -> int:
    """Below those that clients get, and above those of nodes: none has it when Spark has started, seconds later."""
    while True:
        port = random.randrange(30_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def files_of(folder: Path) -> dict[str, str]:
    return {str(one): one.read_text() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.tier("test")
def test_a_directory_that_is_there_is_refused_and_not_changed(tmp_path):
    made = init(tmp_path / "shop", "--topic", "Orders-2", "--json")
    assert json.loads(made.stdout) == {
        "directory": str(tmp_path / "shop"),
        "topic": "Orders-2",
        "target": "Orders-2.out",
        "tables": ["orders_2", "orders_2_latest"],
    }
    before = files_of(tmp_path)
    for words in (["--topic", "others"], []):
        again = init(tmp_path / "shop", *words)
        assert (again.returncode, again.stdout) == (3, "")
        assert again.stderr.splitlines() == [
            f"Error: {tmp_path}/shop is there already, and was not changed: name a new directory (INVALID_ARGUMENT)"
        ]
    assert files_of(tmp_path) == before
    for folder, topic, why in (
        ("a b", "orders", "letters, digits"),
        ("shop2", "or/ders", "or/ders"),
        ("shop/env.sh/below", "orders", "env.sh"),
    ):
        wrong = init(tmp_path / folder, "--topic", topic)
        assert wrong.returncode == 3
        assert why in wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
    assert files_of(tmp_path) == before
    assert [one.name for one in tmp_path.iterdir()] == ["shop"]


class Project:
    """A project in a folder, with settings that suit a test: a JVM that starts soon, and one flow after the other."""

    def __init__(self, folder: Path, broker: str, topic: str, target: str) -> None:
        self.folder = folder
        made = init(folder, "--topic", topic, "--to", target, "--server", broker)
        assert made.returncode == 0, made.stderr
        settings = folder / "conf" / "spark-defaults.conf"
        text = settings.read_text()
        settings.write_text(text.replace("extraJavaOptions ", f"extraJavaOptions {QUICK_JAVA} "))
        with (folder / "spark-pipeline.yml").open("a") as spec:
            spec.write('configuration:\n  spark.sql.pipelines.execution.maxConcurrentFlows: "1"\n')

    def shell(self, words: str) -> list[str]:
        return ["sh", "-c", f". {self.folder}/env.sh && exec {words}"]

    def run(self, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
        command = self.shell(f"{program} run --spec spark-pipeline.yml {' '.join(words)}")
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_S
        )

    def try_flows_once(self) -> None:
        """Have what is refused not tried again, for which Spark waits 5 s, then 10 s."""
        with (self.folder / "spark-pipeline.yml").open("a") as spec:
            spec.write('  spark.sql.pipelines.maxFlowRetryAttempts: "0"\n')

    def run_remote(self, url: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run on a Connect server, without the two JVMs that the command starts to read its `--remote`."""
        return self.run(f"env SPARK_REMOTE={url} python {PIPELINES}", *words)

    def rows(self, table: str) -> list[tuple[bytes, bytes]]:
        found = pq.read_table(self.folder / "catalogue" / "warehouse" / table).to_pydict()
        return sorted(zip(found["key"], found["value"], strict=True))

    @contextmanager
    def connect_server(self) -> Iterator[str]:
        port = free_port()
        words = (
            f"spark-submit --class {CONNECT_SERVER} --conf spark.connect.grpc.binding.port={port}"
        )
        log = self.folder / "server.log"
        with log.open("w") as said:
            server = subprocess.Popen(
                self.shell(words), cwd=self.folder, stderr=said, stdout=said, start_new_session=True
            )
        try:
            # Clients of Spark try again until the server listens.
            yield f"sc://127.0.0.1:{port}"
            assert server.poll() is None, log.read_text()[-3000:]
        finally:
            os.killpg(server.pid, 15)
            server.wait(timeout=DEADLINE_S)


def succeed(done: "subprocess.CompletedProcess[str]") -> None:
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    assert " ERROR " not in said


@pytest.mark.tier("test")
@pytest.mark.xdist_group("spark")
def test_a_project_runs_runs_again_and_is_refreshed(broker, client, tmp_path):
    client.create_topic("parcels", partitions=2)
    client.create_topic("parcels.out", partitions=2)
    project = Project(tmp_path / "parcels", broker, "parcels", "parcels.out")

    def publish(first: int, last: int) -> None:
        with client.producer("parcels") as producer:
            for number in range(first, last):
                producer.send(b"p%d" % number, b"k%d" % (number % 3))

    def check(last: int) -> None:
        all_rows = [(b"k%d" % (number % 3), b"p%d" % number) for number in range(last)]
        assert project.rows("parcels") == sorted(all_rows)
        assert project.rows("parcels_latest") == sorted(dict(all_rows).items())

    def sent() -> Counter[bytes | None]:
        return Counter(message.value for _, message in client.read("parcels.out"))

    publish(0, 20)
    succeed(project.run("spark-pipelines"))
    check(20)
    assert sent() == Counter(b"P%d" % number for number in range(20))
    publish(20, 30)
    everything = Counter(b"P%d" % number for number in range(30))
    with project.connect_server() as url:
        succeed(project.run_remote(url))
        check(30)
        assert sent() == everything
        succeed(project.run_remote(url, "--full-refresh", "parcels,parcels_latest"))
        check(30)
        assert sent() == everything
        project.try_flows_once()
        refused = project.run_remote(url, "--full-refresh-all")
        assert refused.returncode != 0
        assert "penstock commits reset parcels" in refused.stdout + refused.stderr
        assert sent() == everything
