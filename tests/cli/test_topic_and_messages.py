"""`penstock topic|produce|consume` against a server process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.cli import produce as produce_module
from penstock.cli.exits import Exit


def test_topics_and_messages_from_the_shell(call):
    made = call("topic", "create", "shell", "--partitions", "1", "--set", "max_retries=5")
    assert made == (Exit.OK, "shell: 1 partitions\n", "")
    assert "max_retries: 5" in call("topic", "show", "shell").out
    assert call("produce", "shell", "one", "two", "--header", "a=b").out == "stored 2\n"
    assert call("consume", "shell").out == "0/0\tone\n0/1\ttwo\n"
    assert call("consume", "shell", "--group", "g", "--count", "1").out == "0/0\tone\n"
    (line,) = call("consume", "shell", "--group", "g", "--json").out.splitlines()
    assert json.loads(line)["headers"] == [["a", "b"]]
    assert call("consume", "shell", "--group", "g").out == ""
    assert call("topic", "delete", "shell").code == Exit.OK


def test_what_could_not_be_printed_is_not_finished(url, client, surroundings):
    client.create_topic("unprinted", partitions=1)
    client.publish_many("unprinted", [b"one", b"two"])
    # Unbuffered, nothing would be left for the end of the interpreter.
    surroundings.delenv("PYTHONUNBUFFERED", raising=False)
    words = [sys.executable, "-m", "penstock", "consume", "unprinted", "--group", "printers"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*words, "--server", url], stdout=full, check=False)
    assert done.returncode == Exit.UNAVAILABLE
    assert client.lag("printers").total == 2


def test_every_form_of_a_list_says_the_same(call):
    call("topic", "create", "forms", "--partitions", "2")
    table = call("topic", "list").out.splitlines()
    assert table[0].split() == ["NAME", "PARTITIONS", "TOTAL", "MESSAGES", "TOTAL", "SIZE", "BYTES"]
    assert any(line.split()[:2] == ["forms", "2"] for line in table)
    from_json = [json.loads(one) for one in call("topic", "list", "--json").out.splitlines()]
    assert from_json == yaml.safe_load(call("topic", "list", "--output", "yaml").out)
    assert "forms" in [one["name"] for one in from_json]
    assert call("topic", "list", "--json", "--output", "yaml").code == Exit.USAGE


def test_topic_is_changed_grown_and_compacted(call):
    call("topic", "create", "grows", "--partitions", "1")
    again = call("topic", "create", "grows", "--partitions", "7", "--if-missing", "--json")
    assert json.loads(again.out) == {"name": "grows", "partitions": 1, "created": False}
    changed = json.loads(call("topic", "set", "grows", "retention_hours=24", "--json").out)
    assert changed["config"]["retention_hours"] == 24.0
    words = ("segment_messages_max=5", "retention_check_ms=60000")
    changed = json.loads(call("topic", "set", "grows", *words, "--json").out)
    assert changed["config"]["segment_messages_max"] == 5
    assert changed["config"]["retention_check_ms"] == 60_000
    grown = json.loads(call("topic", "grow", "grows", "3", "--json").out)
    assert (grown["old_partition_count"], grown["new_partition_count"]) == (1, 3)
    assert json.loads(call("topic", "compact", "grows", "--json").out)["segments_removed"] == 0
    assert json.loads(call("topic", "delete", "grows", "--json").out)["deleted"] is True


def test_lines_of_files_and_of_stdin_become_messages(call, tmp_path):
    call("topic", "create", "lines", "--partitions", "1")
    file = tmp_path / "some.txt"
    file.write_bytes(b"a\nb")
    assert call("produce", "lines", "--file", str(file)).out == "stored 2\n"
    assert call("produce", "lines", "-", stdin=b"c\n\xff\n").out == "stored 2\n"
    assert call("produce", "lines", stdin=b"d\n").out == "stored 1\n"
    assert call("consume", "lines").out == "0/0\ta\n0/1\tb\n0/2\tc\n0/3\t\\xff\n0/4\td\n"
    assert json.loads(call("consume", "lines", "--from", "3", "--count", "1", "--json").out)[
        "value"
    ] == {"base64": "/w=="}


def test_file_can_be_one_message(call, client, tmp_path):
    client.create_topic("whole", partitions=1)
    file = tmp_path / "some.bin"
    file.write_bytes(b"a\n\x00b\n")
    assert call("produce", "whole", "--whole", "--file", str(file)).out == "stored 1\n"
    assert call("produce", "whole", "--whole", "-", stdin=b"c\nd").out == "stored 1\n"
    assert [one.value for _, one in client.read("whole")] == [b"a\n\x00b\n", b"c\nd"]
    assert call("produce", "whole", "--whole", "--jsonl", "x").code == Exit.USAGE


def test_json_lines_carry_everything_and_survive_a_round_trip(call, client):
    call("topic", "create", "rich", "--partitions", "1")
    headers = [["a", "b"], ["a", {"base64": "/w=="}], ["", None]]
    lines = [
        {"value": "plain", "key": "k", "headers": headers, "priority": "high"},
        {"value": {"base64": "/w=="}, "key": {"base64": "/g=="}, "idempotency_key": "once"},
        {"value": {"base64": "/w=="}, "key": {"base64": "/g=="}, "idempotency_key": "once"},
        {"value": "later", "delay": "1h", "delay_key": "cart"},
        {"value": None, "ttl": "1h"},
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    assert call("produce", "rich", "--jsonl", stdin=text).out == "stored 5\n"
    shown = call("consume", "rich", "--json").out
    found = [json.loads(line) for line in shown.splitlines()]
    assert [one["value"] for one in found] == ["plain", {"base64": "/w=="}, None]
    assert (found[0]["key"], found[0]["priority"]) == ("k", "high")
    assert found[0]["headers"] == headers
    assert [bool(one["expires_at"]) for one in found] == [False, False, True]
    assert [one.delay_key for one in client.delayed("rich")] == [b"cart"]
    call("topic", "create", "copy", "--partitions", "1")
    as_member = call("consume", "rich", "--group", "copier", "--json").out
    assert call("produce", "copy", "--jsonl", stdin=shown.encode()).out == "stored 3\n"
    # Once more, and no copy is taken for a repeat: the messages are new, whatever key the old ones were sent with.
    assert call("produce", "copy", "--jsonl", stdin=as_member.encode()).out == "stored 3\n"
    assert call("produce", "copy", "--jsonl", stdin=shown.encode()).out == "stored 3\n"
    copied = [json.loads(line) for line in call("consume", "copy", "--json").out.splitlines()]
    kept = ("key", "value", "headers", "priority")
    assert [[one[name] for name in kept] for one in copied] == [
        [one[name] for name in kept]
        for one in [*found, *map(json.loads, as_member.splitlines()), *found]
    ]


def test_a_copy_has_partitions_of_its_own_and_lives_no_longer(call, client):
    client.create_topic("wide", partitions=8)
    client.create_topic("narrow", partitions=1)
    for partition in range(8):
        client.publish("wide", b"x", partition=partition, ttl="1h")
    shown = call("consume", "wide", "--json").out
    over = json.dumps({"offset": 0, "value": "over", "expires_at": "2020-01-01T00:00:00Z"})
    stdin = f"{shown}{over}\n".encode()
    assert call("produce", "narrow", "--jsonl", stdin=stdin).out == "stored 9\n"
    copied = [json.loads(line) for line in call("consume", "narrow", "--json").out.splitlines()]
    until = [json.loads(line)["expires_at"] for line in shown.splitlines()]
    assert [one["expires_at"][:13] for one in copied[:8]] == [one[:13] for one in until]
    # What was over is over: it has a moment, and not the hour of the others.
    assert copied[8]["expires_at"] < min(until)
    assert call("consume", "narrow", "--group", "g", "--values").out == "x\n" * 8


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"nonsense", "line 2: JSON is malformed"),
        (b'{"value": "v", "offset": 1, "expires_at": "soon"}', "line 2: expires_at must look like"),
        (b'{"key": "k"}', "line 2: a message needs a value"),
        (b'{"value": "v", "color": 1}', "line 2: Object contains unknown field `color`"),
        (b'{"value": 7}', "at `$.value`"),
        (b'{"value": {"base64": "%"}}', "line 2:"),
        (b'{"value": "v", "headers": 7}', "at `$.headers`"),
        (b'{"value": "v", "headers": {"a": {"base64": "%"}}}', "line 2: base64 must be"),
        (b'{"value": "v", "priority": "huge"}', "line 2: priority must be one of"),
        (b'{"value": "v", "deliver_at": "2036-01-31"}', "line 2: deliver_at must look like"),
        (b'{"value": "v", "ttl": true}', "line 2:"),
        (b'{"value": "v", "partition": 99}', "partition must be in"),
        (b'{"value": "v", "delay": "soon"}', "line 2: delay must look like"),
        (b"[1]", "line 2:"),
    ],
)
def test_bad_line_is_named_and_what_came_before_it_is_stored(call, client, line, text):
    if "badlines" not in client.topics():
        client.create_topic("badlines", partitions=1)
    before = client.topic("badlines").total_messages
    done = call("produce", "badlines", "--jsonl", stdin=b'{"value": "good"}\n' + line + b"\n")
    assert done.code in {Exit.REFUSED, Exit.UNAVAILABLE}
    assert text in done.err
    assert "Traceback" not in done.err
    assert "stored 1 of" in done.err
    assert client.topic("badlines").total_messages == before + 1


def test_span_without_a_unit_in_a_line_counts_milliseconds_as_in_http(call, client):
    client.create_topic("spans", partitions=1)
    lines = b'{"value": "short", "ttl": 90000}\n{"value": "later", "delay": 90000}\n'
    done = call("produce", "spans", "--jsonl", stdin=lines)
    assert done.out == "stored 2\n", done.err
    (short,) = [message for _, message in client.read("spans")]
    assert 80e9 < short.expires_at - short.timestamp < 100e9
    (later,) = client.delayed("spans")
    assert later.time_remaining <= 90_000


def test_reading_begins_where_it_is_told_to(call, client):
    client.create_topic("places", partitions=2)
    client.publish_many("places", [b"a", b"b", b"c"])
    client.publish("places", b"other", partition=1)
    everything = call("consume", "places", "--values").out.splitlines()
    assert sorted(everything) == ["a", "b", "c", "other"]
    assert call("consume", "places", "--from-time", "1h", "--partition", "1").out.endswith(
        "other\n"
    )
    assert call("consume", "places", "--from-time", "2030-01-01T00:00:00Z").out == ""
    assert call("consume", "places", "--from", "latest").out == ""
    assert call("consume", "places", "--group", "late", "--from", "latest").out == ""
    call("produce", "places", "newest")
    assert call("consume", "places", "--group", "late").out.endswith("\tnewest\n")
    assert len(call("consume", "places", "--count", "2").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["topic", "show", "nowhere"], Exit.REFUSED, "there is no topic nowhere"),
        (["topic", "create", "x", "--set", "y"], Exit.USAGE, "KEY=VALUE"),
        (["topic", "create", "x", "--set", "partitions=2"], Exit.USAGE, "--partitions"),
        (["topic", "create", "x", "--set", "max_retries=many"], Exit.REFUSED, "max_retries"),
        (["topic", "create", "no/good"], Exit.REFUSED, "name"),
        (["topic", "grow", "nowhere", "many"], Exit.USAGE, "not a valid integer"),
        (["produce", "nowhere", "x"], Exit.REFUSED, "there is no topic nowhere"),
        (["produce", "nowhere", "--file", "/no/such"], Exit.USAGE, "/no/such"),
        (["produce", "nowhere", "x", "--header", "y"], Exit.USAGE, "NAME=VALUE"),
        (["produce", "nowhere", "x", "--priority", "huge"], Exit.USAGE, "huge"),
        (["consume", "nowhere"], Exit.REFUSED, "there is no topic nowhere"),
        (["consume", "t", "--from", "the start"], Exit.USAGE, "is not earliest"),
        (["consume", "t", "--group", "g", "--partition", "1"], Exit.USAGE, "--partition"),
        (["consume", "t", "--from", "1", "--from-time", "1h"], Exit.USAGE, "one of them"),
        (["consume", "t", "--count", "0"], Exit.USAGE, "count"),
    ],
)
def test_wrong_calls_get_one_clear_line(call, words, code, text):
    done = call(*words)
    assert (done.code, done.out) == (code, "")
    assert text in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


@pytest.mark.tier("test")
def test_who_waits_for_a_full_topic_is_told(call, client, monkeypatch):
    monkeypatch.setattr(produce_module, "GIVE_UP_S", 1)
    monkeypatch.setattr(produce_module, "SILENT_S", 0.05)
    client.create_topic("full", partitions=1, max_backlog_messages=1)
    client.poll("full", "slow")
    assert call("produce", "full", "one").err == ""
    done = call("produce", "full", "two")
    waiting, stored, error = done.err.splitlines()
    assert waiting.startswith("1 of 1 are not stored yet; the server gets 1 s: ")
    assert "max_backlog_messages is 1: 1 message" in waiting
    assert waiting.endswith("(RESOURCE_EXHAUSTED)")
    assert stored == "stored 0 of 1, then it went wrong"
    assert "max_backlog_messages is 1: 1 message" in error
    assert done.code == Exit.UNAVAILABLE


def test_time_that_is_none_is_refused(call, client):
    client.create_topic("times", partitions=1)
    done = call("consume", "times", "--from-time", "2026-13-31T12:00:00Z")
    assert done.code == Exit.REFUSED
    assert done.err.count("\n") == 1
    assert "2026-13-31" in done.err


def test_produce_without_waiting_stores_all_the_same(call, client):
    client.create_topic("unwaited", partitions=1)
    assert call("produce", "unwaited", "a", "b", "--acks", "none").code == Exit.OK
    assert call("consume", "unwaited").out == "0/0\ta\n0/1\tb\n"
