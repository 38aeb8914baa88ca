"""Where Spark looks for `format("penstock")`: it imports every top-level module named `pyspark_*`.

The source itself is in `penstock.spark`.
"""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
