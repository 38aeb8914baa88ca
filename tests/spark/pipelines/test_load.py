"""Files into a topic: each row once, whatever happened before."""

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import NotFound, Refused, Unavailable
from penstock.spark.pipelines import load as load_module
from penstock.spark.pipelines import load_task
from penstock.spark.pipelines.load import Load, LoadOptions, grouped
from penstock.spark.pipelines.model import FileFormat
from penstock.spark.pipelines.remote import Remote

from .rigs import NEVER, here

PARQUET, CSV, JSON = FileFormat.PARQUET, FileFormat.CSV, FileFormat.JSON


def loaded(checkpoint, url, topic, pattern, kind, *, spread=here, **more):
    options = LoadOptions(patterns=((str(pattern), kind),), topic=topic, **more)
    found = Load(checkpoint, Remote(url, retries=1), spread, options)
    found.run_once(NEVER)
    return found


def values(client, topic):
    return Counter(message.value for _, message in client.read(topic))


def write_parquet(path, numbers, *, group=100):
    table = pa.table({"id": [f"k{one}" for one in numbers], "number": list(numbers)})
    pq.write_table(table, path, row_group_size=group)


def test_parquet_rows_become_messages_by_key_and_a_second_run_adds_nothing(
    client, tmp_path, monkeypatch
):
    monkeypatch.setattr(load_module, "PART_ROWS", 300)
    monkeypatch.setattr(load_task, "CHUNK_ROWS", 70)
    client.create_topic("rows", partitions=3)
    write_parquet(tmp_path / "a.parquet", range(1000))
    state = tmp_path / "state"
    first = loaded(state, client.url, "rows", tmp_path / "*.parquet", PARQUET, key="id")
    assert (first.messages, first.commits) == (1000, 1)
    write_parquet(tmp_path / "b.parquet", range(1000, 1005))
    second = loaded(state, client.url, "rows", tmp_path / "*.parquet", PARQUET, key="id")
    assert second.messages == 5
    found = Counter(json.loads(one)["number"] for one in values(client, "rows").elements())
    assert found == Counter(range(1005))
    client.create_topic("twin", partitions=3)
    by_partition = {one.key: partition for partition, one in client.read("rows")}
    for key in [b"k1", b"k7", b"k999"]:
        assert client.publish("twin", b"", key=key).partition == by_partition[key], (
            "as the broker would"
        )


def test_what_was_stored_before_a_crash_is_not_stored_again(client, tmp_path, monkeypatch):
    monkeypatch.setattr(load_task, "CHUNK_ROWS", 10)
    client.create_topic("crash", partitions=2)
    whole = load_task.BATCH_BYTES
    monkeypatch.setattr(load_task, "BATCH_BYTES", 50)
    write_parquet(tmp_path / "a.parquet", range(500))
    sent, real = [], load_task._send

    def failing(*words, **more):
        # More batches than the broker remembers one by one, then the machine stops.
        if len(sent) == 37:
            raise Unavailable("the power is gone")
        sent.append(words)
        return real(*words, **more)

    monkeypatch.setattr(load_task, "_send", failing)
    with pytest.raises(Unavailable, match="the power is gone"):
        loaded(tmp_path / "s", client.url, "crash", tmp_path / "a.parquet", PARQUET, key="id")
    assert 0 < sum(values(client, "crash").values()) < 500
    monkeypatch.setattr(load_task, "_send", real)
    # Larger portions than before, of which some rows are stored: they are numbered, so that it does not matter.
    monkeypatch.setattr(load_task, "BATCH_BYTES", whole)
    loaded(tmp_path / "s", client.url, "crash", tmp_path / "a.parquet", PARQUET, key="id")
    found = Counter(json.loads(one)["number"] for one in values(client, "crash").elements())
    assert found == Counter(range(500))


def test_two_attempts_at_the_same_time_store_each_row_once(client, tmp_path, monkeypatch):
    monkeypatch.setattr(load_task, "CHUNK_ROWS", 10)
    client.create_topic("both", partitions=1)
    write_parquet(tmp_path / "a.parquet", range(200))

    def twice(call, tasks):
        return here(call, [*tasks, *tasks])[: len(tasks)]

    loaded(tmp_path / "s", client.url, "both", tmp_path / "a.parquet", PARQUET, spread=twice)
    assert sum(values(client, "both").values()) == 200


