"""A stream into a topic on a cluster with speculation, in which the first attempt of a task of each batch lags behind.

    speculation_job.py MASTER BROKER TOPIC FOLDER BATCHES

The slow attempt goes on when a second one of the same task has passed on all its rows, and then both stage them.
Writes in how many batches there was a second attempt.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark import session

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TASKS = 4
PAUSE_S = 0.02
CONFIG = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": str(TASKS),
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def lagging(folder: str) -> Any:
    """Passes rows on; of task 0 of a batch, the first attempt waits for the second one."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId")
        mark = Path(folder) / f"second-{number}"
        is_slow = context.partitionId() == 0
        yield from batches
        if is_slow and context.attemptNumber() == 0:
            (Path(folder) / f"first-{number}").touch()
            while not mark.exists():
                time.sleep(PAUSE_S)
        elif is_slow:
            mark.touch()

    return pass_on


def main(master: str, broker: str, topic: str, folder: str, batches: str) -> None:
    spark = session("speculation", master=master, config=CONFIG)
    files, marks = Path(folder) / "files", Path(folder) / "marks"
    marks.mkdir()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
    rows = lines.repartition(TASKS).mapInArrow(lagging(str(marks)), lines.schema)
    writer = rows.writeStream.format("penstock").options(url=broker, topic=topic)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(list(marks.glob("first-*"))) == int(batches), "a first attempt lagged in each batch"
    sys.stdout.write(f"{len(list(marks.glob('second-*')))}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
