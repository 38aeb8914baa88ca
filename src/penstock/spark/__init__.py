"""Reads topics as tables and streams of Spark, writes both into topics, and makes sessions for that.

    from penstock.spark import session

    spark = session("my job")
    spark.read.format("penstock").option("subscribe", "orders").load().show()

Spark finds `format("penstock")` through the module `pyspark_penstock`. The guide: docs/spark.md.
"""

from .java import NoJava as NoJava
from .progress import progress_listener as progress_listener
from .refresh import refresh as refresh
from .session import session as session
from .typed_frame import with_data as with_data
from .work import WorkProgress as WorkProgress
from .work import work as work
