"""The commands around pipelines, as far as they need no Spark."""

import json

import pytest

from penstock.api.json.pipelines import PipelineIn
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.client.http_page import client_call, http_path
from penstock.client.pipelines import describe_pipeline, list_pipelines, report_pipeline
from penstock.spark.pipelines.lake import STAGING, Lake

from .rigs import archived, publish


def test_verify_and_show_say_what_is_in_a_lake(client, topic, tmp_path, said):
    publish(client, topic, 30)
    lake = tmp_path / "lake"
    archived(lake, client.url, topic, commit_messages_max=20)
    assert "30 rows" in said("archive", "verify", str(lake), "--server", client.url)
    found = json.loads(said("archive", "verify", str(lake), "--offline", "--json"))
    assert (found["is_good"], found["is_compared"], found["rows"]) == (True, False, 30)
    rows = [json.loads(line) for line in said("archive", "show", str(lake), "--json").splitlines()]
    assert [one["rows"] for one in rows] == [20, 10]
    next(lake.rglob("*.parquet")).unlink()
    text = said("archive", "verify", str(lake), "--offline", code=Exit.FOUND_PROBLEMS)
    assert "it is missing" in text
    said("archive", "verify", str(tmp_path), "--offline", code=Exit.REFUSED)


def test_validate_says_all_problems_and_list_and_status_what_is_known(
    client, topic, tmp_path, said
):
    file = tmp_path / "lake.yaml"
    file.write_text("{name: a, sorces: {}, sinks: [{lake: l, form: x}]}")
    text = said("pipeline", "validate", str(file), code=Exit.FOUND_PROBLEMS)
    assert "there is no key sorces; did you mean sources?" in text
    assert "there is no key sinks[0].form; did you mean from?" in text
    name = "n" * 90
    file.write_text(f"{{name: a, {name}: 1, sinks: [{{lake: l, from: t}}]}}")
    text = said("pipeline", "validate", str(file), code=Exit.FOUND_PROBLEMS)
    assert f"there is no key {name}; known: name, server" in text
    file.write_text(
        f"{{name: {topic}, sources: {{t: {{topic: {topic}}}}}, sinks: [{{lake: lake, from: t}}]}}"
    )
    assert "nothing is wrong with it" in said("pipeline", "validate", str(file))
    assert "archive" in said("pipeline", "list", str(file))
    server = ("--server", client.url)
    text = said("pipeline", "status", str(file), *server)
    assert "the broker has not heard of it" in text
    said_of_it = PipelineIn(kind="archive", state="running", topics=[topic])
    report_pipeline(client, topic, said_of_it)
    publish(client, topic, 3)
    archived(tmp_path / "lake", client.url, topic)
    found = json.loads(said("pipeline", "status", str(file), *server, "--json"))
    assert (found["state"], found["rows_in_lake"]) == ("running", 3)
    assert topic in said("pipeline", "list", *server)
    file.write_bytes(b"\xff")
    said("pipeline", "run", str(file), code=Exit.REFUSED)


def test_status_of_a_load_makes_nothing_and_names_a_damaged_checkpoint(
    client, topic, tmp_path, said
):
    file = tmp_path / "load.yaml"
    file.write_text(
        f"{{name: l, sources: {{f: {{files: '*.csv', format: csv}}}}, sinks: [{{topic: {topic}, from: f}}]}}"
    )
    words = ("pipeline", "status", str(file), "--server", client.url)
    assert "files done: 0" in said(*words)
    assert not (tmp_path / ".penstock").exists()
    entry = tmp_path / ".penstock" / "l" / "files" / "0.json"
    entry.parent.mkdir(parents=True)
    entry.write_text("torn")
    text = said(*words, code=Exit.FOUND_PROBLEMS)
    assert str(entry) in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("archive", "run", "orders"), "--to"),
        (("archive", "run", "a/b", "--to", "x"), "not a topic name"),
        (("archive", "run", "orders", "--to", "gs://bucket"), "a lake is a directory"),
        (("sql", "SELECT 1"), "--topic or --lake"),
        (("sql", "SELECT 1", "--topic", "a", "--topic", "a=b"), "the same name"),
        (("sql", "SELECT 1", "--topic", "a-b=c"), "cannot be the name of a view"),
        (("sql", "SELECT 1", "--topic", "a", "--to", "a.txt"), "or ends with .csv, .json"),
        (("sql", "SELECT 1", "--topic", "a", "--plot", "a.gif"), "a plot ends with .png"),
        (("load", "x.txt", "--topic", "t"), "--format"),
        (("pipeline", "run", "/dev/null", "--master", "a", "--remote", "sc://b"), "give one"),
        (("load", "x.csv", "--topic", "t", "--remote", "spark://b"), "sc://"),
        (("pipeline", "work", "t", "--group", "g"), "give --sql or --python"),
    ],
)
def test_a_wrong_command_line_is_refused_before_spark_starts(said, tmp_path, words, text):
    usage = {"--to", "--topic or --lake", "the same name", "give one", "sc://"}
    is_usage = text in usage or text == "give --sql or --python"
    assert text in said(*words, code=Exit.USAGE if is_usage else Exit.REFUSED)


