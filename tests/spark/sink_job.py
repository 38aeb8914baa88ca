"""A stream from a topic into another one: what `test_kills` kills.

sink_job.py BROKER FOLDER
"""

import sys

from penstock.spark import session


def main(broker: str, folder: str) -> None:
    spark = session("killed", master="local[2]")
    stream = spark.readStream.format("penstock").options(
        url=broker,
        subscribe="copied",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="2000",
        columns="partition,offset",
    )
    rows = stream.load().selectExpr("concat(partition, '/', offset) AS value", "value AS key")
    writer = rows.writeStream.format("penstock").options(url=broker, topic="copies")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.start()
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
