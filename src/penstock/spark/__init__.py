"""Spark: topics as tables and streams, and a session to read them with.

    from penstock.spark import session

    spark = session("my job")
    spark.read.format("penstock").option("subscribe", "orders").load().show()

`format("penstock")` is found by Spark through the module `pyspark_penstock`. The guide: docs/spark.md.
"""

from .java import NoJava as NoJava
from .session import session as session