def test_work_and_remote_streams_are_refused_before_spark_starts(client, topic, tmp_path, said):
    server = ("--server", client.url)
    words = ("pipeline", "work", topic, "--group", "g", "--sql", "SELECT 1", "--to", "nowhere")
    assert "nowhere" in said(*words, *server, code=Exit.REFUSED)
    words = ("pipeline", "work", topic, "--group", "g", "--python", "no_such:thing")
    assert "cannot import no_such" in said(*words, *server, code=Exit.REFUSED)
    file = tmp_path / "stream.yaml"
    file.write_text(
        f"{{name: s, sources: {{t: {{topic: {topic}}}}}, transforms: [{{name: a, sql: SELECT * FROM t}}], "
        "sinks: [{lake: lake, from: a, split: none}]}"
    )
    text = said("pipeline", "run", str(file), "--remote", "sc://nowhere:1", code=Exit.REFUSED)
    assert "s has transforms" in text
    assert len(text.splitlines()) == 1


def test_the_demo_says_in_one_line_that_spark_is_not_there(tmp_path, monkeypatch):
    from examples.demo import lake as demo_lake
    from examples.demo.scene import Stage

    monkeypatch.setattr(demo_lake, "find_spec", lambda _name: None)
    (scene,) = demo_lake.lake_scenes(Stage(tmp_path, is_quiet=True))
    assert scene.is_good
    assert scene.lines == [("left out", "Spark is not installed: pip install 'penstock[spark]'")]
    assert list(tmp_path.iterdir()) == []


def test_jobs_on_a_lake_are_lines_of_the_audit_log(client, topic, tmp_path, said):
    publish(client, topic, 30)
    lake = tmp_path / "lake"
    archived(lake, client.url, topic, commit_messages_max=10)
    server = ("--server", client.url)
    merged = sum(one.stat().st_size for one in lake.rglob("*.parquet"))
    said("archive", "compact", str(lake), "--dry-run", *server)
    said("archive", "compact", str(lake), *server)
    said("archive", "vacuum", str(lake), "--keep", "0s", *server)
    back = f"{topic}-back"
    said("archive", "restore", str(lake), topic, "--as", back, "--dry-run", *server)
    said("archive", "restore", str(lake), topic, "--as", back, *server)
    noted = client_call(client, http_path("admin", "audit"))
    lines = [one for one in json.dumps(noted).split('"') if topic in one and " into " in one]
    told = [(one.split()[0], one.rpartition("into ")[2]) for one in lines]
    assert sorted(told) == [
        ("compact", f"{lake}: starting"),
        ("compact", f"{lake}: stopped, 30 messages, 6 files, {merged} bytes"),
        ("restore", f"{back}: starting"),
        ("restore", f"{back}: stopped, 30 messages"),
        ("vacuum", f"{lake}: starting"),
        ("vacuum", f"{lake}: stopped, 6 files, {merged} bytes"),
    ]
    # A lake is worked on without a broker, too.
    said("archive", "compact", str(lake), "--server", "penstock://127.0.0.1:1")


def test_a_dry_run_on_a_lake_goes_beside_its_archive_and_changes_nothing(
    client, topic, tmp_path, said
):
    for count in (20, 40):
        publish(client, topic, 20, first=count)
        archived(tmp_path, client.url, topic)
    with Lake(tmp_path):
        begun = tmp_path / STAGING / "00000000000000000002" / "attempt" / "0-p.parquet"
        begun.parent.mkdir(parents=True)
        begun.write_bytes(b"the archive is writing this")
        before = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")}
        assert "4 files would become 2" in said("archive", "compact", str(tmp_path), "--dry-run")
        assert "0 files" in said("archive", "vacuum", str(tmp_path), "--dry-run")
        said("archive", "compact", str(tmp_path), code=Exit.REFUSED)
        assert {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")} == before


def test_an_archive_prints_its_result_on_stdout(client, topic, tmp_path, capfd):
    words = ["archive", "run", topic, "--to", str(tmp_path), "--once", "--server", client.url]
    publish(client, topic, 30)
    assert run(root, [*words, "--json"]) == Exit.OK
    found = capfd.readouterr()
    assert (json.loads(found.out)["messages"], found.err) == (30, "")
    publish(client, topic, 5)
    assert run(root, words) == Exit.OK
    found = capfd.readouterr()
    assert (found.out.partition(": ")[2], found.err) == ("5 messages in 1 commits\n", "")


def test_a_run_that_is_refused_leaves_the_report_of_the_last_one(client, topic, tmp_path, said):
    publish(client, topic, 30)
    lake, server = tmp_path / "lake", ("--server", client.url)
    run = ("archive", "run", "--to", str(lake), "--once", *server)
    said(*run, topic)
    (good,) = [one for one in list_pipelines(client) if one.target == str(lake)]
    size = sum(one.stat().st_size for one in lake.rglob("*.parquet"))
    assert (good.state, good.messages, good.files, good.bytes) == ("stopped", 30, 2, size)
    assert "no topic never" in said(*run, "never", code=Exit.REFUSED)
    with Lake(lake):
        said(*run, topic, code=Exit.REFUSED)
    assert describe_pipeline(client, good.name).reported_at == good.reported_at
