"""Pipelines as Spark runs them: streams with transforms, queries, loads."""

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.client import Outgoing
from penstock.client.pipelines import describe_pipeline
from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake import Lake, LakeColumns, LakeReader
from penstock.spark.pipelines.merge import compact
from penstock.spark.pipelines.parser import read_pipeline
from penstock.spark.pipelines.runner import run
from penstock.spark.pipelines.verify import verify
from penstock.spark.pipelines.views import lake_rows

from .rigs import NEVER, archived, publish

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]

STREAM = """
name: {topic}
sources: {{orders: {{topic: {topic}}}}}
transforms:
  - name: parsed
    sql: SELECT partition, offset, CAST(key AS STRING) AS id, length(value) AS size FROM orders
  - {{name: large, python: "shop_transforms:large", from: parsed}}
sinks: [{{lake: lake, from: large, table: delta, split: none, group: sizes, hold_retention: true}}]
"""


def ran(spark, text, folder, url, **more):
    found = read_pipeline(text, path=folder / "pipeline.yaml", server=url)
    told = []
    run(spark, found, NEVER, is_once=True, tell=told.append, **more)
    return told


@pytest.fixture
def shop_transforms(tmp_path, monkeypatch):
    code = "def large(rows):\n    return rows.where('size > 7')\n"
    (tmp_path / "shop_transforms.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))


def offsets(root):
    import pyarrow.parquet as pq

    found = Counter()
    for path in LakeReader(root).paths():
        for row in pq.ParquetFile(path).read(columns=["partition", "offset"]).to_pylist():
            found[row["partition"], row["offset"]] += 1
    return found


def test_a_stream_goes_through_transforms_into_a_lake_once(
    spark, client, topic, tmp_path, shop_transforms
):
    import deltalake

    text = STREAM.format(topic=topic)
    publish(client, topic, 20)
    assert ran(spark, text, tmp_path, client.url)[-1].messages == 10, "those with two digits"
    # A driver that died between the lake's commit and Spark's: the batch comes again, and is known.
    commits = tmp_path / f".penstock/{topic}/spark/commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
    for one in commits.glob(f"*{last}*"):
        one.unlink()
    publish(client, topic, 5, first=20)
    ran(spark, text, tmp_path, client.url)
    expected = Counter(
        (partition, one.offset) for partition, one in client.read(topic) if len(one.value) > 7
    )
    assert offsets(tmp_path / "lake") == expected
    assert deltalake.DeltaTable(str(tmp_path / "lake")).count() == 15
    assert verify(LakeReader(tmp_path / "lake")).problems == []
    assert describe_pipeline(client, topic).state == "stopped"
    assert client.topic(topic).config["keep_unread"]
    assert client.lag("sizes").total == 0, "the last batch, too, is told"
    assert describe_pipeline(client, topic).batch_ms > 0
    # A lost checkpoint does not archive the same rows once more.
    other = text.replace("sinks:", f"checkpoint: {tmp_path}/other\nsinks:")
    with pytest.raises(PenstockError, match="filled by another checkpoint"):
        ran(spark, other, tmp_path, client.url)
    assert offsets(tmp_path / "lake") == expected
    client.create_topic(f"{topic}-2", partitions=1)
    changed = text.replace(f"{{topic: {topic}}}", f"{{topic: {topic}-2}}")
    with pytest.raises(Refused, match="checkpoint of another topic"):
        ran(spark, changed, tmp_path, client.url)


def query(sql, topic, *sinks):
    return json.dumps(
        {
            "name": "q",
            "sources": {"orders": {"topic": topic}},
            "transforms": [{"name": "found", "sql": sql}],
            "sinks": list(sinks) or [{"table": "-", "from": "found"}],
        }
    )


def test_a_query_over_a_topic_gives_a_table_and_a_plot(spark, client, topic, tmp_path):
    client.publish_many(topic, [Outgoing(f'{{"n": {one}}}') for one in range(10)])
    sql = (
        "SELECT n % 3 AS rest, sum(n) AS total FROM "
        "(SELECT CAST(get_json_object(CAST(value AS STRING), '$.n') AS INT) AS n FROM orders) "
        "GROUP BY 1 ORDER BY 1"
    )
    sinks = [
        {"table": "-", "from": "found"},
        {"table": "found.csv", "from": "found"},
        {"plot": "found.png", "from": "found"},
    ]
    shown = []
    ran(spark, query(sql, topic, *sinks), tmp_path, client.url, show=shown.append)
    assert shown[0].to_pydict() == {"rest": [0, 1, 2], "total": [18, 12, 15]}
    assert (tmp_path / "found.csv").read_text().splitlines()[1] == "0,18"
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", r"transform found: .*PARSE_SYNTAX_ERROR"),
        ("SELECT nothing FROM orders", r"transform found: .*`nothing` cannot be resolved"),
        ("SELECT * FROM nowhere", r"transform found: .*`nowhere` cannot be found"),
        ("SELECT 1/0 AS x FROM orders", "found: .*DIVIDE_BY_ZERO"),
    ],
)
def test_bad_sql_is_refused_with_what_spark_says(spark, client, tmp_path, sql, said):
    if "shared" not in client.topics():
        client.create_topic("shared", partitions=1)
        client.publish("shared", b"x")
    with pytest.raises(PenstockError, match=said):
        ran(spark, query(sql, "shared"), tmp_path, client.url)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def made(", r"transform t: cannot import {0}: SyntaxError: .*line 1\)"),
        ("1 / 0", r"cannot import {0}: ZeroDivisionError: .* \({0}\.py, line 1\)"),
        ("def made(rows):\n    raise KeyError('a')", r"KeyError: 'a' \({0}\.py, line 2\)"),
        (
            "def made(rows):\n    return rows.select('no')",
            r"transform t: .*`no` cannot be resolved",
        ),
    ],
    ids=["syntax", "import", "call", "column"],
)
def test_what_a_transform_in_python_raises_is_one_line(
    spark, client, topic, tmp_path, monkeypatch, request, code, said
):
    client.publish(topic, b"x")
    module = f"wrong_{request.node.callspec.id}"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = f"""
name: wrong
sources: {{orders: {{topic: {topic}}}}}
transforms: [{{name: t, python: "{module}:made", from: orders}}]
sinks: [{{table: '-', from: t}}]
"""
    with pytest.raises(Refused, match=said.format(module)):
        ran(spark, text, tmp_path, client.url)


