"""Lakes whose values are columns, too: which schema they follow, and how a field of them divides the files."""

import json
from collections import Counter
from datetime import date

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.api.schemas import Level, SetCompatibility
from penstock.cli.exits import Exit
from penstock.client import Outgoing
from penstock.errors import NotFound, Refused
from penstock.spark.pipelines import runner, task_files
from penstock.spark.pipelines.delta import open_table
from penstock.spark.pipelines.delta import publish as to_delta
from penstock.spark.pipelines.lake import Lake, LakeColumns, LakeReader, TableFormat
from penstock.spark.pipelines.merge import compact
from penstock.spark.pipelines.parser import read_pipeline
from penstock.spark.pipelines.rejects import Rejects
from penstock.spark.pipelines.verify import verify

from .rigs import NEVER, archived

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def typed_rows(root):
    return sorted(
        (
            row
            for path in LakeReader(root).paths()
            for row in pq.ParquetFile(path).read().to_pylist()
        ),
        key=lambda row: row["offset"],
    )


@pytest.mark.parametrize("table", TableFormat)
def test_values_are_typed_columns_and_what_does_not_parse_has_its_place(client, tmp_path, table):
    topic = f"typed-{table.value}"
    client.create_topic(topic, partitions=1)
    schema = client.register_schema(f"{topic}-value", json.dumps(LINE))
    lines = [{"n": number, "tags": ["a"] * number} for number in range(3)]
    for one in lines:
        client.publish(topic, schema.encode(one), partition=0)
    client.publish(topic, b"junk", partition=0)
    client.publish(topic, None, key="k", partition=0)
    columns = LakeColumns(f"{topic}-value", schema.schema_id)
    publish_more = to_delta if table is TableFormat.DELTA else None
    options = {"table": table, "publish": publish_more}
    archived(tmp_path, client.url, topic, columns=columns, **options)
    rows = typed_rows(tmp_path)
    assert [one["data"] for one in rows] == [*lines, None, None]
    assert [one["data_error"] is None for one in rows] == [True, True, True, False, True]
    assert rows[3]["value"] == b"junk"

    # A later version adds its field, which rows from before have as null.
    later = {**LINE, "fields": [*LINE["fields"], field("to", "all"), field("by", "me")]}
    newer = client.register_schema(f"{topic}-value", json.dumps(later))
    line = {"n": 9, "tags": [], "to": "you", "by": "me"}
    client.publish(topic, newer.encode(line), partition=0)
    archived(tmp_path, client.url, topic, **options)
    assert typed_rows(tmp_path)[-1]["data"] == line

    # One that leaves a field out or changes it does not: its values are read as those before.
    client.execute(SetCompatibility(f"{topic}-value", Level.NONE))
    for other in (LINE, {**LINE, "fields": [{**LINE["fields"][0], "type": "string"}]}):
        client.register_schema(f"{topic}-value", json.dumps(other))
    client.publish(topic, schema.encode(lines[1]), partition=0)
    archived(tmp_path, client.url, topic, **options)
    assert typed_rows(tmp_path)[-1]["data"] == {**lines[1], "to": "all", "by": "me"}

    with Lake(tmp_path, **options) as lake:
        (merged,) = compact(lake)
        (whole,) = (lake.batches(one) for one in merged.files)
        data = [row["data"] for batch in whole for row in batch.to_pylist()]
    assert data[1] == {**lines[1], "to": None, "by": None}
    assert data[3:] == [None, None, line, {**lines[1], "to": "all", "by": "me"}]
    report = verify(LakeReader(tmp_path), client, is_content_read=True)
    assert (report.problems, report.rows) == ([], 7)
    if table is TableFormat.DELTA:
        found = DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["data"])
        assert found.column("data").to_pylist() == data


def field(name, default):
    return {"name": name, "type": "string", "default": default}


def test_the_columns_of_a_lake_stay(tmp_path):
    columns = LakeColumns("orders-value", 7)
    with Lake(tmp_path / "typed", columns=columns):
        pass
    with Lake(tmp_path / "typed", columns=LakeColumns("orders-value", 9)) as lake:
        assert lake.identity.columns == columns
    with Lake(tmp_path / "plain"):
        pass
    for root in ("typed", "plain"):
        with pytest.raises(Refused):
            Lake(tmp_path / root, columns=LakeColumns("other-value", 7))


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "country", "type": ["null", "string"]}, {"name": "size", "type": "int"}],
}
COUNTRIES = ["DE", "a/b: 100% é", "", None, "DE", "x" * 65, "..", "de"]


