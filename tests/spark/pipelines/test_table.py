"""What a query found, as text, as files and as a picture."""

import csv
import json
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Refused
from penstock.spark.pipelines.model import PlotKind, PlotSink
from penstock.spark.pipelines.table import draw, json_lines, plain, write_table

FOUND = pa.table(
    {
        "name": ["a\nb", None, "c" * 100],
        "raw": pa.array([b"text", b"\xff", None], pa.binary()),
        "n": [1, 22, 333],
        "share": [0.5, 1234567.891, None],
        "price": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2026, 1, 31, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "list": [[1], [], [2, 3]],
    }
)


def test_a_table_is_one_line_a_row_with_numbers_to_the_right():
    lines = plain(FOUND).splitlines()
    assert len(lines) == 5
    assert lines[2].split("  ")[0] == "a b"
    assert "base64:/w==" in lines[3]
    assert "1,234,567.89" in lines[3]
    assert f"{'c' * 60}..." in lines[4]
    assert plain(FOUND.slice(0, 0)).splitlines()[0].split() == FOUND.schema.names


def test_json_and_files_hold_the_same(tmp_path):
    rows = [json.loads(line) for line in json_lines(FOUND).splitlines()]
    assert [one["n"] for one in rows] == [1, 22, 333]
    assert (rows[0]["raw"], rows[0]["price"], rows[2]["list"]) == ("text", "1.50", [2, 3])
    for name in ("a.csv", "a.json", "deep/a.parquet"):
        write_table(FOUND, tmp_path / name)
    assert (tmp_path / "a.csv").read_text().count("333") == 1
    assert len((tmp_path / "a.json").read_text().splitlines()) == 3
    assert pq.read_table(tmp_path / "deep" / "a.parquet").num_rows == 3


def test_json_and_files_hold_whole_values_whatever_their_length(tmp_path):
    long, raw = b"two  spaces\n" + b"x" * 1000, b"\xff" * 100
    wanted = [long.decode(), f"base64:{b64encode(raw).decode()}"]
    headers = [[{"key": "a", "value": one}] for one in (long, raw)]
    found = pa.table({"value": pa.array([long, raw], pa.binary()), "headers": headers})
    for name in ("a.csv", "a.json"):
        write_table(found, tmp_path / name)
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert json_lines(found).splitlines() == lines
    assert [json.loads(line)["value"] for line in lines] == wanted
    assert [json.loads(line)["headers"][0]["value"] for line in lines] == wanted
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == wanted
    assert [json.loads(row["headers"])[0]["value"] for row in rows] == wanted
    write_table(found.slice(0, 0), tmp_path / "none.json")
    assert (tmp_path / "none.json").read_text() == ""


@pytest.mark.tier("test")
@pytest.mark.parametrize("kind", PlotKind)
def test_a_plot_is_drawn_or_says_what_is_missing(tmp_path, kind):
    path = str(tmp_path / f"{kind.value}.svg")
    draw(FOUND, PlotSink(plot=path, inputs=("t",), x="name", y="n", kind=kind))
    assert "<svg" in (tmp_path / f"{kind.value}.svg").read_text()
    with pytest.raises(Refused, match="there is no column 'm'; there are name, raw"):
        draw(FOUND, PlotSink(plot=path, inputs=("t",), x="name", y="m"))
    with pytest.raises(Refused, match="column raw holds no numbers"):
        draw(FOUND, PlotSink(plot=path, inputs=("t",)))
