"""Work from queues: one round, one job, one commit. Every message is in the results once, or comes again."""

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.client import Outgoing
from penstock.client.pipelines import describe_pipeline
from penstock.errors import NotFound, Refused
from penstock.spark import work
from penstock.spark.work_round import ROUND_COLUMNS

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.fixture
def results(client, topic):
    client.create_topic(f"{topic}.results", partitions=2)
    return f"{topic}.results"


def test_the_guide_lists_every_column_of_a_round():
    part = GUIDE.read_text().split("\n## Work from queues\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    written = [[cell.strip() for cell in line[:2]] for line in lines]
    assert written == [[f"`{one.name}`", one.kind] for one in ROUND_COLUMNS]


def values(client, topic):
    return Counter(message.value.decode() for _, message in client.read(topic))


def texts(rows):
    return rows.selectExpr("key", "CAST(value AS STRING) AS value")


def test_rounds_are_bounded_by_the_topic_and_say_so_and_every_message_is_done_once(
    spark, broker, client, topic, results
):
    client.configure_topic(topic, max_in_flight_per_consumer=40)
    for one in range(99):
        client.publish(topic, b"%d" % one, partition=one % 2)
    client.publish(topic, b"first", partition=0, priority="critical")
    client.publish(topic, b"late", partition=0, delay="1h")
    told = []
    done = work(
        spark, topic, "g", texts, to=results, url=broker, once=True, on_progress=told.append
    )
    assert values(client, results) == Counter(["first", *map(str, range(99))])
    assert (done.messages, done.outputs, done.nacked, done.lag) == (100, 100, 0, 0)
    assert [one.messages for one in told] == [80, 100]
    assert [one.limited_by for one in told] == ["max_in_flight_per_consumer=40", ""]
    first = {message.value for _, message in client.read(results) if message.offset < 80}
    assert b"first" in first
    assert work(spark, topic, "g", texts, to=results, url=broker, once=True).messages == 0


def test_the_command_works_a_queue_off_and_reports(
    spark, broker, client, topic, results, monkeypatch, capfd
):
    client.publish_many(topic, [b"%d" % one for one in range(5)])
    # The command's session is that of all tests.
    monkeypatch.setattr(spark, "stop", lambda: None)
    sql = "SELECT key, concat('job ', CAST(value AS STRING)) AS value FROM messages"
    words = ["pipeline", "work", topic, "--group", "g", "--sql", sql, "--to", results]
    assert run(root, [*words, "--once", "--json", "--server", broker]) == Exit.OK
    (line,) = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["messages"], found["outputs"], found["rounds"]) == (5, 5, 1)
    assert values(client, results) == Counter(f"job {one}" for one in range(5))
    reported = describe_pipeline(client, f"work.g.{topic}")
    assert (reported.kind, reported.state, reported.messages) == ("work", "stopped", 5)
    assert reported.batch_ms > 0


SIGNALLED = """
import os
import signal


def signalled(rows):
    for _ in range({signals}):
        os.kill(os.getpid(), signal.SIGTERM)
    return rows.select("value")
"""


@pytest.mark.parametrize(
    ("signals", "code", "done"), [(1, Exit.OK, 5), (2, Exit.INTERRUPTED, 0)], ids=["once", "twice"]
)
def test_a_signal_ends_the_command_after_its_round_and_a_second_one_at_once(
    spark, broker, client, topic, results, monkeypatch, tmp_path, signals, code, done
):
    client.publish_many(topic, [b"%d" % one for one in range(12)])
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.chdir(tmp_path)
    module = f"signalled_{signals}"
    (tmp_path / f"{module}.py").write_text(SIGNALLED.format(signals=signals))
    words = ["pipeline", "work", topic, "--group", "g", "--python", f"{module}:signalled"]
    assert run(root, [*words, "--round", "5", "--to", results, "--server", broker]) == code
    assert values(client, results).total() == done
    # Nothing is leased any more, and what was only leased has no attempt.
    left = client.poll(topic, "g")
    assert [one.attempts for one in left] == [1] * (12 - done)