@pytest.mark.parametrize("name", ["a b %20 'é'", "[ab] {c,d} *?"])
def test_a_lake_with_any_name_is_a_view(spark, client, topic, tmp_path, name):
    publish(client, topic, 10)
    root = tmp_path / name / "lake"
    archived(root, client.url, topic)
    (row,) = lake_rows(spark, str(root)).selectExpr("count(*) AS n", "max(topic) AS t").collect()
    assert (row["n"], row["t"]) == (10, topic)


def test_a_field_that_divides_a_lake_is_a_column_of_its_type(spark, client, topic, tmp_path):
    fields = [{"name": "day", "type": ["null", "string"]}, {"name": "n", "type": "int"}]
    order = {"type": "record", "name": "Order", "fields": fields}
    schema = client.register_schema(f"{topic}-value", json.dumps(order))
    for day in ("007", "a/b: %41 é", None):
        client.publish(topic, schema.encode({"day": day, "n": 1}))
    for field, expected in (("day", [None, "007", "a/b: %41 é"]), ("n", [1, 1, 1])):
        lake = str(tmp_path / field)
        columns = LakeColumns(f"{topic}-value", schema.schema_id, field)
        archived(Path(lake), client.url, topic, columns=columns)
        rows = lake_rows(spark, lake)
        assert [row[0] for row in rows.select(field).orderBy(field).collect()] == expected
        assert rows.where(f"data.{field} <=> {field}").count() == 3


def test_a_topic_that_is_missing_and_a_broker_that_is_away_are_said_plainly(
    spark, client, tmp_path
):
    with pytest.raises(Refused, match="there is no topic missing"):
        ran(spark, query("SELECT * FROM orders", "missing"), tmp_path, client.url)
    lake = "{name: a, sources: {t: {topic: missing}}, sinks: [{lake: lake, from: t}]}"
    with pytest.raises(Refused, match="there is no topic missing"):
        ran(spark, lake, tmp_path, client.url)


def test_files_are_loaded_by_tasks_and_an_archive_is_a_view(spark, client, topic, tmp_path):
    for number in range(2):
        rows = (f'{{"id": {one}}}\n' for one in range(number * 50, number * 50 + 50))
        (tmp_path / f"{number}.json").write_text("".join(rows))
    text = json.dumps(
        {
            "name": "load-it",
            "sources": {"days": {"files": "*.json", "format": "json"}},
            "sinks": [{"topic": topic, "from": "days", "key": "id"}],
        }
    )
    assert ran(spark, text, tmp_path, client.url)[-1].messages == 100
    assert ran(spark, text, tmp_path, client.url)[-1].messages == 0
    archived(tmp_path / "lake", client.url, topic)
    (tmp_path / "lake" / "stray.parquet").write_bytes(b"stray")
    rows = lake_rows(spark, Path(tmp_path / "lake"))
    assert {"topic", "date", "key", "value", "headers"} <= set(rows.columns)
    assert rows.selectExpr("count(DISTINCT key) AS n").collect()[0]["n"] == 100
    with pytest.raises(Refused, match=r"line 1: there is no 'nothing'"):
        ran(
            spark,
            text.replace('"key": "id"', '"key": "nothing"').replace("load-it", "b"),
            tmp_path,
            client.url,
        )


def test_the_demo_ends_with_a_lake_of_orders(spark, client, topic, tmp_path):
    from examples.demo.lake import of_lake
    from examples.demo.lake_query import lake_with

    orders = ['{"item": "lamp", "cents": 1250}'] * 3 + [
        '{"item": "rug", "cents": 99}',
        '{"item": "r',
    ]
    client.publish_many(topic, orders)
    shown = lake_with(spark, client.url, tmp_path, topic)
    assert (shown.messages, shown.problems, shown.is_good) == (5, (), True)
    lines = [" ".join(line.split()) for line in shown.table.splitlines()]
    assert lines[0] == "item orders sales"
    assert lines[2:] == ["lamp 3 37.5", "rug 1 0.99", "(not an order) 1"]
    assert Path(shown.plot).read_bytes().startswith(b"\x89PNG")
    scene = of_lake(shown, is_kept=True)
    assert scene.is_good
    assert ("lake", str(tmp_path / "lake")) in scene.lines


def test_a_lake_as_it_was_before_a_merge_is_a_view(spark, client, topic, tmp_path):
    publish(client, topic, 60)
    archived(tmp_path, client.url, topic, commit_messages_max=20)
    with Lake(tmp_path) as lake:
        compact(lake)
    now, before = lake_rows(spark, str(tmp_path)), lake_rows(spark, str(tmp_path), "1")
    # The files of the past lie elsewhere since they were merged: tasks read them, with the same columns.
    assert sorted(before.columns) == sorted(now.columns)
    assert (now.count(), before.count()) == (60, 40)
    days = {row["date"] for row in before.select("date").distinct().collect()}
    assert days == {row["date"] for row in now.select("date").distinct().collect()}
    assert {row["topic"] for row in before.select("topic").distinct().collect()} == {topic}
