"""Registers sources and transforms as views of Spark, under their names in the YAML."""

import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import PenstockError, Refused
from .lake import LakeReader
from .manifest import NO_VALUE, LakeFile
from .model import (
    FilesSource,
    LakeSource,
    Pipeline,
    PythonTransform,
    Source,
    SqlTransform,
    TopicSource,
)
from .schema import Column, arrow_schema, folder_columns, with_columns
from .spark_errors import is_spark_error, spark_errors
from .store import S3_SCHEME
from .task_runner import SparkTaskRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "penstock"
# Spark takes a path with one of these as a pattern.
_PATTERN = re.compile(r"[*?\[\]{}\\]")


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
    """Register every source and every transform as a view. Refused names the one that fails.

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
        made = apply_transform(spark, transform)
        made.createOrReplaceTempView(transform.name)


def _stream(
    spark: "SparkSession", pipeline: Pipeline, name: str, options: dict[str, str]
) -> "DataFrame":
    # The pipeline reports by itself.
    query = {"queryName": f"{pipeline.name}.{name}", "reportProgress": "false"}
    with spark_errors(f"source {name}"):
        return spark.readStream.format(FORMAT).options(**options, **query).load()


def _read(spark: "SparkSession", pipeline: Pipeline, name: str, source: Source) -> "DataFrame":
    with spark_errors(f"source {name}"):
        if isinstance(source, LakeSource):
            return lake_rows(spark, source.lake, source.as_of)
        if isinstance(source, FilesSource):
            has_names = {"header": "true"} if source.format.value == "csv" else {}
            reader = spark.read.format(source.format.value).options(**has_names)
            return reader.load(source.files)
        return spark.read.format(FORMAT).options(**topic_options(pipeline, source)).load()


def lake_rows(spark: "SparkSession", root: str, as_of: str | None = None) -> "DataFrame":
    """Returns the rows of the files that a lake's manifests name, with all its columns. Refused: there are none."""
    from pyspark.sql.pandas.types import from_arrow_schema

    reader = LakeReader(root)
    state = reader.state(as_of)
    files = list(state.files.values())
    if not files:
        raise Refused(f"{root} has nothing in it yet")
    schema = row_schema(state.columns, files[0])
    places = [reader.place_of(one) for one in files]
    is_listed = all(place == one.path for place, one in zip(places, files, strict=True))
    if is_listed and reader.store.stages and not _PATTERN.search(str(root)):
        paths = [reader.store.location(one) for one in places]
        # Spark knows a struct by its fields: the schema says which columns files from before do not have.
        whole = from_arrow_schema(schema)
        return spark.read.option("basePath", str(root)).schema(whole).parquet(*paths)
    if str(root).startswith(S3_SCHEME):
        require_bucket_in_tasks(spark, str(root))
    read = FileRead(str(root), files, schema)
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(read, from_arrow_schema(schema))


def row_schema(columns: Sequence[Column], file: LakeFile) -> pa.Schema:
    """Returns the schema of a lake's rows: its columns, and those that are folders."""
    return arrow_schema([*columns, *folder_columns(columns, file.folders)])


def require_bucket_in_tasks(spark: "SparkSession", root: str) -> None:
    """Have one task of Spark open a lake in a bucket before a query does, whose tasks fail with a page for each try.

    Refused: tasks do not have the variables that this process has, and cannot open it without them.
    """
    from .s3_store import variables_here

    SparkTaskRunner(spark)(BucketCheck(variables_here()), [root])


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """Opens a lake in a task of Spark. `variables` are those by which the driver finds the store."""

    variables: tuple[str, ...]

    def __call__(self, root: str) -> bytes:
        from .s3_store import variables_here

        here = variables_here()
        missing = [name for name in self.variables if name not in here]
        # Without the endpoint a task would ask another store, which may keep it waiting.
        if not any("ENDPOINT" in name for name in missing):
            try:
                LakeReader(root)
                return b""
            except PenstockError:
                if not missing:
                    raise
        raise Refused(
            f"tasks of Spark cannot open {root}: they have no {', '.join(missing)}; set them where executors start, "
            "or as spark.executorEnv.NAME"
        )


@dataclass(frozen=True, slots=True)
class FileRead:
    """Reads files of a lake in the tasks of Spark: from a bucket, or from where a merge has put them.

    Spark itself needs jars for a bucket, and takes the columns that are folders from the path.
    """

    root: str
    files: list[LakeFile]
    schema: pa.Schema

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        reader = LakeReader(self.root)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                file = self.files[number]
                for rows in reader.batches(file):
                    found = rows
                    for name, value in file.folders.items():
                        kind = self.schema.field(name).type
                        own = pa.scalar(None if value == NO_VALUE else value, pa.string())
                        column = pa.repeat(own, rows.num_rows).cast(kind)
                        found = found.append_column(name, column)
                    yield with_columns(found, self.schema)


def apply_transform(
    spark: "SparkSession", transform: SqlTransform | PythonTransform
) -> "DataFrame":
    if isinstance(transform, SqlTransform):
        with spark_errors(f"transform {transform.name}"):
            return spark.sql(transform.sql)
    call = import_transform(transform)
    what = f"transform {transform.name}"
    with spark_errors(what), _user_code(what):
        inputs = [spark.table(name) for name in transform.inputs]
        found = call(*inputs)  # type: ignore[operator]  # Looked at above.
    if not hasattr(found, "createOrReplaceTempView"):
        raise Refused(f"transform {transform.name}: {transform.python} returned no DataFrame")
    return found  # type: ignore[no-any-return]  # Checked above.


def import_transform(transform: PythonTransform) -> object:
    """Returns the function of a transform. Refused: it is missing, or its module cannot be imported."""
    module, _, function = transform.python.partition(":")
    what = f"transform {transform.name}: cannot import {module}"
    with _user_code(what):
        try:
            found = getattr(importlib.import_module(module), function, None)
        except ImportError as error:
            raise Refused(f"{what}: {error}") from None
    if not callable(found):
        raise Refused(f"transform {transform.name}: {module} has no function {function}")
    return found


@contextmanager
def _user_code(what: str) -> Iterator[None]:
    """Inside, whatever code of the user raises becomes Refused, with the place; errors of Spark and ours stay."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, PenstockError) and not is_spark_error(error):
            last = traceback.extract_tb(error.__traceback__)[-1]
            # A SyntaxError names the place itself.
            is_said = isinstance(error, SyntaxError)
            place = "" if is_said else f" ({Path(last.filename).name}, line {last.lineno})"
            raise Refused(f"{what}: {type(error).__name__}: {error}{place}") from error
        raise


def add_import_folder(folder: Path) -> None:
    """Let transforms be imported from the folder of the YAML."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
