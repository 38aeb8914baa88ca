"""What the cluster is asked to do: archive a topic while an executor dies, and again over Spark Connect.

cluster_archive.py MASTER BROKER FOLDER [POINT]

With a point (see killing.py) the driver itself dies there, in its first commit.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from penstock.spark import session
from penstock.spark.pipelines.archive import Archive, ArchiveOptions
from penstock.spark.pipelines.lake import Lake
from penstock.spark.pipelines.remote import Remote
from penstock.spark.pipelines.task_runner import SparkTaskRunner


@dataclass(frozen=True)
class KillingExecutor:
    """A task's call that, once, writes everything and then kills the executor that it runs in."""

    call: Any
    mark: str

    def __call__(self, task: Any) -> bytes:
        answer: bytes = self.call(task)
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return answer
        # A worker is a child of a daemon, and that is a child of the executor.
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        return answer


def main(master: str, broker: str, folder: str, point: str = "") -> None:
    config = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
    }
    spark = session("archive", master=master, config=config)
    connect = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(connect, "MODULE$").localPort()
    spread = SparkTaskRunner(spark)

    def deadly(call: Any, tasks: Any) -> list[bytes]:
        return spread(KillingExecutor(call, f"{folder}/killed"), tasks)

    with Lake(Path(folder) / "lake") as lake:
        if point:
            from killing import arm_driver  # Beside this script.

            arm_driver(point)
        options = ArchiveOptions(
            topics=("clustered",),
            group="clustered",
            commit_messages_max=10_000,
            task_messages_max=2500,
        )
        Archive(lake, Remote(broker), deadly, options).run_once(Event())
    words = [
        "archive",
        "run",
        "clustered",
        "--to",
        f"{folder}/connected",
        "--once",
        "--server",
        broker,
    ]
    command = [sys.executable, "-m", "penstock", *words, "--remote", f"sc://127.0.0.1:{port}"]
    subprocess.run(command, check=True, timeout=1200)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
