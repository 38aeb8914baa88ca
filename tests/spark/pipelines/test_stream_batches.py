"""Micro-batches of a stream into a lake, without Spark: what is written, what is a repeat, and what is refused."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

from penstock.errors import Refused
from penstock.spark.pipelines.lake import Lake
from penstock.spark.pipelines.parser import read_pipeline
from penstock.spark.pipelines.stream import Stream

YAML = """
name: numbers
sources: {{orders: {{topic: orders}}}}
transforms: [{{name: numbers, sql: SELECT offset FROM orders}}]
sinks: [{{lake: {lake}, from: numbers, split: none{more}}}]
"""


class Frame:
    """A DataFrame of numbers; each list is the rows of a partition."""

    schema = StructType().add("number", LongType())

    def __init__(self, *partitions):
        self.partitions = partitions

    def mapInArrow(self, task, _schema):  # noqa: N802  # As Spark calls it.
        tasks = [
            task(iter([pa.RecordBatch.from_pydict({"number": numbers})]))
            for numbers in self.partitions
        ]
        rows = [row for batches in tasks for batch in batches for row in batch.to_pylist()]
        return SimpleNamespace(collect=lambda: rows)


@pytest.fixture
def commit(tmp_path):
    """Commits a frame as a batch of the one checkpoint, each time by a driver that knows only the lake."""
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "spark").mkdir(parents=True)
    (checkpoint / "spark" / "metadata").write_text(json.dumps({"id": "query-1"}))

    def commit(number, *partitions, **options):
        more = "".join(f", {name}: {value}" for name, value in options.items())
        text = YAML.format(lake=tmp_path / "lake", more=more) + f"checkpoint: {checkpoint}\n"
        pipeline = read_pipeline(text, path=tmp_path / "numbers.yaml")
        with Lake(tmp_path / "lake") as lake:
            Stream(None, pipeline, lake, lambda _: None).commit(Frame(*partitions), number)
            tables = [pq.read_table(path) for path in lake.paths()]
        return sorted(number for table in tables for number in table["number"].to_pylist())

    return commit


def test_a_repeat_of_the_last_batch_is_not_written_again(commit):
    assert commit(0, [1, 2], [], [3]) == [1, 2, 3]
    assert commit(0, [3], [2, 1]) == [1, 2, 3]
    assert commit(1) == [1, 2, 3]
    assert commit(1, []) == [1, 2, 3]
    assert commit(2, [4]) == [1, 2, 3, 4]


def test_other_rows_under_the_last_number_are_refused_or_skipped(commit):
    commit(0, [1, 2], [3])
    for other in ([1, 2, 3, 4], [1, 2], [1, 2, 5], []):
        with pytest.raises(Refused, match=r"batch 0 of numbers is in .* with 3 rows, .* and Spark"):
            commit(0, other)
    assert commit(0, [1, 2, 3, 4], on_repeat="skip") == [1, 2, 3]


def test_a_batch_below_the_last_one_is_refused_or_skipped(commit):
    commit(0, [1])
    commit(1, [2])
    with pytest.raises(Refused, match=r"batch 0 of numbers is older than the last one of .*, 1"):
        commit(0, [1])
    assert commit(0, [1], if_older="skip") == [1, 2]
