"""The writer of the sink without Spark: what tasks stage, and what the driver makes of it."""

from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext

from penstock.api.commits import DescribeCommitName, ListCommitNames, ResetCommitName
from penstock.client import RetryPolicy
from penstock.errors import Refused, Unavailable
from penstock.spark.option_reader import UsedBy
from penstock.spark.sink import BatchWriter, StreamWriter
from penstock.spark.sink_options import parse_sink_options

NOWHERE = "penstock://127.0.0.1:9"
pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]


def values(client, topic):
    """How often each number is in a topic."""
    return Counter(int(message.value) for _, message in client.read(topic))


def direct_writer(broker, topic, sequence=1, **options):
    given = {"url": broker, "topic": topic, "sinkId": topic, "sequence": str(sequence), **options}
    return BatchWriter(parse_sink_options(given, UsedBy.BATCH))


def rows(*values):
    return iter([pa.RecordBatch.from_pydict({"value": values})])


def stagings(client, name):
    """How many there are; a name without any, and without a commit, is gone."""
    known = {one.name: one.staging_count for one in client.execute(ListCommitNames())}
    return known.get(name, 0)


def test_a_repeat_is_told_with_the_number_of_rows(broker, client, topic, caplog):
    writer = direct_writer(broker, topic)
    first, second = writer.write(rows(b"1", b"2")), writer.write(rows(b"1", b"2"))
    writer.commit([first])
    assert not caplog.messages
    # What an older attempt staged, and what is staged too late, are both repeats.
    for done in (second, writer.write(rows(b"1", b"2"))):
        caplog.clear()
        writer.commit([done])
        assert "2 rows are not published again" in caplog.text
    assert values(client, topic) == Counter([1, 2])


@pytest.mark.parametrize("is_late", [False, True], ids=["staged before", "staged too late"])
def test_a_repeat_with_other_rows_is_refused_or_skipped(broker, client, topic, caplog, is_late):
    writer = direct_writer(broker, topic)
    skipping = direct_writer(broker, topic, onRepeat="skip")
    others = [(b"1", b"2", b"3"), (b"1", b"3"), (b"1",)]
    done = [writer.write(rows(*other)) for other in others] if not is_late else []
    writer.commit([writer.write(rows(b"1")), writer.write(rows(b"2"))])
    done = done or [writer.write(rows(*other)) for other in others]
    for other in done:
        with pytest.raises(Refused, match=r"was committed with 2 rows, .* and not with"):
            writer.commit([other])
        caplog.clear()
        skipping.commit([other])
        assert f"{other.held.rows} rows are not published again" in caplog.text
    with pytest.raises(Refused, match="not with 0 rows"):
        writer.commit([writer.write(rows())])
    # The same rows in another order, from other tasks.
    writer.commit([writer.write(rows(b"2", b"1")), writer.write(rows())])
    assert values(client, topic) == Counter([1, 2])


@pytest.mark.parametrize("is_late", [False, True], ids=["staged before", "staged too late"])
def test_a_sequence_below_the_last_one_is_refused_or_skipped(
    broker, client, topic, caplog, is_late
):
    older = direct_writer(broker, topic, sequence=20260130)
    skipping = direct_writer(broker, topic, sequence=20260130, ifOlder="skip")
    done = older.write(rows(b"1")) if not is_late else None
    newer = direct_writer(broker, topic, sequence=20260131)
    newer.commit([newer.write(rows(b"2"))])
    done = done or older.write(rows(b"1"))
    with pytest.raises(
        Refused, match=r"sequence 20260130 of .* is older than the last one, 20260131"
    ):
        older.commit([done])
    skipping.commit([done])
    assert "1 rows are not published again" in caplog.text
    assert values(client, topic) == Counter([2])


def test_rows_of_a_batch_that_is_partly_a_repeat_are_not_published(broker, client, topic):
    """The name was reset in between: what one task staged since then is a part of what is in the topic already."""
    writer = direct_writer(broker, topic)
    writer.commit([writer.write(rows(b"1")), writer.write(rows(b"2"))])
    late = writer.write(rows(b"1"))
    client.execute(ResetCommitName(topic))
    writer.commit([late, writer.write(rows(b"2"))])
    assert values(client, topic) == Counter([1, 2])


