"""A stream from a topic into files: what `test_kills` kills.

stream_job.py BROKER FOLDER
"""

import sys

from penstock.spark import session


def main(broker: str, folder: str) -> None:
    spark = session("killed", master="local[2]")
    stream = spark.readStream.format("penstock").options(
        url=broker,
        subscribe="killed",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="2000",
        columns="partition,offset",
        group="killed-readers",
    )
    writer = stream.load().writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/rows")
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows")
    sys.stdout.write(f"{rows.count()} {rows.distinct().count()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