def test_times_with_nanoseconds_as_pandas_writes_them_are_text(client, tmp_path):
    client.create_topic("times", partitions=1)
    moments = [1_700_000_000_123_456_789, 1_700_000_000_000_000_000]
    table = pa.table(
        {
            "at": pa.array(moments, pa.timestamp("ns")),
            "utc": pa.array(moments, pa.timestamp("ns", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    loaded(tmp_path / "s", client.url, "times", tmp_path / "a.parquet", PARQUET)
    found = [json.loads(one) for one in values(client, "times")]
    assert found == [
        {"at": f"2023-11-14T22:13:20{part}", "utc": f"2023-11-14T22:13:20{part}Z"}
        for part in (".123456789", "")
    ]
    pq.write_table(pa.table({"day": pa.array([3_000_000], pa.date32())}), tmp_path / "b.parquet")
    with pytest.raises(Refused, match="cannot be read as parquet: date value out of range"):
        loaded(tmp_path / "s", client.url, "times", tmp_path / "b.parquet", PARQUET)


def test_a_line_break_in_a_quoted_cell_ends_no_row_wherever_it_stands(client, tmp_path):
    client.create_topic("lines", partitions=1)
    cells = [f"line {one}\nsecond {one}" for one in range(60_000)]
    text = "\n".join(["text", *(f'"{one}"' for one in cells)])
    assert len(text) > 1 << 20, "the file is read in several blocks"
    (tmp_path / "a.csv").write_text(text)
    done = loaded(tmp_path / "s", client.url, "lines", tmp_path / "a.csv", CSV, value="text")
    assert done.messages == len(cells)
    assert values(client, "lines") == Counter(one.encode() for one in cells)


def test_a_file_whose_name_is_not_utf_8_is_refused(client, tmp_path):
    client.create_topic("names", partitions=1)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")).write_text("a\n1\n")
    with pytest.raises(Refused, match="is not UTF-8"):
        loaded(tmp_path / "s", client.url, "names", tmp_path / "*.csv", CSV)


def test_csv_cells_stay_text_and_json_lines_stay_as_they_are(client, tmp_path):
    client.create_topic("text", partitions=1)
    (tmp_path / "a.csv").write_text("id,name\n007,a\n8,\n")
    loaded(tmp_path / "s", client.url, "text", tmp_path / "a.csv", CSV, key="id", value="name")
    (tmp_path / "b.json").write_text('{"id": 1, "x": [1,  2]}\n\n{"id": "two"}\n')
    loaded(tmp_path / "s", client.url, "text", tmp_path / "b.json", JSON, key="id")
    assert [(one.key, one.value) for _, one in client.read("text")] == [
        (b"007", b"a"),
        (b"8", b""),
        (b"1", b'{"id": 1, "x": [1,  2]}'),
        (b"two", b'{"id": "two"}'),
    ]


@pytest.mark.parametrize(
    ("name", "text", "kind", "more", "said"),
    [
        ("a.json", '{"id": 1}\n[1]\n', JSON, {}, "line 2: not a JSON object"),
        ("a.json", '{"id": 1}\n', JSON, {"key": "no"}, "line 1: there is no 'no'"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", CSV, {}, "cannot be read as csv"),
        ("a.csv", "a,b\n1,2\n", CSV, {"key": "c"}, "there is no column 'c'; there are a, b"),
        ("a.csv", "", CSV, {}, "cannot be read as csv"),
        ("a.parquet", "not parquet", PARQUET, {}, "cannot be read as parquet"),
        ("b.csv", "", CSV, {}, "no file matches"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(client, tmp_path, name, text, kind, more, said):
    topic = tmp_path.name
    client.create_topic(topic, partitions=1)
    (tmp_path / "a.x").write_text("")
    if name != "b.csv":
        (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match=said):
        loaded(tmp_path / "s", client.url, topic, tmp_path / name, kind, **more)


def test_a_changed_file_another_mapping_and_another_topic_are_refused(client, tmp_path):
    client.create_topic("one", partitions=1)
    client.create_topic("two", partitions=1)
    (tmp_path / "a.csv").write_text("a\n1\n")
    place = (tmp_path / "a.csv", CSV)
    loaded(tmp_path / "s", client.url, "one", *place)
    with pytest.raises(Refused, match="checkpoint of a load into another topic"):
        loaded(tmp_path / "s", client.url, "two", *place)
    with pytest.raises(Refused, match="another mapping needs another checkpoint"):
        loaded(tmp_path / "s", client.url, "one", *place, key="a")
    client.delete_topic("one")
    client.create_topic("one", partitions=1)
    with pytest.raises(Refused, match="of before"):
        loaded(tmp_path / "s", client.url, "one", *place)
    client.delete_topic("one")
    with pytest.raises(NotFound, match="no topic one"):
        loaded(tmp_path / "s", client.url, "one", *place)
    loaded(tmp_path / "t", client.url, "two", *place)
    (tmp_path / "a.csv").write_text("a\n2\n")
    with pytest.raises(Refused, match=r"a\.csv has changed since it was loaded"):
        loaded(tmp_path / "t", client.url, "two", *place)


def test_row_groups_are_put_together_up_to_a_size():
    assert grouped([], 10) == []
    assert grouped([5, 5, 5, 20, 1], 10) == [(0, 2), (2, 1), (3, 1), (4, 1)]
