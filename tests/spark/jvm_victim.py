"""A stream into a topic and work from a queue in one session, whose JVM is killed while both are in the middle.

    jvm_victim.py BROKER TOPIC FOLDER POINT

Its Python driver lives on, and writes the error that it gets. Workers of Spark get a copy of what is here.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock.client import Client
from penstock.errors import Unavailable
from penstock.spark import session, work
from penstock.spark.sink import StreamWriter
from penstock.spark.source import PenstockSource

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONFIG = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    # The stream has one task and so has the work: they wait for each other, and two run at a time.
    "spark.default.parallelism": "1",
}
IN_TASKS, AT_COMMITS = "in their tasks", "at their commits"
PAUSE_S = 0.02


class Meeting:
    """Kills the JVM when the stream and the work are both where they should be."""

    def __init__(self, folder: Path, point: str, jvm: int) -> None:
        self.folder, self.point, self.jvm = folder, point, jvm

    def reach(self, point: str, name: str) -> None:
        if point != self.point:
            return
        (self.folder / name).touch()
        while not all((self.folder / one).exists() for one in ("stream", "work")):
            time.sleep(PAUSE_S)
        try:
            os.kill(self.jvm, signal.SIGKILL)
        except ProcessLookupError:
            return


def dying_sink(meeting: Meeting) -> type[PenstockSource]:
    class DyingWriter(StreamWriter):
        def write(self, iterator: Any) -> Any:
            def dying() -> Any:
                yield from iterator
                meeting.reach(IN_TASKS, "stream")

            return super().write(dying())

        def commit(self, messages: Any, batch_id: int) -> None:
            super().commit(messages, batch_id)
            # The broker has decided, and Spark has not written its commit log.
            meeting.reach(AT_COMMITS, "stream")

    class DyingSink(PenstockSource):
        @classmethod
        def name(cls) -> str:
            return "penstock_dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802  # As Spark calls it.
            return DyingWriter(super().streamWriter(schema, overwrite).asked)

    return DyingSink


def dying_work(meeting: Meeting) -> Any:
    """A transform that gets to a meeting in its task, and a client that gets there between staging and commit."""
    commit = Client.commit_stagings

    def dying_commit(self: Any, *words: Any, **more: Any) -> Any:
        # The commit with which a driver takes over a name lists no stagings.
        if words[3]:
            meeting.reach(AT_COMMITS, "work")
        return commit(self, *words, **more)

    def dying(batches: Any) -> Any:
        for batch in batches:
            yield batch
            meeting.reach(IN_TASKS, "work")

    Client.commit_stagings = dying_commit
    return lambda rows: rows.select("value").mapInArrow(dying, "value binary")


def main(broker: str, topic: str, folder: str, point: str) -> None:
    spark = session("dying", master="local[2]", config=CONFIG)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    meeting = Meeting(Path(folder) / "meeting", point, jvm)
    spark.dataSource.register(dying_sink(meeting))
    lines = spark.readStream.text(f"{folder}/files")
    writer = lines.writeStream.format("penstock_dying").options(url=broker, topic=topic)
    writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    try:
        transform, queue = dying_work(meeting), f"{topic}.queue"
        # More than one round, so that the driver finds out when its round was committed.
        work(spark, queue, "g", transform, to=f"{queue}.done", url=broker, round_messages=5)
    except Unavailable as error:
        sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
