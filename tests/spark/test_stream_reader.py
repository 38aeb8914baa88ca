"""What a stream's driver plans, and what its tasks read, against a broker but without Spark."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.client.pipelines import describe_pipeline
from penstock.errors import NotFound
from penstock.spark.losses import DataLoss
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.stream import StreamReader

from .readers import asked, fill, offsets_in

pytestmark = pytest.mark.tier("test")
ANY = ReadAllAvailable()


@pytest.fixture
def stream(broker):
    """Makes readers of streams; all are stopped at the end."""
    made = []

    def make(subscribe: str, **more: str) -> StreamReader:
        made.append(StreamReader(asked(broker, subscribe, UsedBy.STREAM, **more)))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def work_of(reader: StreamReader, start, end) -> list[OffsetRange]:
    return [one.wanted for one in reader.partitions(start, end)]


def test_a_start_is_found_once_and_survives_the_driver(stream, client, topic):
    fill(client, topic, 5)
    first = stream(topic, queryName="once").initialOffset()
    assert first["next"] == {f"{topic}/0": 5, f"{topic}/1": 0}
    fill(client, topic, 5)
    again = stream(topic, queryName="once")
    assert again.initialOffset() == first
    end = again.latestOffset(first, ANY)
    assert work_of(again, first, end) == [OffsetRange(topic, 0, 5, 10)]
    # The batch is done: from now on Spark's checkpoint knows, and a new query begins anew.
    assert again.latestOffset(end, ANY) == end
    assert stream(topic, queryName="once").initialOffset()["next"][f"{topic}/0"] == 10


def test_a_start_is_that_of_the_partitions_that_are_read(stream, client, topic):
    fill(client, topic, 5)
    for number, latest in ((0, 5), (1, 0)):
        one = stream("", assign=f'{{"{topic}": [{number}]}}', queryName=topic)
        assert one.initialOffset()["next"] == {f"{topic}/{number}": latest}


def test_without_a_name_a_planned_batch_is_still_repeated_exactly(stream, client, topic):
    fill(client, topic, 5)
    one = stream(topic)
    start = one.initialOffset()
    fill(client, topic, 3)
    end = one.latestOffset(start, ANY)
    fill(client, topic, 4)
    after_crash = stream(topic)
    asked_again = after_crash.initialOffset()
    assert asked_again["next"][f"{topic}/0"] == 12
    assert work_of(after_crash, asked_again, end) == [OffsetRange(topic, 0, 5, 8)]


def test_progress_is_published_as_a_group(stream, client, topic):
    fill(client, topic, 10)
    one = stream(topic, group="readers", startingOffsets="earliest")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(4))
    one.latestOffset(end, ANY)
    lag = client.lag("readers")
    assert lag.total == 6
    assert client.offsets("readers")[topic][0] == 4


def test_progress_is_reported_without_a_listener(stream, client, topic):
    fill(client, topic, 10)
    one = stream(topic, queryName=topic, startingOffsets="earliest")
    start = one.initialOffset()
    first = one.latestOffset(start, ReadMaxRows(4))
    one.partitions(start, first)
    fill(client, topic, 5)
    second = one.latestOffset(first, ReadMaxRows(4))
    told = describe_pipeline(client, topic)
    assert (told.kind, told.state, told.topics) == ("stream", "running", [topic])
    assert (told.messages, told.commits, told.lag, told.skipped) == (4, 1, 11, 0)
    one.partitions(first, second)
    one.prepareForTriggerAvailableNow()
    last = one.latestOffset(second, ANY)
    one.partitions(second, last)
    assert one.latestOffset(last, ANY) == last
    told = describe_pipeline(client, topic)
    assert (told.state, told.messages, told.commits, told.lag) == ("stopped", 15, 3, 0)


def test_what_was_passed_over_is_reported(stream, client):
    name, config = "passed-over", {"segment_size_bytes": 65536, "retention_bytes": 65536}
    client.create_topic(name, partitions=1, **config)
    fill(client, name, 4)
    one = stream(name, queryName=name, startingOffsets="earliest", failOnDataLoss="false")
    first = one.latestOffset(one.initialOffset(), ANY)
    for _ in range(10):
        client.publish_many(name, [bytes(10_000)] * 10)
    client.compact_topic(name)
    earliest = client.topic(name).ends(0).earliest
    assert earliest > 4
    second = one.latestOffset(first, ANY)
    one.partitions(first, second)
    one.latestOffset(second, ANY)
    told = describe_pipeline(client, name)
    assert (told.messages, told.skipped) == (104 - earliest, earliest - 4)


def test_a_query_may_report_nothing(stream, client, topic):
    one = stream(topic, queryName=topic, reportProgress="false")
    one.latestOffset(one.initialOffset(), ANY)
    with pytest.raises(NotFound):
        describe_pipeline(client, topic)


def test_a_query_that_is_stopped_between_two_batches_says_so(stream, client, topic):
    one = stream(topic, queryName=topic)
    one.latestOffset(one.initialOffset(), ANY)
    one.stop()
    assert describe_pipeline(client, topic).state == "stopped"


def test_available_now_ends_where_it_began(stream, client, topic):
    fill(client, topic, 5)
    one = stream(topic, startingOffsets="earliest")
    one.prepareForTriggerAvailableNow()
    fill(client, topic, 5)
    client.add_partitions(topic, 3)
    fill(client, topic, 5, partition=2)
    end = one.latestOffset(one.initialOffset(), ANY)
    assert work_of(one, one.initialOffset(), end) == [OffsetRange(topic, 0, 0, 5)]
    assert one.latestOffset(end, ANY) == end
    reported = one.reportLatestOffset()
    assert reported is not None
    assert reported["next"] == {f"{topic}/0": 10, f"{topic}/1": 0, f"{topic}/2": 5}


def test_progress_in_a_topic_that_is_gone_or_another_one_fails_no_query(stream, client, topic):
    fill(client, topic, 10)
    for one in ("gone", "again"):
        client.create_topic(f"{topic}.{one}", partitions=1)
        fill(client, f"{topic}.{one}", 5)
    options = {"subscribePattern": f"{topic}.*", "group": topic, "failOnDataLoss": "false"}
    one = stream("", **options, startingOffsets="earliest")
    end = one.latestOffset(one.initialOffset(), ANY)
    for deleted in ("gone", "again"):
        client.delete_topic(f"{topic}.{deleted}")
        one.latestOffset(end, ANY)
        client.create_topic(f"{topic}.again", partitions=1, exist_ok=True)
    one.latestOffset(end, ANY)
    fill(client, topic, 2)
    following = one.latestOffset(end, ANY)
    assert work_of(one, end, following) == [OffsetRange(topic, 0, 10, 12)]
    one.latestOffset(following, ANY)
    assert client.offsets(topic)[topic][0] == 12


@pytest.mark.parametrize("is_loss_fatal", ["true", "false"])
def test_a_run_that_begins_at_the_latest_reads_nothing_though_producers_go_on(
    stream, client, topic, is_loss_fatal
):
    """Spark prepares the run before it asks where to begin."""
    fill(client, topic, 5)
    one = stream(topic, startingOffsets="latest", failOnDataLoss=is_loss_fatal)
    one.prepareForTriggerAvailableNow()
    fill(client, topic, 3)
    start = one.initialOffset()
    assert start["next"][f"{topic}/0"] == 8
    fill(client, topic, 2)
    assert one.latestOffset(start, ANY) == start


def test_a_batch_waits_for_more_messages_but_not_too_long(stream, client, topic):
    fill(client, topic, 5)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "4"}
    one = stream(topic, **options)
    first = one.latestOffset(one.initialOffset(), ANY)
    fill(client, topic, 3)
    assert one.latestOffset(first, ANY) == first
    fill(client, topic, 1)
    second = one.latestOffset(first, ANY)
    assert work_of(one, first, second) == [OffsetRange(topic, 0, 5, 9)]
    fill(client, topic, 1)
    assert one.latestOffset(second, ANY) == second
    hasty = stream(topic, **options, maxTriggerDelay="0s")
    assert hasty.latestOffset(second, ANY) != second
    one.prepareForTriggerAvailableNow()
    assert work_of(one, second, one.latestOffset(second, ANY)) == [OffsetRange(topic, 0, 9, 10)]


def test_a_batch_of_a_topic_that_was_made_again_is_not_read_from_the_new_one(stream, client, topic):
    """A batch that Spark repeats, as its driver died, was planned for the topic that was there before."""
    fill(client, topic, 5)
    fill(client, topic, 5, partition=1)
    before = stream(topic, startingOffsets="earliest")
    start = before.initialOffset()
    end = before.latestOffset(start, ANY)
    client.delete_topic(topic)
    client.create_topic(topic, partitions=1)
    fill(client, topic, 9)
    after = stream(topic, startingOffsets="earliest")
    first, second = after.partitions(start, end)
    for task in (first, second):
        with pytest.raises(DataLoss, match=f"{topic}/.: .*deleted and made again"):
            list(after.read(task))
    lenient = stream(topic, startingOffsets="earliest", failOnDataLoss="false")
    assert [*lenient.read(first), *lenient.read(second)] == []
    following = lenient.latestOffset(end, ANY)
    assert work_of(lenient, end, following) == [OffsetRange(topic, 0, 0, 9)]


def test_new_topics_of_a_pattern_are_found(stream, client, topic):
    one = stream("", subscribePattern=f"{topic}.*", startingOffsets="earliest")
    start = one.initialOffset()
    client.create_topic(f"{topic}.more", partitions=1)
    fill(client, f"{topic}.more", 3)
    end = start
    while end == start:
        end = one.latestOffset(start, ANY)
    assert work_of(one, start, end) == [OffsetRange(f"{topic}.more", 0, 0, 3)]


def test_a_reader_travels_to_executors_without_its_connections(stream, client, topic):
    from pyspark.serializers import CloudPickleSerializer

    fill(client, topic, 5)
    one = stream(topic, startingOffsets="earliest")
    start = one.initialOffset()
    end = one.latestOffset(start, ANY)
    serializer = CloudPickleSerializer()
    copy = serializer.loads(serializer.dumps(one))
    found = [offsets_in(copy.read(task)) for task in one.partitions(start, end)]
    assert found == [[0, 1, 2, 3, 4]]
