"""Options and columns of the sink: what is unknown or wrong is refused by name before anything runs."""

import re
import time
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from penstock.cli.context import write_contexts
from penstock.contexts import Context, Contexts
from penstock.errors import Refused, Unreachable
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import parse_options
from penstock.spark.sink_columns import SINK_COLUMNS, check_sink_columns
from penstock.spark.sink_options import SINK_OPTIONS, parse_sink_options
from penstock.spark.source import PenstockSource

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def schema(ddl: str) -> StructType:
    """Columns of plain types. Spark's own parser needs a JVM."""
    fields = [part.split(" ") for part in ddl.split(", ")]
    described = [{"name": name, "type": kind, "nullable": True} for name, kind in fields]
    return StructType.fromJson({"fields": described})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sinkID2": "x"}, "unknown option 'sinkID2'; did you mean sinkId?"),
        ({"subscribe": "orders"}, "unknown option 'subscribe'"),
        ({"kafka.bootstrap.servers": "x"}, "the address of the broker is the option url"),
        ({"path": "/x"}, "name a topic in 'topic'"),
        ({"topic": "a b"}, "a b"),
        ({"sinkId": "nightly"}, "give sinkId and sequence together"),
        ({"sequence": "7"}, "give sinkId and sequence together"),
        ({"sinkId": "nightly", "sequence": "-1"}, "at least 0"),
        ({"sinkId": "nightly", "sequence": str(1 << 53)}, "at most"),
        ({"sinkId": "n" * 246, "sequence": "1"}, "1 to 245 of"),
        ({"sinkId": "a/b", "sequence": "1"}, "a/b"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given, says):
    with pytest.raises(Refused, match=re.escape(says)):
        parse_sink_options({"topic": "orders", **given}, UsedBy.BATCH)


def test_options_of_spark_pass_and_a_repeat_has_the_key_of_the_first_run():
    given = {"checkpointlocation": "/c", "queryName": "q", "TOPIC": "orders", "retries": "0"}
    found = parse_sink_options(given, UsedBy.STREAM)
    assert (found.topic, found.retries) == ("orders", 0)
    assert found.stream_key("query", 7) == ("query", 7, "query")
    named = parse_sink_options({"sinkId": "nightly", "sequence": "7"}, UsedBy.BATCH)
    assert named.batch_key() == named.batch_key()
    assert named.batch_key()[:2] == ("nightly", 7)
    plain = parse_sink_options({}, UsedBy.BATCH)
    assert plain.batch_key() != plain.batch_key()
    with pytest.raises(Refused, match="sequence is for a batch only"):
        parse_sink_options({"sinkId": "s", "sequence": "7"}, UsedBy.STREAM)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """An environment that names no server."""
    for name in ("PENSTOCK_SERVER", "PENSTOCK_CONTEXT", "PENSTOCK_KEY", "PENSTOCK_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_CONTEXTS", str(tmp_path / "contexts.json"))
    return monkeypatch


@pytest.mark.parametrize(
    "parsed",
    [
        lambda **given: parse_sink_options(given, UsedBy.BATCH),
        lambda **given: parse_options({"subscribe": "orders", **given}, UsedBy.STREAM),
    ],
    ids=["sink", "source"],
)
def test_the_server_is_that_of_the_option_the_environment_or_the_context(
    environment, tmp_path, parsed
):
    assert parsed().url == "penstock://127.0.0.1:9092"
    contexts = Contexts(by_name={})
    key = tmp_path / "key"
    key.write_text("id.secret")
    contexts.add("live", Context("penstocks://live:9092", key_file=str(key), ca_file="/ca"))
    contexts.add("test", Context("penstock://test:9092", key_env="TEST_KEY"))
    write_contexts(tmp_path / "contexts.json", contexts)
    live = parsed()
    assert (live.url, live.api_key_file, live.ca_file) == ("penstocks://live:9092", str(key), "/ca")
    assert parsed(apiKeyFile="/other").api_key_file == "/other"
    environment.setenv("TEST_KEY", "secret")
    environment.setenv("PENSTOCK_CONTEXT", "test")
    test = parsed()
    assert (test.url, test.api_key_file, test.key_variable) == (
        *("penstock://test:9092", None),
        "TEST_KEY",
    )
    assert "secret" not in repr(test), "only the name of the variable travels"
    environment.setenv("PENSTOCK_SERVER", "penstock://named:9092")
    assert (parsed().url, parsed().key_variable) == ("penstock://named:9092", None)
    environment.setenv("PENSTOCK_KEY", "secret")
    assert parsed().key_variable == "PENSTOCK_KEY"
    given = parsed(url="penstock://given:9092")
    assert (given.url, given.key_variable, given.api_key_file) == (
        "penstock://given:9092",
        None,
        None,
    )


def test_a_broker_that_is_not_there_is_told_before_anything_is_planned(environment):
    """After a moment in which it may come back, and not after the tries that tasks have."""
    pauses = []
    environment.setattr(time, "sleep", pauses.append)
    nowhere = {"url": "penstock://127.0.0.1:9"}
    sink = PenstockSource({**nowhere, "topic": "t"})
    source = PenstockSource({**nowhere, "subscribe": "t", "columns": "value"})
    columns = schema("value binary")
    for plan in (lambda: sink.writer(columns, False), lambda: source.reader(columns)):
        pauses.clear()
        with pytest.raises(Unreachable, match="is the broker running"):
            plan()
        assert 0 < sum(pauses) < 3


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("value binary, kye binary", "unknown column 'kye'; did you mean key?"),
        ("value binary, Key binary", "unknown column 'Key'; did you mean key?"),
        ("value binary, offset long", "unknown column 'offset'"),
        ("key binary", "a column value is needed; there are key"),
        ("value binary, value binary", "column value is there twice"),
        ("value long", "column value must be binary or string, and is bigint"),
        ("value binary, timestamp timestamp_ntz", "column timestamp must be timestamp"),
        ("value binary, priority string", "column priority must be int or bigint"),
        ("value binary, ttl long", "column ttl must be interval day to second"),
        ("value binary, headers string", "column headers must be array<struct<"),
        ("value binary, delay long", "column delay cannot be written"),
        ("value binary, deliver_at timestamp", "column deliver_at cannot be written"),
        ("value binary, idempotency_key binary", "column idempotency_key cannot be written"),
    ],
)
def test_a_wrong_column_is_refused_by_name(ddl, says):
    with pytest.raises(Refused, match=re.escape(says)):
        check_sink_columns(schema(ddl), has_topic=True)


def test_a_topic_is_an_option_or_a_column():
    check_sink_columns(schema("value string, topic string"), has_topic=False)
    with pytest.raises(Refused, match="an option topic or a column topic"):
        check_sink_columns(schema("value string"), has_topic=False)


def test_topics_are_not_overwritten():
    source = PenstockSource({"topic": "orders"})
    with pytest.raises(Refused, match="cannot be overwritten"):
        source.writer(schema("value string"), overwrite=True)
    with pytest.raises(Refused, match="output mode complete is not for it"):
        source.streamWriter(schema("value string"), overwrite=True)


def rows_of_table(heading: str) -> list[list[str]]:
    part = GUIDE.read_text().split(f"### {heading}\n", 1)[1].split("\n##", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_guide_lists_options_and_columns_of_the_sink_as_they_are():
    assert rows_of_table("Options of the sink") == [
        [f"`{one.name}`", one.used_by.value, one.default or "none", one.says]
        for one in SINK_OPTIONS
    ]
    assert rows_of_table("Columns of the sink") == [
        [f"`{one.name}`", one.says_kind, one.says] for one in SINK_COLUMNS
    ]