def test_messages_that_fail_alone_are_nacked_and_all_others_are_done(
    spark, broker, client, topic, results
):
    client.configure_topic(topic, max_retries=1, backoff_base_ms=1)
    client.publish_many(topic, [b"%d" % one for one in range(30)])

    def picky(rows):
        value = "CAST(value AS STRING)"
        checked = f"IF({value} IN ('7', '21'), raise_error(concat('not ', {value})), {value})"
        return rows.selectExpr(f"CAST({checked} AS STRING) AS value")

    while len(letters := client.dead_letters(topic)) < 2:
        work(spark, topic, "g", picky, to=results, url=broker, once=True)
    good = {str(one) for one in range(30)} - {"7", "21"}
    assert values(client, results) == Counter(good)
    errors = {one.value: one.last_error for one in letters}
    assert errors.keys() == {b"7", b"21"}
    assert "not 7" in errors[b"7"]


def test_a_message_that_fails_alone_is_found_in_few_jobs(spark, broker, client, topic, results):
    client.configure_topic(topic, backoff_base_ms=600_000, backoff_max_ms=600_000)
    client.configure_topic(topic, max_in_flight=2000, max_in_flight_per_consumer=2000)
    client.publish_many(topic, [Outgoing(b"%d" % one, partition=0) for one in range(2000)])
    jobs = []

    def picky(rows):
        jobs.append(1)
        value = "CAST(value AS STRING)"
        checked = f"IF({value} = '1234', raise_error('not this one'), {value})"
        return rows.selectExpr(f"CAST({checked} AS STRING) AS value")

    done = work(spark, topic, "g", picky, to=results, url=broker, once=True)
    assert (done.messages, done.nacked, done.rounds) == (1999, 1, 1)
    # The round, its halves, some times a sixteenth of what is left, and the others.
    assert len(jobs) <= 9
    assert values(client, results).total() == 1999


@pytest.mark.parametrize(
    ("transform", "to", "error", "says"),
    [
        (lambda rows: rows.selectExpr("nope"), None, Refused, "nope"),
        (lambda rows: rows.selectExpr("value", "key AS kee"), None, Refused, "did you mean key?"),
        (lambda _: None, None, Refused, "returned no DataFrame"),
        (texts, "no-such-topic", NotFound, "no-such-topic"),
    ],
    ids=["analysis", "column", "nothing", "target"],
)
def test_what_is_wrong_is_said_and_the_round_is_given_back(
    spark, broker, client, topic, results, transform, to, error, says
):
    client.publish_many(topic, [b"1", b"2"])
    with pytest.raises(error, match=says):
        work(spark, topic, "g", transform, to=to or results, url=broker, once=True)
    again = client.poll(topic, "g")
    assert [one.attempts for one in again] == [1, 1]
    assert values(client, results) == Counter()


def test_a_target_that_goes_in_the_middle_is_told_in_one_line(
    spark, broker, client, topic, results
):
    client.publish(topic, b"1")

    def deleting(rows):
        client.delete_topic(results)
        return rows.select("value")

    with pytest.raises(Refused, match=f"there is no topic {results}") as failed:
        work(spark, topic, "g", deleting, to=results, url=broker, once=True)
    # What Spark reports of the task, and logs.
    assert "Traceback" not in str(failed.value.__cause__)
    assert [one.attempts for one in client.poll(topic, "g")] == [1]


def test_a_transform_that_fails_for_everything_stops_with_the_reason(
    spark, broker, client, topic, results
):
    client.configure_topic(topic, backoff_base_ms=600_000, backoff_max_ms=600_000)
    client.publish_many(topic, [b"%d" % one for one in range(40)])

    def failing(rows):
        return rows.selectExpr("CAST(raise_error('all wrong') AS STRING) AS value")

    with pytest.raises(Refused, match=r"more than 10 messages of a round failed.*all wrong"):
        work(spark, topic, "g", failing, to=results, url=broker, once=True)
    assert len(client.poll(topic, "g")) == 29
    assert values(client, results) == Counter()
