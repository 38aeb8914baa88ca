"""YAML that describes a pipeline: all that is wrong is said at once, with the nearest name."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from penstock.errors import InvalidSettings
from penstock.spark.pipelines.lake import Split, TableFormat
from penstock.spark.pipelines.model import (
    SINKS,
    FileFormat,
    FilesSource,
    LakeSink,
    LakeSource,
    PipelineKind,
    PythonTransform,
    TopicSource,
)
from penstock.spark.pipelines.parser import read_pipeline

GOOD = """
name: orders-lake
server: penstock://10.0.0.5:8080
interval: 30s
sources:
  orders: {topic: shop.orders}
  jobs: {topic: jobs}
sinks:
  - lake: lake
    from: [orders, jobs]
    table: delta
    split: hour
    group: lake
    hold_retention: true
"""
FILE = Path("/etc/pipes/lake.yaml")


def read(text, **more):
    return read_pipeline(text, path=FILE, **more)


def problems(text):
    with pytest.raises(InvalidSettings) as caught:
        read(text)
    return list(caught.value.problems)


def test_an_archive_is_read_with_paths_that_count_from_its_file():
    found = read(GOOD)
    assert (found.name, found.kind, found.interval_ms) == (
        "orders-lake",
        PipelineKind.ARCHIVE,
        30_000,
    )
    assert found.topics == ("shop.orders", "jobs")
    (sink,) = found.sinks
    assert isinstance(sink, LakeSink)
    assert (sink.lake, sink.table, sink.split) == ("/etc/pipes/lake", TableFormat.DELTA, Split.HOUR)
    assert (sink.inputs, sink.hold_retention) == (("orders", "jobs"), True)
    assert found.checkpoint == "/etc/pipes/.penstock/orders-lake"
    assert (found.target, found.server) == ("/etc/pipes/lake", "penstock://10.0.0.5:8080")
    assert read(GOOD, server="penstock://other:1").server == "penstock://other:1"


def test_transforms_make_a_stream_and_files_a_load_and_tables_a_query():
    stream = read(
        """
name: paid
sources: {orders: {topic: orders, start: latest}}
transforms:
  - {name: paid, sql: "SELECT * FROM orders"}
  - {name: clean, python: "shop.clean:tidy", from: paid}
sinks: [{lake: /lake, from: clean}]
"""
    )
    assert stream.kind is PipelineKind.STREAM
    assert stream.transforms[1] == PythonTransform(
        python="shop.clean:tidy", name="clean", inputs=("paid",)
    )
    load = read(
        "{name: l, sources: {f: {files: 'in/*.csv', format: csv}}, sinks: [{topic: t, from: f, key: id}]}"
    )
    assert load.kind is PipelineKind.LOAD
    assert load.sources["f"] == FilesSource(files="/etc/pipes/in/*.csv", format=FileFormat.CSV)
    query = read(
        "{name: q, sources: {t: {topic: t}}, sinks: [{table: '-', from: t}, {plot: a.png, from: t}]}"
    )
    assert query.kind is PipelineKind.SQL
    assert query.sources == {"t": TopicSource(topic="t")}


def test_a_subject_types_the_values_of_one_topic():
    one = "{name: a, sources: {t: {topic: t}}, sinks: [{lake: /lake, from: t, subject: t-value}]}"
    (sink,) = read(one).sinks
    assert isinstance(sink, LakeSink)
    assert sink.subject == "t-value"
    two = "{name: a, sources: {t: {topic: t}, u: {topic: u}}, sinks: [{lake: /l, from: [t, u], subject: s}]}"
    assert any("subject" in found for found in problems(two))


def test_every_problem_is_reported_at_once_with_the_nearest_name():
    found = problems(
        """
name: a/b
intervall: 5s
sources:
  orders: {topic: orders, strat: latest}
  old-ones: {lake: lake}
  more: {topick: x}
sinks:
  - {lake: lake, from: ordres, split: dya, compression: zst, max_messages_per_file: 0}
  - {plot: picture.bmp, from: orders}
