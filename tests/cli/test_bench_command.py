"""`penstock bench` against a server process: what it counts is what the server has."""

import json

import pytest

from penstock.cli.bench import report
from penstock.cli.bench_load import Run, ThreadCounts
from penstock.cli.exits import Exit
from penstock.cli.output import Form, Output


def report_of(done) -> dict:
    assert done.code == Exit.OK, done.err
    (line,) = done.out.splitlines()
    return json.loads(line)


def test_publishing_into_a_named_topic_stores_what_is_reported(call, client):
    client.create_topic("loaded", partitions=2)
    words = ("--topic", "loaded", "--messages", "2500", "--size", "20", "--publishers", "3")
    found = report_of(call("bench", "publish", *words, "--json"))
    assert (found["case"], found["messages"], found["bytes"]) == ("publish", 2500, 50_000)
    assert client.topic("loaded").total_messages == 2500


def test_a_topic_and_a_group_made_for_a_run_are_gone_after_it(call, client):
    before = (client.topics(), client.groups())
    assert report_of(call("bench", "consume", "--messages", "700", "--json"))["messages"] == 700
    assert (client.topics(), client.groups()) == before


def test_single_publishes_report_how_long_they_took(call):
    found = report_of(call("bench", "publish", "--single", "--messages", "5", "--json"))
    assert found["messages"] == 5
    assert 0 < found["p50_us"] <= found["p95_us"] <= found["p99_us"] <= found["max_us"]


def test_latency_hears_every_message_that_was_sent(call):
    found = report_of(call("bench", "latency", "--rate", "200", "--duration", "100ms", "--json"))
    assert found["messages"] == 20
    assert found["p50_us"] > 0


def test_consuming_a_named_topic_ends_when_the_group_has_all(call, client):
    client.create_topic("taken", partitions=3)
    client.publish_many("taken", [b"a", b"b", b"c"])
    words = ("--topic", "taken", "--group", "takers", "--consumers", "2", "--json")
    assert report_of(call("bench", "consume", *words))["messages"] == 3
    assert client.lag("takers").total == 0
    assert report_of(call("bench", "consume", *words))["messages"] == 0


def test_a_topic_that_is_not_there_is_refused(call):
    done = call("bench", "publish", "--topic", "nowhere")
    assert done.code == Exit.REFUSED
    assert "nowhere" in done.err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_with_any_error_fails_the_run():
    class Nothing:
        def at(self, done: int, text: str) -> None:
            return

    def work(counts: ThreadCounts) -> None:
        counts.add(3, 30)
        raise OSError("the network is gone")

    run = Run()
    run.start(work, name="publisher")
    run.wait(Nothing())
    assert (run.messages, run.stop.is_set()) == (3, True)
    with pytest.raises(OSError, match="the network is gone"):
        report(run, Output(Form.JSON), case="publish")
