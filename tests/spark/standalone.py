"""A Spark cluster on this machine: a master and workers, each a process of its own, on the Java of a wheel.

The programs run as on a machine that has no Java: none on the PATH, no JAVA_HOME.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.session import prepare

_STOP_TIMEOUT_S = 1200
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


def path_without_java(folder: Path) -> str:
    """All programs but Java, as links in one folder."""
    folder.mkdir()
    for one in os.environ["PATH"].split(os.pathsep):
        for program in Path(one).glob("[!j]*"):
            with contextlib.suppress(FileExistsError):
                (folder / program.name).symlink_to(program)
    return str(folder)


def environment_without_java(folder: Path) -> dict[str, str]:
    """The environment of a process on a machine without Java."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    return {
        **kept,
        "PATH": path_without_java(folder / "bin"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


class Cluster:
    """`url` is the master's; `environment` is for the driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = environment_without_java(folder)
        self._processes: list[subprocess.Popen[str]] = []
        self.url = ""

    def start(self, *, workers: int) -> None:
        master = self._run(_MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            # Each as if on a machine of its own: Spark never runs two attempts of a task on one.
            host = f"127.0.0.{number + 1}"
            words = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._run(_WORKER, *words, "--work-dir", str(self.folder / f"work-{number}"), self.url)

    def _run(self, name: str, *words: str) -> "subprocess.Popen[str]":
        import pyspark

        settings = dict(self.environment)
        prepare(settings)
        program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
        # Small heaps: there are several of these on one machine.
        settings |= {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        process = subprocess.Popen(
            [program, name, *words],
            env=settings,
            # Only what the master says is read; the pipe of a worker would be full one day.
            stderr=subprocess.PIPE if name == _MASTER else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        return process

    @staticmethod
    def _said(process: "subprocess.Popen[str]", pattern: str) -> str:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(pattern, line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return found[1]
        raise AssertionError(f"never said {pattern}")

    def run(self, program: Path, *words: str) -> str:
        """Run a program that drives the cluster; gives what it wrote."""
        done = subprocess.run(
            [sys.executable, program, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.communicate(timeout=_STOP_TIMEOUT_S)


@contextlib.contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        cluster.start(workers=workers)
        yield cluster
    finally:
        cluster.stop()