"""
    )
    text = "\n".join(found)
    for expected in (
        "lake.yaml: there is no key intervall; did you mean interval?",
        "there is no key sources.orders.strat; did you mean start?",
        "sources.old-ones: a name is made of letters, digits and _",
        "sources.more must hold one of topic, lake, files, got topick (did you mean topic?)",
        "sinks[0].split: Invalid enum value 'dya'",
        "sinks[0].compression: Invalid enum value 'zst'",
        "sinks[0].max_messages_per_file: must be at least 1, got 0",
        "sinks[1].plot must end with .png, .svg, .pdf",
        "name: 'a/b' is not a pipeline name",
    ):
        assert expected in text, expected
    assert len(found) == 9, "and nothing that only follows from another mistake"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "keys were expected"),
        ("[1]", "keys were expected"),
        ("a: [", "while parsing"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("{name: a, name: b}", "name stands there twice"),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, lake: m, from: t}]}",
            "sinks[0].lake stands there twice",
        ),
        ("{sources: {t: {topic: t}}, sinks: [{table: '-', from: t}]}", "name is missing"),
        ("{name: a, sinks: [{table: '-', from: t}]}", "sources must hold names"),
        ("{name: a, sources: {t: {topic: t}}}", "sinks is missing"),
        ("{name: a, sources: {t: {topic: t}}, sinks: []}", "sinks has none in it"),
        ("{name: a, sources: {t: {topic: t}}, sinks: [{table: '-'}]}", "sinks[0].from is missing"),
        ("{name: a, sources: {t: {topic: t}}, sinks: [{table: '-', from: []}]}", "names nothing"),
        (
            "{name: a, sources: {orders: {topic: t}}, sinks: [{table: '-', from: ordres}]}",
            "sinks[0].from: there is no ordres; did you mean orders?",
        ),
        ("{name: a, sources: {t: {topic: a/b}}, sinks: [{table: '-', from: t}]}", "a/b"),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: 'gs://b/l', from: t}]}",
            "a lake is a directory",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{topic: u, from: t}]}",
            "a topic is loaded from sources that are files",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, from: t}, {table: '-', from: t}]}",
            "the only sink of its pipeline",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, from: t, partition_by: x}]}",
            "sinks[0].partition_by is for typed values: give subject, too",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, from: t, rejects_files: x}]}",
            "sinks[0].rejects_files is for typed values: give subject, too",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, from: t, subject: s, rejects_topic: t}]}",
            "sinks[0].rejects_topic: the lake is filled from that topic",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, sinks: [{lake: l, from: t, subject: s, rejects_topic: a/b}]}",
            "sinks[0].rejects_topic: ",
        ),
        (
            "{name: a, sources: {l: {lake: l}}, sinks: [{lake: m, from: l}]}",
            "a lake is filled from topics",
        ),
        (
            "{name: a, interval: soon, sources: {t: {topic: t}}, sinks: [{table: '-', from: t}]}",
            "interval: an interval must look like",
        ),
        (
            "{name: a, interval: 1ms, sources: {t: {topic: t}}, sinks: [{table: '-', from: t}]}",
            "100ms..24h",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, transforms: [{name: t, sql: x}], sinks: [{table: '-', from: t}]}",
            "transforms[0].name: t is there already",
        ),
        (
            "{name: a, sources: {t: {topic: t}}, transforms: [{name: u, python: x, from: t}], sinks: []}",
            "must look like module:function",
        ),
        (
            "{name: a/b, sources: {t: {topic: t}}, sinks: [{table: '-', from: t}]}",
            "is not a pipeline name",
        ),
        ("a: &x [1]\nb: [" + "*x, " * 200 + "]", "too large"),
        ("x" * (1 << 20) + "x", "too large"),
    ],
)
def test_each_mistake_is_named(text, said):
    found = problems(text)
    assert any(said in one for one in found), found
    assert all(one.startswith("lake.yaml: ") for one in found)


def test_stars_that_are_no_aliases_and_values_that_yaml_knows_are_fine():
    found = read(f"""
# {"*" * 200}
name: a
sources:
  l: {{lake: l, as_of: 41}}
  m: {{lake: m, as_of: 2026-01-31T12:00:00Z}}
transforms:
sinks: [{{table: '-', from: l}}]
""")
    lakes = [one for one in found.sources.values() if isinstance(one, LakeSource)]
    assert [one.as_of for one in lakes] == ["41", "2026-01-31T12:00:00+00:00"]


def test_the_example_of_the_guide_is_good():
    guide = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    assert read(example).kind is PipelineKind.STREAM
    for kind in SINKS:
        for name in (one.name for one in fields(kind)):
            written = "from" if name == "inputs" else name
            assert f"`{written}`" in guide, f"{kind.__name__}.{written} is not in the guide"
