"""Micro-batches of a stream into a lake, without Spark: what is written, what is a repeat, and what is refused."""

import json
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

from penstock.errors import Damaged, Refused
from penstock.spark.pipelines.lake import Lake
from penstock.spark.pipelines.parser import read_pipeline
from penstock.spark.pipelines.schema import columns_of
from penstock.spark.pipelines.stream import FileWrite, PartitionDone, Stream

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


def test_numbers_and_times_that_have_no_limits_are_written(tmp_path):
    """Their limits are left out; those of other columns are there."""
    files = column_files(
        tmp_path / "limits",
        {
            "finite": pa.array([1.5, -2.5]),
            "infinite": pa.array([1.0, float("inf")]),
            "below": pa.array([1.0, float("-inf")]),
            "late": pa.array([0, 253402300800000000], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 2932897], pa.date32()),
            "time": pa.array([0, 1_000_000], pa.timestamp("us", "UTC")),
        },
    )
    assert files.ranges == {
        "finite": [-2.5, 1.5],
        "time": ["1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:01.000000Z"],
    }
    with Lake(tmp_path / "limits") as lake:
        assert [*lake.now.files.values()] == [files]


def column_files(root, columns):
    """Returns the one file of a new lake with these columns."""
    rows = pa.RecordBatch.from_pydict(columns)
    with Lake(root) as lake:
        (told,) = FileWrite(str(root), 0, "attempt", "zstd")(iter([rows]))
        done = msgspec.json.decode(told.column("done")[0].as_py(), type=PartitionDone)
        lake.commit([], [done.file], columns=columns_of(rows.schema))
    return done.file


def test_a_manifest_that_would_not_be_read_is_not_written(tmp_path):
    file = column_files(tmp_path, {"number": pa.array([1.0])})
    wrong = msgspec.structs.replace(
        file, path="other", staged="other", ranges={"number": [0.0, float("inf")]}
    )
    with Lake(tmp_path) as lake:
        with pytest.raises(Damaged):
            lake.commit([], [wrong])
        assert lake.next_commit == 1
    with Lake(tmp_path) as lake:
        assert [*lake.now.files] == [file.path]
