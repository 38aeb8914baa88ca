"""The columns of a lake grow, never change their type, and are the same for every reader."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.errors import Refused
from penstock.spark.pipelines.delta import publish as to_delta
from penstock.spark.pipelines.lake import Lake, LakeReader, TableFormat
from penstock.spark.pipelines.manifest import StreamBatch
from penstock.spark.pipelines.merge import compact
from penstock.spark.pipelines.rows import SCHEMA
from penstock.spark.pipelines.schema import Column, arrow_schema, columns_of, merged, sql_type
from penstock.spark.pipelines.task_files import ParquetSink
from penstock.spark.pipelines.verify import verify

NESTED = pa.schema(
    [
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
        pa.field("s", pa.struct([pa.field("x", pa.list_(pa.field("element", pa.date32())))])),
        pa.field("t", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


@pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["archive", "nested"])
def test_columns_come_back_as_the_schema_that_they_were(schema):
    assert arrow_schema(columns_of(schema)).equals(schema)


def test_types_are_shown_as_sql_writes_them():
    shown = {one.name: sql_type(one.type) for one in columns_of([*SCHEMA, *NESTED])}
    assert shown["headers"] == "array<struct<key:string,value:binary>>"
    assert [shown[name] for name in "dmst"] == [
        "decimal(10,2)",
        "map<string,long>",
        "struct<x:array<date>>",
        "timestamp",
    ]


def test_a_column_may_be_added_or_left_out_and_not_be_changed():
    known = [Column("a", "long", nullable=False), Column("b", "string")]
    assert merged([], known) == known
    assert merged(known, [Column("a", "long"), Column("c", "date", nullable=False)]) == [
        Column("a", "long"),
        Column("b", "string"),
        Column("c", "date"),
    ]
    with pytest.raises(Refused, match="column b of the lake is string, not long: cast it"):
        merged(known, [Column("b", "long")])
    with pytest.raises(Refused, match="cannot hold columns of type duration"):
        columns_of(pa.schema([("a", pa.duration("s"))]))


def written(lake, number, table):
    """Commits a micro-batch of one file, as a stream does."""
    staged = f"{lake.next_commit:020d}/a/rows.parquet"
    sink = ParquetSink(lake.store, f"rows-{number}.parquet", staged, table.schema, "zstd")
    sink.writer.write_table(table)
    columns = [Column(one.name, one.type) for one in columns_of(table.schema)]
    return lake.commit([], [sink.close()], StreamBatch("q", number), columns=columns)


def test_a_column_that_comes_with_a_batch_without_rows_is_in_the_delta_table(tmp_path):
    with Lake(tmp_path, table=TableFormat.DELTA, publish=to_delta) as lake:
        written(lake, 0, pa.table({"a": [1]}))
        lake.commit([], [], StreamBatch("q", 1), columns=[Column("a", "long"), Column("b", "long")])
        written(lake, 2, pa.table({"a": [2], "b": [3]}))
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda one: one["a"]) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_a_delta_table_and_merged_files_have_all_columns_of_the_lake(tmp_path):
    with Lake(tmp_path, table=TableFormat.DELTA, publish=to_delta) as lake:
        written(lake, 0, pa.table({"a": [1, 2], "b": ["x", "y"]}))
        first = written(lake, 1, pa.table({"a": [3], "c": [1.5]}))
        assert [one.name for one in first.columns] == ["a", "b", "c"]
        assert written(lake, 2, pa.table({"a": [4], "b": ["z"], "c": [2.5]})).columns == []
        with pytest.raises(Refused, match="column a of the lake is long, not string"):
            written(lake, 3, pa.table({"a": ["5"]}))
        expected = [
            {"a": 1, "b": "x", "c": None},
            {"a": 2, "b": "y", "c": None},
            {"a": 3, "b": None, "c": 1.5},
            {"a": 4, "b": "z", "c": 2.5},
        ]
        for _ in range(2):
            rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
            assert sorted(rows, key=lambda one: one["a"]) == expected
            compact(lake)
    (file,) = LakeReader(tmp_path).state().files.values()
    (rows,) = LakeReader(tmp_path).batches(file)
    assert rows.to_pylist() == expected
    assert file.ranges == {"a": [1, 4], "c": [1.5, 2.5]}
    assert verify(LakeReader(tmp_path)).problems == []