@pytest.mark.parametrize("table", TableFormat)
def test_a_lake_is_divided_by_a_field_of_its_values(client, said, tmp_path, table):
    topic, lake = f"divided-{table.value}", str(tmp_path / "lake")
    client.create_topic(topic, partitions=1)
    schema = client.register_schema(f"{topic}-value", json.dumps(ORDER))
    words = ["archive", "run", topic, "--to", lake, "--subject", f"{topic}-value", "--once"]
    words += ["--partition-by", "country", "--table", table.value, "--server", client.url]
    for size in range(2):
        for country in COUNTRIES:
            client.publish(topic, schema.encode({"country": country, "size": size}))
        client.publish(topic, b"junk")
        said(*words)
    expected = Counter({"DE": 4, "a/b: 100% é": 2, "..": 2, "de": 2, None: 8})

    def check():
        report = verify(LakeReader(lake), client, is_content_read=True)
        assert (report.problems, report.rows) == ([], 18)
        found = ds.dataset(LakeReader(lake).paths(), partitioning="hive", partition_base_dir=lake)
        if table is TableFormat.DELTA:
            found = DeltaTable(lake).to_pyarrow_dataset()
            some = DeltaTable(lake).to_pyarrow_table(filters=[("country", "=", "a/b: 100% é")])
            assert some.column("country").to_pylist() == ["a/b: 100% é"] * 2
        countries = found.to_table(columns=["country"]).column("country").to_pylist()
        assert Counter(countries) == expected

    check()
    said("archive", "compact", lake)
    check()
    assert len(LakeReader(lake).state().files) == len(expected)
    said("archive", "restore", lake, topic, "--as", f"{topic}.again", "--server", client.url)
    again = [message.value for _, message in client.read(f"{topic}.again")]
    assert again == [message.value for _, message in client.read(topic)]
    other = [*words[:-5], "size", *words[-4:]]
    assert "divided by country, not by size" in said(*other, code=Exit.REFUSED)


KINDS = {"n": "int", "b": "boolean", "day": {"type": "int", "logicalType": "date"}}


@pytest.mark.parametrize("field", KINDS)
def test_a_field_that_divides_has_its_type_in_delta(client, topic, tmp_path, field):
    fields = [{"name": name, "type": ["null", kind]} for name, kind in KINDS.items()]
    order = {"type": "record", "name": "Order", "fields": fields}
    schema = client.register_schema(f"{topic}-value", json.dumps(order))
    for day in range(3):
        row = {"n": 7 - day, "b": day == 1, "day": date(2026, 1, 1 + day)}
        client.publish(topic, schema.encode(row), partition=0)
    client.publish(topic, schema.encode(dict.fromkeys(KINDS)), partition=0)
    columns = LakeColumns(f"{topic}-value", schema.schema_id, field)
    options = {"table": TableFormat.DELTA, "publish": to_delta}
    archived(tmp_path, client.url, topic, columns=columns, **options)
    table = DeltaTable(str(tmp_path)).to_pyarrow_table()
    values = [None if row is None else row[field] for row in table.column("data").to_pylist()]
    assert table.column(field).to_pylist() == values
    assert len(values) == 4


@pytest.mark.xdist_group("s3")
def test_a_lake_in_a_bucket_is_divided_by_a_field(client, topic, said, bucket):
    schema = client.register_schema(f"{topic}-value", json.dumps(ORDER))
    for country in COUNTRIES:
        client.publish(topic, schema.encode({"country": country, "size": 1}), partition=0)
    words = ["--subject", f"{topic}-value", "--partition-by", "country", "--table", "delta"]
    said("archive", "run", topic, "--to", bucket, *words, "--once", "--server", client.url)
    assert verify(LakeReader(bucket), client, is_content_read=True).problems == []
    said("archive", "vacuum", bucket, "--keep", "0s")
    table = open_table(LakeReader(bucket)).to_pyarrow_table(columns=["country"])
    expected = Counter({"DE": 2, "a/b: 100% é": 1, "..": 1, "de": 1, None: 3})
    assert Counter(table.column("country").to_pylist()) == expected