@pytest.mark.parametrize("writes", ["batch", "stream"])
def test_no_staging_is_left_of_a_repeat_or_of_an_error(broker, client, topic, writes):
    writer = direct_writer(broker, topic)
    writer.commit([writer.write(rows(b"1")), writer.write(rows(b"2"))])
    late = writer.write(rows(b"1"))
    client.execute(ResetCommitName(topic))
    writer.commit([late, writer.write(rows(b"2"))])
    assert stagings(client, topic) == 0
    done = [None, *(writer.write(rows(value)) for value in (b"3", b"4"))]
    assert stagings(client, topic) == 2
    if writes == "batch":
        writer.abort(done)
    else:
        StreamWriter(writer.asked).abort(done, 1)
    assert stagings(client, topic) == 0


@pytest.mark.parametrize("has_id", [False, True])
def test_a_name_that_is_used_once_is_known_as_such(broker, client, topic, has_id):
    given = {"url": broker, "topic": topic} | ({"sinkId": topic, "sequence": "1"} if has_id else {})
    writer = BatchWriter(parse_sink_options(given, UsedBy.BATCH))
    writer.commit([writer.write(rows(b"1"))])
    assert client.execute(DescribeCommitName(writer.key.name)).is_one_off is not has_id


def test_a_broker_that_asks_to_wait_is_waited_for(broker, client, topic, monkeypatch):
    client.configure_topic(topic, max_backlog_messages=2)
    client.publish(topic, b"0", partition=0)
    pause, refusals = RetryPolicy.wait_s, []

    def room_is_made(policy, error, *given, **options):
        refusals.append(error.code)
        client.configure_topic(topic, max_backlog_messages=1000)
        return pause(policy, error, *given, **options)

    monkeypatch.setattr(RetryPolicy, "wait_s", room_is_made)
    writer = direct_writer(broker, topic)
    writer.commit([writer.write(rows(b"1", b"2"))])
    assert set(refusals) == {"RESOURCE_EXHAUSTED"}
    assert values(client, topic) == Counter([0, 1, 2])


def test_an_abort_drops_what_was_staged_and_never_what_was_committed(broker, client, topic):
    writer = direct_writer(broker, topic)
    kept, dropped = writer.write(rows(b"1")), writer.write(rows(b"2"))
    assert stagings(client, topic) == 2
    writer.abort([dropped, None])
    assert stagings(client, topic) == 1
    writer.commit([kept])
    writer.abort([kept])
    assert values(client, topic) == Counter([1])


def test_tasks_without_rows_stage_nothing_and_their_commit_counts(broker, client, topic):
    writer = direct_writer(broker, topic)
    writer.commit([writer.write(rows()), writer.write(iter(()))])
    assert client.execute(DescribeCommitName(topic)).sequence == 1
    assert values(client, topic) == Counter()


def test_a_name_of_another_writer_is_refused_with_the_way_out(broker, client, topic):
    client.commit_stagings(topic, 0, "another job", [])
    with pytest.raises(Refused, match=f"penstock commits reset {topic}"):
        direct_writer(broker, topic).write(rows(b"1"))
    assert values(client, topic) == Counter()


def test_a_task_that_cannot_reach_the_broker_fails_and_one_that_is_refused_ends_the_query(
    broker, client, topic, monkeypatch
):
    """Spark runs the first one again, perhaps elsewhere; of the other the driver tells the reason."""
    local = {"sql.streaming.queryId": topic, "streaming.sql.batchId": "0"}
    context = SimpleNamespace(
        getLocalProperty=local.get, partitionId=lambda: 0, attemptNumber=lambda: 0
    )
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    given = {"topic": topic, "retries": "0"}
    away = StreamWriter(parse_sink_options({**given, "url": NOWHERE}, UsedBy.STREAM))
    with pytest.raises(Unavailable):
        away.write(rows(b"1"))
    wrong = iter([pa.RecordBatch.from_pydict({"value": [b"1"], "partition": [9]})])
    here = StreamWriter(parse_sink_options({**given, "url": broker}, UsedBy.STREAM))
    failed = here.write(wrong)
    with pytest.raises(Refused, match="has partitions 0 to 1, not 9"):
        here.commit([failed], 0)
    assert values(client, topic) == Counter()
