"""What a cluster is asked to do whose executors have no Penstock but the one that came with the job.

shipping_job.py BROKER FOLDER

Writes what it found as JSON.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from penstock.spark import session

OPTIONS = {"subscribe": "shipped", "columns": "partition,offset"}


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """Where an executor has Penstock from."""
    import pyarrow as pa

    import penstock

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [penstock.__file__]})


def main(broker: str, folder: str) -> None:
    from pyspark import SparkConf

    spark = session("shipped", master=SparkConf().get("spark.master") or "local[*]")
    table = spark.read.format("penstock").options(url=broker, **OPTIONS).load()
    stream = spark.readStream.format("penstock").options(
        url=broker, startingOffsets="earliest", **OPTIONS
    )
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/rows")
    )
    query.awaitTermination()
    places = spark.range(4).mapInArrow(where, "place string").distinct().collect()
    found = {
        "places": [one.place for one in places],
        "table": [table.distinct().count(), table.count()],
        "streamed": spark.read.parquet(f"{folder}/rows").distinct().count(),
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
