"""`penstock log verify` on a whole data directory: what meta knows against what is there."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as library
from penstock.cli.exits import Exit, run
from penstock.cli.root import root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's directory: two topics, three partitions, a message in each."""
    directory = tmp_path / "data"
    with library.Broker(directory) as broker:
        for topic, partitions in (("orders", 2), ("mails", 1)):
            broker.create_topic(topic, partitions=partitions)
            for number in range(partitions):
                broker.publish(topic, b"value", partition=number)
    return directory


def verify(capsys, *words: object) -> tuple[int, list[dict]]:
    code = run(root, ["log", "verify", *map(str, words), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def problems(lines: list[dict], directory: Path) -> set[tuple[str, str, str]]:
    return {
        (line["severity"], line["kind"], str(Path(line["file"]).relative_to(directory)))
        for line in lines
        if line["type"] == "problem"
    }


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_whole_directory_is_good_and_is_not_changed_by_the_look(data, capsys):
    before = files_of(data)
    code, lines = verify(capsys, data)
    assert code == Exit.OK
    assert lines[-1] == {
        "log": str(data),
        "type": "directory",
        "is_good": True,
        "topics": 2,
        "partitions": 3,
        "problems": {"note": 0, "torn": 0, "damage": 0},
    }
    assert files_of(data) == before
    assert run(root, ["log", "verify", str(data)]) == Exit.OK
    assert "meta knows 2 topics with 3 partitions; no problems" in capsys.readouterr().out


@pytest.mark.parametrize("lost", ["", "/messages", "/state"])
def test_a_missing_partition_or_part_of_one_is_damage(data, capsys, lost):
    path = f"topics/default/orders.1/partition-1{lost}"
    shutil.rmtree(data / path)
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert problems(lines, data) == {("damage", "partition", path)}
    assert lines[-1]["is_good"] is False
    for look in (["verify"], ["repair", "--dry-run"], ["repair"]):
        assert run(root, ["log", *look, str(data)]) == Exit.FOUND_PROBLEMS
        said = capsys.readouterr().out
        assert path in said
        assert "NOT GOOD; meta knows 2 topics with 3 partitions; 1 damage" in said


@pytest.mark.parametrize("part", ["", "/messages", "/state", "/delayed"])
def test_an_older_copy_of_a_partition_or_part_of_one_is_damage(data, capsys, tmp_path, part):
    path = f"topics/default/orders.1/partition-1{part}"
    with library.Broker(data) as broker:
        broker.publish("orders", b"later", partition=1, delay="1d")
    shutil.copytree(data, tmp_path / "older")
    with library.Broker(data) as broker:
        for message in broker.poll("orders", "billing"):
            broker.ack(message)
        for when in ({}, {"delay": "1d"}):
            broker.publish("orders", b"another", partition=1, **when)
    shutil.rmtree(data / path)
    shutil.copytree(tmp_path / "older" / path, data / path)
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert all(found[2].startswith(path) for found in problems(lines, data))


def test_a_delay_log_that_is_gone_is_damage(data, capsys):
    with library.Broker(data) as broker:
        broker.publish("orders", b"later", partition=1, delay="1d")
    path = "topics/default/orders.1/partition-1/delayed"
    shutil.rmtree(data / path)
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert problems(lines, data) == {("damage", "partition", path)}


def test_an_older_copy_of_meta_is_damage(data, capsys, tmp_path):
    shutil.copytree(data / "meta", tmp_path / "meta")
    with library.Broker(data) as broker:
        broker.publish("orders", b"another", partition=1)
    shutil.rmtree(data / "meta")
    shutil.copytree(tmp_path / "meta", data / "meta")
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert any("meta/ is an older copy" in line.get("reason", "") for line in lines)


def test_a_topic_whose_directory_is_gone_is_damage(data, capsys):
    shutil.rmtree(data / "topics" / "default" / "orders.1")
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert problems(lines, data) == {
        ("damage", "partition", f"topics/default/orders.1/partition-{number}") for number in (0, 1)
    }


def test_directories_that_meta_does_not_know_are_told_and_damage_if_they_hold_messages(
    data, capsys
):
    shutil.copytree(
        data / "topics" / "default" / "mails.2", data / "topics" / "default" / "older.7"
    )
    shutil.copytree(
        data / "topics/default/orders.1/partition-1/state",
        data / "topics/default/orders.1/partition-2/state",
    )
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert problems(lines, data) == {
        ("damage", "unknown", "topics/default/older.7/partition-0"),
        ("note", "unknown", "topics/default/orders.1/partition-2"),
    }


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_topic_of_which_only_the_intent_is_left_is_damage_if_it_holds_messages(
    tmp_path, capsys, command
):
    """The record that it was made was damaged, and a repair took it out."""
    data = tmp_path / "data"
    source = "import os, sys, penstock\nbroker = penstock.Broker(sys.argv[1])\n"
    source += "broker.create_topic('orders', partitions=1)\nbroker.publish('orders', b'lamp')\n"
    source += "broker.sync()\nos._exit(0)\n"
    subprocess.run([sys.executable, "-c", source, str(data)], check=True)
    heads = dump_of(data / "meta", capsys)
    # By far the largest: it has the settings of the topic.
    made = max(heads, key=lambda head: head["length"])
    log = Path(made["file"])
    content = bytearray(log.read_bytes())
    content[made["position"] + made["length"] // 2] ^= 1
    log.write_bytes(content)
    run(root, ["log", "repair", str(data / "meta")])
    capsys.readouterr()
    assert run(root, ["log", command, str(data)]) == Exit.FOUND_PROBLEMS
    told = capsys.readouterr().out
    assert "topics/default/orders.1/partition-0" in told
    assert "meta does not know it" in told
    assert "NOT GOOD" in told


def dump_of(log: Path, capsys) -> list[dict]:
    """The heads of the batches of a log."""
    assert run(root, ["log", "dump", str(log), "--heads", "--json"]) == Exit.OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_lost_meta_is_damage(data, capsys):
    shutil.rmtree(data / "meta")
    code, lines = verify(capsys, data)
    assert code == Exit.FOUND_PROBLEMS
    assert problems(lines, data) == {("damage", "meta", "meta")}


def test_what_was_cut_and_what_was_set_aside_is_told_as_notes(data, capsys):
    (data / "topics/default/orders.1/partition-0/messages" / f"{0:020d}.cut-4096").write_bytes(
        b"torn"
    )
    shutil.copytree(data / "topics" / "default" / "mails.2", data / "set-aside" / "strange.9")
    code, lines = verify(capsys, data)
    assert code == Exit.OK
    assert problems(lines, data) == {
        ("note", "cut", f"topics/default/orders.1/partition-0/messages/{0:020d}.cut-4096"),
        ("note", "set_aside", "set-aside/strange.9"),
    }
    assert not any("set-aside" in line["log"] for line in lines)
    code, lines = verify(capsys, data / "set-aside")
    assert code == Exit.OK
    assert {Path(line["log"]).name for line in lines} == {"messages", "state"}


def test_a_directory_in_use_is_looked_at_as_it_is(data, capsys):
    with library.Broker(data) as broker:
        broker.create_topic("new", partitions=1)
        code, lines = verify(capsys, data)
    assert code == Exit.OK
    assert (lines[-1]["topics"], lines[-1]["partitions"]) == (3, 4)
