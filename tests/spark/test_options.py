"""Options are read once; what is unknown or wrong is refused by name."""

import re
from pathlib import Path

import pytest

from penstock.errors import Refused
from penstock.spark.columns import COLUMNS, DEFAULT_COLUMNS
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import (
    FROM_EARLIEST,
    FROM_LATEST,
    OPTIONS,
    Mode,
    OffsetSpec,
    parse_columns,
    parse_options,
)
from penstock.spark.sink_options import SINK_OPTIONS

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
FROM_KAFKA = GUIDE.with_name("from") / "spark-kafka.md"


def parsed(used_by: UsedBy = UsedBy.BATCH, **given: str):
    return parse_options({"subscribe": "orders", **given}, used_by)


def test_defaults_are_those_of_kafkas_source():
    batch, stream = parsed(), parsed(UsedBy.STREAM)
    assert (batch.start, batch.end) == (FROM_EARLIEST, FROM_LATEST)
    assert stream.start == FROM_LATEST
    assert batch.is_loss_fatal
    assert batch.mode is Mode.NETWORK
    assert batch.columns == DEFAULT_COLUMNS
    assert "headers" not in batch.columns


def test_everything_can_be_said_and_capitals_do_not_matter():
    given = {
        "SUBSCRIBEPATTERN": "ord.*",
        "startingoffsets": '{"orders": {"0": 23, "1": -2}}',
        "maxOffsetsPerTrigger": "1000",
        "minPartitions": "4",
        "includeHeaders": "TRUE",
        "failOnDataLoss": "false",
        "group": "billing",
        "mode": "files",
        "retries": "0",
    }
    found = parse_options(given, UsedBy.STREAM)
    assert found.topics.pattern == "ord.*"
    assert dict(dict(found.start.offsets)["orders"])[1] == -2
    assert (found.rows_a_trigger, found.tasks_min, found.retries) == (1000, 4, 0)
    assert (found.group, found.query) == ("billing", "billing")
    assert "headers" in found.columns
    assert not found.is_loss_fatal


def test_times_are_milliseconds_or_rfc_3339():
    assert parsed(startingTimestamp="1500").start == OffsetSpec(time_ns=1_500_000_000)
    found = parsed(startingTimestamp="1970-01-01T01:00:01.5+01:00", endingTimestamp="2000")
    assert (found.start.time_ns, found.end.time_ns) == (1_500_000_000, 2_000_000_000)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"startingOffset": "latest"},
            "unknown option 'startingOffset'; did you mean startingOffsets?",
        ),
        (
            {"Kafka.Bootstrap.Servers": "x"},
            "unknown option 'Kafka.Bootstrap.Servers': the address of the broker is the option url",
        ),
        ({"kafka.sasl.mechanism": "PLAIN"}, "the key apiKeyFile, certificates caFile"),
        ({"path": "/x"}, "name topics in 'subscribe'"),
        ({"subscribe": "a b"}, "a b"),
        ({"assign": '{"orders": [0]}'}, "subscribe and assign were given"),
        ({"subscribe": ""}, "none was given"),
        ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": "", "assign": '{"orders": ["0"]}'}, 'looks like {"orders": [0, 2]}'),
        ({"subscribe": "", "assign": "orders"}, 'looks like {"orders": [0, 2]}'),
        ({"startingOffsets": "newest"}, "must be latest, earliest or JSON"),
        ({"startingOffsets": '{"orders": '}, "not JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "has offset -3"),
        ({"startingOffsets": '{"orders": {"0": "7"}}'}, "has offset '7'"),
        ({"startingOffsets": '{"orders": 7}'}, 'looks like {"orders": {"0": 23}}'),
        ({"endingOffsets": "earliest"}, "must be latest or JSON"),
        ({"startingOffsets": "{}"}, "must be latest, earliest or JSON, got '{}'"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "has offset True"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "give one of"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "milliseconds since 1970"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"minPartitions": "-1"}, "at least 1"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"mode": "fast"}, "one of network, files"),
        ({"columns": "valeu"}, "did you mean value?"),
        ({"columns": "value, value"}, "twice"),
        ({"maxOffsetsPerTrigger": "10"}, "is for a stream only"),
        ({"group": "g"}, "is for a stream only"),
        ({"minOffsetsPerTrigger": "10"}, "is for a stream only"),
        ({"pushFilters": "true"}, "unknown option 'pushFilters'"),
        ({"provider": "penstock"}, "use CREATE TEMPORARY VIEW"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestamp": "{}"},
            "give one of startingTimestamp and startingOffsetsByTimestamp",
        ),
        ({"startingOffsetsByTimestamp": "soon"}, "option startingOffsetsByTimestamp looks like"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given, says):
    with pytest.raises(Refused, match=re.escape(says)):
        parsed(**given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxTriggerDelay": "1m"}, "needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "above maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "option maxTriggerDelay"),
    ],
)
def test_what_is_wrong_of_a_stream_is_refused_by_name(given, says):
    with pytest.raises(Refused, match=re.escape(says)):
        parsed(UsedBy.STREAM, **given)


def test_a_stream_has_no_end():
    with pytest.raises(Refused, match="endingOffsets is for a batch only"):
        parsed(UsedBy.STREAM, endingOffsets="latest")


def test_columns_come_in_the_order_asked_for():
    assert parse_columns({"columns": "value, offset", "includeHeaders": "true"}) == (
        "value",
        "offset",
        "headers",
    )


def rows_of_table(heading: str) -> list[list[str]]:
    part = GUIDE.read_text().split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_guide_lists_every_option_as_it_is():
    written = [
        [f"`{one.name}`", one.used_by.value, one.default or "none", one.says] for one in OPTIONS
    ]
    assert rows_of_table("Options") == written


def test_the_guide_lists_every_column_as_it_is():
    assert [row[:2] for row in rows_of_table("Columns")] == [
        [f"`{one.name}`", one.kind] for one in COLUMNS
    ]


@pytest.mark.parametrize(
    ("heading", "options"),
    [("Options of the source", OPTIONS), ("Options of the sink", SINK_OPTIONS)],
)
def test_the_page_for_kafkas_options_says_which_are_here(heading, options):
    part = FROM_KAFKA.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", part, re.MULTILINE)
    here = {one.name for one in options}
    said = {name: text for names, text in rows for name in re.findall("`([^`]+)`", names)}
    assert {
        name for name, text in said.items() if text.startswith("the same")
    } == here & said.keys()
    assert len(said) > 5
    for text in said.values():
        named = set(re.findall("`([a-z]+[A-Z][A-Za-z]+|url|group|retries)`", text))
        assert named <= here, text
