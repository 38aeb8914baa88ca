"""Sources and transforms as views of Spark: what a query names is what the YAML names."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Refused
from .failures import saying
from .lake import LakeFiles
from .model import (
    FilesSource,
    LakeSource,
    Pipeline,
    PythonTransform,
    Source,
    SqlTransform,
    TopicSource,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "penstock"


def topic_options(pipeline: Pipeline, source: TopicSource) -> dict[str, str]:
    options = {
        "url": pipeline.server,
        "subscribe": source.topic,
        "startingOffsets": source.start.value,
        "includeHeaders": "true",
    }
    files = {"apiKeyFile": pipeline.key_file, "caFile": pipeline.ca_file}
    return options | {name: one for name, one in files.items() if one is not None}


def register(
    spark: "SparkSession", pipeline: Pipeline, *, is_stream: bool, group: str = ""
) -> None:
    """Make every source and every transform a view. Refused names the one that cannot be.

    Streams publish their progress as `group`, if it is not empty.
    """
    more = {"group": group} if group else {}
    for name, source in pipeline.sources.items():
        if is_stream and isinstance(source, TopicSource):
            found = _stream(spark, pipeline, name, topic_options(pipeline, source) | more)
        else:
            found = _read(spark, pipeline, name, source)
        found.createOrReplaceTempView(name)
    for transform in pipeline.transforms:
        made = transformed(spark, transform)
        made.createOrReplaceTempView(transform.name)


def _stream(
    spark: "SparkSession", pipeline: Pipeline, name: str, options: dict[str, str]
) -> "DataFrame":
    query = {"queryName": f"{pipeline.name}.{name}"}
    with saying(f"source {name}"):
        return spark.readStream.format(FORMAT).options(**options, **query).load()


def _read(spark: "SparkSession", pipeline: Pipeline, name: str, source: Source) -> "DataFrame":
    with saying(f"source {name}"):
        if isinstance(source, LakeSource):
            return lake_rows(spark, Path(source.lake))
        if isinstance(source, FilesSource):
            has_names = {"header": "true"} if source.format.value == "csv" else {}
            reader = spark.read.format(source.format.value).options(**has_names)
            return reader.load(source.files)
        return spark.read.format(FORMAT).options(**topic_options(pipeline, source)).load()


def lake_rows(spark: "SparkSession", root: Path) -> "DataFrame":
    """What a lake's manifests name, and nothing else that may lie about in its directory."""
    files = LakeFiles(root)
    paths = files.paths()
    if not paths:
        raise Refused(f"{root} has nothing in it yet")
    return spark.read.option("basePath", str(root)).parquet(*paths)


def transformed(spark: "SparkSession", transform: SqlTransform | PythonTransform) -> "DataFrame":
    if isinstance(transform, SqlTransform):
        return query(spark, transform.sql, f"transform {transform.name}")
    call = imported(transform)
    found = call(*(spark.table(name) for name in transform.inputs))  # type: ignore[operator]  # Looked at above.
    if not hasattr(found, "createOrReplaceTempView"):
        raise Refused(f"transform {transform.name}: {transform.python} returned no DataFrame")
    return found  # type: ignore[no-any-return]  # As was just seen.


def imported(transform: PythonTransform) -> object:
    """The function of a transform. Refused if it is not there, with what its module says."""
    module, _, function = transform.python.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise Refused(f"transform {transform.name}: cannot import {module}: {error}") from None
    if not callable(found):
        raise Refused(f"transform {transform.name}: {module} has no function {function}")
    return found


def importable_from(folder: Path) -> None:
    """Transforms may stand beside the YAML that names them."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def query(spark: "SparkSession", sql: str, what: str) -> "DataFrame":
    """A query as a DataFrame. Refused with what Spark says about it, in a line."""
    with saying(what):
        return spark.sql(sql)
