"""Options that look right and are not: each is refused before anything happens."""

import json

import pytest

import penstock
from penstock.cli.dlq import REASONS
from penstock.cli.exits import Exit
from penstock.delivery.records import DeadReason


@pytest.mark.parametrize("option", ["--ttl", "--delay"])
def test_a_span_without_a_unit_is_refused(run, option):
    done = run("produce", "nowhere", "x", option, "30")
    assert done.code == Exit.USAGE
    assert "'30' does not look like" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume", "t", "--from-time", "yesterday"), "--from-time: 'yesterday' is not a time"),
        (("group", "reset", "g", "--to", "15"), None),
        (("group", "reset", "g", "--to", "begin"), "'begin' is not earliest, latest, an offset, a"),
        (("dlq", "list", "t", "--after", "1 hour"), "--after: '1 hour' is not a time such as"),
        (("dlq", "list", "t", "--after", "2026-01-31T12:00:00Z"), None),
        (("dlq", "list", "t", "--after", "1 h"), None),
    ],
)
def test_a_moment_is_a_time_or_a_span(run, words, said):
    done = run(*words, "--server", "penstock://127.0.0.1:1")
    assert done.code == (Exit.UNAVAILABLE if said is None else Exit.USAGE)
    assert (said or "connection refused") in done.err


@pytest.mark.parametrize("span", ["30", "500ms", "0s"])
def test_a_key_that_would_end_at_once_is_not_one_for_ever(run, tmp_path, span):
    done = run(
        "keys", "create", "x", "--role", "admin", "--expires-in", span, "--data-dir", str(tmp_path)
    )
    assert done.code == Exit.USAGE
    assert "--expires-in" in done.err


@pytest.mark.parametrize("span", ["2h", "2 h", "1.12345678901h", "0000000000000000007200s"])
def test_the_end_of_a_key_is_listed(run, tmp_path, span):
    where = ("--data-dir", str(tmp_path))
    done = run("keys", "create", "x", "--role", "admin", "--expires-in", span, *where)
    assert done.code == Exit.OK, done.err
    assert json.loads(run("keys", "list", "--json", *where).out.splitlines()[-1])["expires_at"]


@pytest.mark.parametrize("words", [("list",), ("rotate", "pk-1"), ("revoke", "pk-1")])
def test_keys_of_a_directory_that_is_not_there_make_none(run, tmp_path, words):
    done = run("keys", *words, "--data-dir", str(tmp_path / "wrong"))
    assert (done.code, str(tmp_path / "wrong") in done.err) == (Exit.REFUSED, True)
    assert not (tmp_path / "wrong").exists()


def test_a_look_at_the_directory_of_a_broker_makes_no_queue_there(run, tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
    done = run("queue", "stats", str(tmp_path / "data"))
    assert (done.code, "a queue in" in done.err) == (Exit.REFUSED, True)
    with penstock.Broker(tmp_path / "data") as broker:
        assert broker.topics() == ["orders"]


def test_a_count_below_one_takes_nothing(run, tmp_path):
    with penstock.open(tmp_path / "queue") as queue:
        queue.put(b"x")
    assert run("queue", "get", str(tmp_path / "queue"), "--count", "-1").code == Exit.USAGE
    with penstock.open(tmp_path / "queue") as queue:
        assert queue.get().value == b"x"


def test_ids_that_are_no_dead_letters_are_named(run, tmp_path):
    penstock.open(tmp_path / "queue").close()
    done = run("queue", "requeue", str(tmp_path / "queue"), "17")
    assert (done.code, "17" in done.err) == (Exit.FOUND_PROBLEMS, True)


def test_settings_that_are_no_text_are_a_problem_of_settings(run, tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_bytes(b"broker:\xff")
    assert "not text in UTF-8 from byte 7 on" in run("config", "check", "--config", str(file)).out
    assert run("serve", "--config", str(file)).code == Exit.REFUSED


def test_what_may_be_said_is_said(run, tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_text("storage:\n  fsync: maybe\n")
    assert "one of always, interval, never" in run("config", "check", "--config", str(file)).out


def test_a_file_is_no_data_directory(run, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    done = run("serve", "--port", "0", "--data-dir", str(file))
    assert (done.code, "a directory, not a file" in done.err) == (Exit.REFUSED, True)


def test_all_reasons_of_a_dead_letter_can_be_asked_for():
    assert [reason.name for reason in DeadReason] == REASONS


def test_more_than_a_number_can_count_is_no_traceback(call, client, tmp_path):
    client.create_topic("few", partitions=1)
    client.publish("few", b"one")
    assert call("consume", "few", "--count", "9" * 30).out == "0/0\tone\n"
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
    done = call("log", "dump", str(tmp_path / "data"), "--limit", "9" * 30)
    assert (done.code, "is not in the range" in done.err) == (Exit.USAGE, True)


def test_a_name_that_is_no_text_is_refused(call):
    for words in (
        ["consume", "\udcff"],
        ["group", "lag", "\udcff"],
        ["consume", "few", "--group", "\udcff"],
    ):
        done = call(*words)
        assert (done.code, "utf-8" in done.err.lower()) == (Exit.REFUSED, True)
