"""What the cluster is asked to do: read a topic as a table and as a stream, while an executor dies.

    cluster_job.py MASTER BROKER FOLDER KILLS

Writes what it found as JSON. It is also a Connect server, and a second process reads through that.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark import session

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLIENT = """
import json, sys
from penstock.spark import session
spark = session("client", master=sys.argv[1])
options = {"url": sys.argv[2], "subscribe": "cluster-orders", "columns": "partition,offset"}
rows = spark.read.format("penstock").options(**options).load()
stream = spark.readStream.format("penstock").options(startingOffsets="earliest", **options).load()
query = stream.writeStream.format("parquet").option("checkpointLocation", sys.argv[3] + "/c").option(
    "path", sys.argv[3] + "/rows").trigger(availableNow=True).start()
query.awaitTermination(1200)
print(json.dumps([rows.distinct().count(), rows.count(), spark.read.parquet(sys.argv[3] + "/rows").count()]))
"""


def executor_pid() -> int:
    """A worker is a child of a daemon, and that is a child of the executor."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def dying(folder: str, kills: int) -> Any:
    """Passes rows on; the first tasks that come by take their executors down with them."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in range(kills):
                with contextlib.suppress(FileExistsError):
                    (Path(folder) / f"killed-{number}").touch(exist_ok=False)
                    os.kill(executor_pid(), signal.SIGKILL)
            yield batch

    return pass_on


def main(master: str, broker: str, folder: str, kills: str) -> None:
    config = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.cores": "1",
        "spark.task.maxFailures": "20",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session("proof", master=master, config=config)
    connect = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(connect, "MODULE$").localPort()
    options = {
        "url": broker,
        "subscribe": "cluster-orders",
        "minPartitions": "4",
        "columns": "partition,offset",
    }
    stream = (
        spark.readStream.format("penstock").options(startingOffsets="earliest", **options).load()
    )
    query = (
        stream.mapInArrow(dying(folder, int(kills)), stream.schema)
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{folder}/rows")
    table = spark.read.format("penstock").options(**options).load()
    through = subprocess.run(
        [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{port}", broker, f"{folder}/connect"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=1200,
    )
    found = {
        "java": spark._jvm.java.lang.System.getProperty("java.home"),
        "streamed": [streamed.distinct().count(), streamed.count()],
        "table": [table.distinct().count(), table.count()],
        "connect": json.loads(through.stdout),
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