@pytest.mark.parametrize("field", ["nothing", "tags", "offset", "a-b"])
def test_a_field_that_is_no_folder_is_refused_and_makes_no_lake(
    client, topic, said, tmp_path, field
):
    fields = [*LINE["fields"], {"name": "offset", "type": "long"}, {"name": "a_b", "type": "long"}]
    subject = f"{field}-value"
    client.register_schema(subject, json.dumps({**LINE, "fields": fields}))
    words = ["archive", "run", topic, "--to", str(tmp_path / "lake"), "--once"]
    words += ["--partition-by", field, "--server", client.url]
    said(*words, "--subject", subject, code=Exit.REFUSED)
    said(*words, code=Exit.REFUSED)
    assert not (tmp_path / "lake").exists()


def test_a_field_with_too_many_values_is_refused_by_name(client, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(task_files, "_FIELD_VALUES_MAX", 3)
    schema = client.register_schema(f"{topic}-value", json.dumps(ORDER))
    for country in "abcd":
        value = schema.encode({"country": country, "size": 1})
        client.publish(topic, value, partition=0)
    columns = LakeColumns(f"{topic}-value", schema.schema_id, "country")
    with pytest.raises(Refused, match="more than 3 values of country"):
        archived(tmp_path, client.url, topic, columns=columns)
    assert LakeReader(tmp_path).state().commits == 0


REJECTS = """
name: typed
sources: {{orders: {{topic: {topic}}}}}
sinks:
  - {{lake: lake, from: orders, subject: {topic}-value, rejects_topic: {topic}.rejects, rejects_files: rejects}}
"""


def run_yaml(client, topic, folder):
    text = REJECTS.format(topic=topic)
    found = read_pipeline(text, path=folder / "typed.yaml", server=client.url)
    runner.run(None, found, NEVER, is_once=True)


def rejected(client, topic, folder):
    """What was passed on: to the topic, and into files."""
    sent = Counter(
        (message.value, dict(message.headers)["penstock-rejected-from"])
        for _, message in client.read(f"{topic}.rejects")
    )
    rows = [row for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert all(row["data_error"] for row in rows)
    places = ((row, f"{topic}/{row['partition']}/{row['offset']}".encode()) for row in rows)
    assert Counter((row["value"], place) for row, place in places) == sent
    return sent


def test_values_that_cannot_be_read_are_passed_on_once_whatever_dies(
    client, topic, tmp_path, monkeypatch
):
    client.create_topic(f"{topic}.rejects")
    schema = client.register_schema(f"{topic}-value", json.dumps(ORDER))
    folder, expected = tmp_path / "rejects", Counter()

    def publish(*junk):
        client.publish(topic, schema.encode({"country": "DE", "size": 1}), partition=0)
        client.publish(topic, None, key="k", partition=0)
        for value in junk:
            (sent,) = client.publish_many(
                topic, [Outgoing(value, headers=[("a", "b")], partition=1)]
            )
            expected[value, f"{topic}/1/{sent.offset}".encode()] += 1

    publish(b"junk", b"not this")
    run_yaml(client, topic, tmp_path)
    assert rejected(client, topic, folder) == expected
    kept = [dict(message.headers) for _, message in client.read(f"{topic}.rejects")]
    assert all(headers["a"] == b"b" and headers["penstock-rejected-error"] for headers in kept)
    # A process ends at a step of the publication, and a merge may come before the next one.
    for step, is_before in REJECT_STEPS:
        for is_merged in (False, True):
            publish(b"junk")
            with monkeypatch.context() as patched:
                patched.setattr(Rejects, step, dying(getattr(Rejects, step), is_before=is_before))
                with pytest.raises(KeyboardInterrupt):
                    run_yaml(client, topic, tmp_path)
            if is_merged:
                with Lake(tmp_path / "lake") as lake:
                    compact(lake)
            run_yaml(client, topic, tmp_path)
            assert rejected(client, topic, folder) == expected


REJECT_STEPS = [("publish", True), ("_write_file", False), ("_publish", False), ("publish", False)]


def dying(step, *, is_before):
    def die(*words):
        if not is_before:
            step(*words)
        raise KeyboardInterrupt

    return die


def test_a_topic_for_rejects_that_is_not_there_is_refused_and_makes_no_lake(
    client, topic, tmp_path
):
    client.register_schema(f"{topic}-value", json.dumps(ORDER))
    with pytest.raises(NotFound):
        run_yaml(client, topic, tmp_path)
    assert not (tmp_path / "lake").exists()
