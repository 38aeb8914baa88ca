"""Drivers of an archive, or of a merge, that die in the middle of a commit, cheap enough to kill hundreds of them.

victims.py

Reads one line of JSON a victim, writes one line with how it ended. Each is a process of its own, forked from this one
after the imports, which take far longer than its work. Nothing here has threads or connections before the fork.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import IO, Any

# A process that is not dead by then hangs: an alarm ends it, which is not the death that was asked for.
LIMIT_S = 300
KILLED = -signal.SIGKILL
_OPTIONS = {"commit_messages_max": 150, "task_messages_max": 50}


class Victims:
    """Starts victims, one after the other."""

    def __init__(self, asks: IO[str], answers: IO[str]) -> None:
        self._asks, self._answers = asks, answers

    def kill(self, url: str, root: Path, topic: str, point: str, **runner: Any) -> None:
        """Have a driver die at a point of its first commit; of a merge, if no topic is named. `runner`: `_spread`."""
        victim = {"url": url, "root": str(root), "topic": topic, "point": point, **runner}
        self._asks.write(json.dumps(victim) + "\n")
        self._asks.flush()
        assert int(self._answers.readline()) == KILLED, "it died where it should"


@contextmanager
def victims() -> Iterator[Victims]:
    words = [sys.executable, __file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        yield Victims(one.stdin, one.stdout)


def _spread(runner: str, gateway_port: int = 0, gateway_secret: str = "") -> Any:
    """`here` runs tasks itself, `spark` in a session with a JVM of its own, `attached` in the one behind a gateway.

    An attached driver is this process alone: it dies and the JVM with its session lives on, for the next one.
    """
    if runner == "here":
        return lambda call, tasks: [call(task) for task in tasks]
    from penstock.spark.pipelines.task_runner import SparkTaskRunner
    from penstock.spark.session import session

    if runner == "spark":
        return SparkTaskRunner(session("victim", master="local[2]"))
    return SparkTaskRunner(_attached(gateway_port, gateway_secret))


def _attached(port: int, secret: str) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    # Otherwise workers are whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = launch_gateway()
    spark = gateway.jvm.org.apache.spark
    context = spark.api.java.JavaSparkContext.fromSparkContext(spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))


def gateway_of(spark: Any) -> dict[str, Any]:
    """What an attached victim needs to know of a session."""
    found = spark.sparkContext._gateway.gateway_parameters
    return {"runner": "attached", "gateway_port": found.port, "gateway_secret": found.auth_token}


def _run(victim: dict[str, Any]) -> None:
    from killing import arm_driver  # Beside this script.

    from penstock.spark.pipelines.archive import Archive, ArchiveOptions
    from penstock.spark.pipelines.lake import Lake
    from penstock.spark.pipelines.merge import compact
    from penstock.spark.pipelines.remote import Remote

    signal.alarm(LIMIT_S)
    url, root, topic, point = (victim.pop(name) for name in ("url", "root", "topic", "point"))
    spread = _spread(**victim)
    with Lake(Path(root)) as opened:
        # The lake is open: what it does from here on is the commit.
        arm_driver(point)
        if not topic:
            compact(opened)
            return
        options = ArchiveOptions(topics=(topic,), group=f"{topic}-lake", **_OPTIONS)
        Archive(opened, Remote(url), spread, options).run_once(Event())


def _forked(victim: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _run(victim)
        finally:
            # The process should be dead by now. Nothing of the parent may be flushed or closed twice.
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _import_early(runner: str) -> None:
    import penstock.client
    import penstock.spark.pipelines.archive

    if runner != "here":
        import penstock.spark.pipelines.task_runner  # noqa: F401 - for those who are forked


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        _import_early(asked["runner"])
        sys.stdout.write(f"{_forked(asked)}\n")
        sys.stdout.flush()
