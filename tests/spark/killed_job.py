"""A stream from a topic into another one, and work from a queue beside it: what `test_job_kills` kills.

killed_job.py BROKER FOLDER
"""

import sys
from typing import Any

from penstock.spark import session, work

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_copying(spark: Any, broker: str, folder: str, *, is_once: bool = False) -> Any:
    """The stream, which has the place of each message as its value."""
    stream = spark.readStream.format("penstock").options(
        url=broker,
        subscribe="copied",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="200",
        columns="partition,offset",
    )
    rows = stream.load().selectExpr("concat(partition, '/', offset) AS value", "value AS key")
    writer = rows.writeStream.format("penstock").options(url=broker, topic="copies")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    return (writer.trigger(availableNow=True) if is_once else writer).start()


def main(broker: str, folder: str) -> None:
    config = {"spark.driver.extraJavaOptions": QUICK_JAVA}
    spark = session("killed", master="local[2]", config=config)
    start_copying(spark, broker, folder)
    sys.stdout.write(f"{spark.sparkContext._gateway.proc.pid}\n")
    sys.stdout.flush()
    work(
        spark,
        "jobs",
        "g",
        lambda rows: rows.select("value"),
        to="done",
        url=broker,
        round_messages=100,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
