"""The source in Spark itself: what is read is what was published, whatever goes wrong."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.api.queries import SeeQueryStart
from penstock.client import Client, Outgoing
from penstock.client.pipelines import describe_pipeline
from penstock.errors import NotFound, Refused
from penstock.spark import refresh
from penstock.spark.pipelines.task_runner import number_column
from penstock.testing.server import running_server

from .proxy import proxied

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]

DEADLINE_S = 1200
TRACE = "0af7651916cd43dd8448eb211c80319c"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def reader(spark, broker, topic, **options):
    return spark.read.format("penstock").options(url=broker, subscribe=topic, **options)


class Stream:
    """A stream that reads all there is, in one run; `batches` is what each of its batches held."""

    def __init__(self, spark, broker, topic, checkpoint, **options):
        self.spark, self.checkpoint = spark, checkpoint
        self.options = {
            "url": broker,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "retries": "1",
        }
        self.options |= {"columns": "partition,offset", **options}
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self.before_batch = lambda: None

    def _take(self, frame, number):
        self.before_batch()
        self.batches[number] = sorted((one.partition, one.offset) for one in frame.collect())

    def run(self, **options):
        frame = self.spark.readStream.format("penstock").options(**self.options | options).load()
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        self.batches.clear()
        query = writer.start()
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()
        return dict(self.batches)

    def failure(self, **options) -> str:
        with pytest.raises(StreamingQueryException) as failed:
            self.run(**options)
        return str(failed.value)


def fill(client, topic, count, partition=None, first=0):
    messages = [
        Outgoing(b"value %d" % number, key=b"key %d" % (number % 7), partition=partition)
        for number in range(first, first + count)
    ]
    return client.publish_many(topic, messages)


def places(partition: int, first: int, last: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, last)]


def test_every_column_is_what_was_published(spark, broker, client, topic):
    client.publish(
        topic,
        b"\x00\xff",
        key=b"k",
        partition=1,
        priority="high",
        ttl="1h",
        headers=[("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"), ("a", b"\x01"), ("", None)],
    )
    client.publish(topic, None, partition=1)
    client.publish(topic, b"later", partition=0, delay="1ms")
    while not client.fetch(topic, 0):
        pass
    rows = reader(spark, broker, topic, includeHeaders="true").load().collect()
    one, two, later = sorted(rows, key=lambda row: (-row.partition, row.offset))
    assert (one.key, one.value, one.topic, one.partition, one.offset) == (
        b"k",
        b"\x00\xff",
        topic,
        1,
        0,
    )
    assert [tuple(pair) for pair in one.headers][1:] == [("a", b"\x01"), ("", None)]
    assert (one.trace_id, one.priority, one.timestampType) == (TRACE, 1, 0)
    assert one.expires_at - one.timestamp == timedelta(hours=1)
    assert abs(datetime.now(UTC) - one.timestamp.astimezone(UTC)) < timedelta(minutes=5)
    assert (two.key, two.value, two.trace_id, two.delay_id) == (None, None, None, None)
    assert (two.expires_at, two.schema_id, two.headers, two.priority) == (None, None, [], 2)
    assert (later.value, later.delay_id) == (b"later", 0)


def test_dead_letters_say_why_they_died(spark, broker, client, topic):
    client.publish(topic, b"bad", key=b"k", partition=0, headers=[("mine", b"1")])
    client.reject(client.poll(topic, "packers"), "no order")
    while f"{topic}.dlq" not in client.topics():
        pass  # The letter comes a moment later.
    _, letter = next(client.read(f"{topic}.dlq", follow=True))
    columns = "key,value,dead_letter"
    (row,) = reader(spark, broker, f"{topic}.dlq", columns=columns).load().collect()
    assert (row.key, row.value) == (b"k", b"bad")
    died, told = row.dead_letter, letter.dead_letter
    assert (died.original_topic, died.original_partition, died.original_offset) == (topic, 0, 0)
    assert (died.group, died.delivery_attempts, died.last_error) == ("packers", 1, "no order")
    assert (died.dlq_reason, died.last_consumer) == (told.dlq_reason, told.last_consumer)
    for name in ("original_timestamp", "first_delivery", "last_delivery", "dlq_timestamp"):
        found = getattr(died, name).astimezone(UTC)
        assert (found - EPOCH) // timedelta(microseconds=1) == getattr(told, name) // 1000
    (plain,) = reader(spark, broker, topic, columns="offset,dead_letter").load().collect()
    assert (plain.offset, plain.dead_letter) == (0, None)


def test_a_batch_reads_the_part_that_was_asked_for(spark, broker, client, topic):
    fill(client, topic, 100, partition=0)
    fill(client, topic, 50, partition=1)
    part = f'{{"{topic}": {{"0": 90, "1": 45}}}}'
    read = reader(
        spark, broker, topic, startingOffsets=part, minPartitions="4", columns="value,offset"
    )
    frame = read.load()
    assert frame.columns == ["value", "offset"]
    assert frame.rdd.getNumPartitions() >= 4
    expected = sorted([(b"value %d" % one, one) for one in [*range(90, 100), *range(45, 50)]])
    assert sorted(map(tuple, frame.collect())) == sorted(map(tuple, frame.collect())) == expected
    assert reader(spark, broker, topic, startingOffsets="latest").load().count() == 0
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING penstock OPTIONS (url '{broker}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(*), count(distinct partition) FROM v").first()[:] == (150, 2)


def test_times_are_instants_whatever_a_plain_timestamp_is_in_the_session(
    spark, broker, client, topic
):
    schema = {"type": "long", "logicalType": "timestamp-micros"}
    codec = client.register_schema(f"{topic}-value", json.dumps(schema))
    client.publish(topic, codec.encode(NOON), ttl="1h")
    columns = "timestamp,expires_at,dead_letter"
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        rows = reader(spark, broker, topic, columns=columns, schema="registry").load()
        (row,) = rows.selectExpr("*", "unix_micros(data) AS at").collect()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert row.expires_at - row.timestamp == timedelta(hours=1)
    assert (row.data_error, row.dead_letter) == (None, None)
    assert row["at"] == (NOON - EPOCH) // timedelta(microseconds=1)


def test_a_table_that_is_refreshed_has_what_came_since(spark, broker, client, topic):
    fill(client, topic, 10)
    table = reader(spark, broker, topic).load()
    table.createOrReplaceTempView("refreshed")
    view = spark.table("refreshed")
    both = table.join(view, ["partition", "offset"])
    assert (len(table.collect()), view.count(), both.count()) == (10, 10, 10)
    fill(client, topic, 7)
    assert refresh(both).count() == 17
    # All that was made from the same load has it, too.
    assert spark.sql("SELECT * FROM refreshed").count() == 17
    fill(client, topic, 1)
    assert len(refresh(table).collect()) == 18


def test_a_table_without_a_topic_is_not_refreshed(spark):
    with pytest.raises(Refused, match="reads a topic"):
        refresh(spark.range(3))


def test_a_stream_that_is_joined_with_a_table_sees_what_came_since_if_it_is_refreshed(
    spark, broker, client, topic, checkpoint
):
    names = f"{topic[:100]}.names"
    client.create_topic(names)
    client.publish(names, b"first", key=b"0")
    fill(client, topic, 1, partition=0)
    table = reader(spark, broker, names).load().selectExpr("key", "value AS name")
    joined = {}

    def join(rows, number):
        joined[number] = [row.name for row in rows.join(refresh(table), "key", "left").collect()]
        client.publish(names, b"second", key=b"key 1")

    stream = spark.readStream.format("penstock").options(url=broker, subscribe=topic)
    stream = stream.option("startingOffsets", "earliest").load().writeStream.foreachBatch(join)
    query = stream.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        fill(client, topic, 1, partition=0, first=1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert joined == {0: [None], 1: [b"second"]}


def test_a_filter_of_one_query_narrows_no_other_query_of_the_table(spark, broker, client, topic):
    """Spark keeps the plan of a source that takes filters, and the tests have its setting for that on."""
    fill(client, topic, 100, partition=0)
    fill(client, topic, 50, partition=1)
    rows = reader(spark, broker, topic, columns="partition,offset").load()
    part = rows.where("partition = 1 AND offset < 20")
    assert (part.count(), rows.count(), part.union(rows).count()) == (20, 150, 170)


def test_a_stream_reads_everything_once_in_batches_of_its_limit(
    spark, broker, client, topic, checkpoint
):
    fill(client, topic, 30, partition=0)
    fill(client, topic, 10, partition=1)
    stream = Stream(
        spark, broker, topic, checkpoint, group="spark-readers", maxOffsetsPerTrigger="16"
    )
    first = stream.run()
    assert [len(one) for one in first.values()] == [16, 16, 8]
    assert sorted(chain(*first.values())) == places(0, 0, 30) + places(1, 0, 10)
    assert client.lag("spark-readers").total == 0
    client.add_partitions(topic, 3)
    fill(client, topic, 5, partition=2)
    assert stream.run() == {3: places(2, 0, 5)}
    assert stream.run() == {}


def test_the_group_and_the_report_have_the_last_batch_without_a_listener(
    spark, broker, client, topic, checkpoint
):
    fill(client, topic, 10)
    Stream(spark, broker, topic, checkpoint, group=topic, maxOffsetsPerTrigger="6").run()
    assert client.lag(topic).total == 0
    told = describe_pipeline(client, topic)
    assert (told.state, told.messages, told.commits, told.lag) == ("stopped", 10, 2, 0)


def test_a_batch_that_failed_is_repeated_with_the_same_messages(
    spark, broker, client, topic, checkpoint
):
    """Also the first one of a query that asked for the latest: what arrived meanwhile must not move its start."""
    fill(client, topic, 10, partition=0)
    stream = Stream(spark, broker, topic, checkpoint, startingOffsets="latest")

    def fail():
        fill(client, topic, 3, partition=0)
        raise RuntimeError("on purpose")

    stream.before_batch = fail
    assert "on purpose" in stream.failure()
    stream.before_batch = lambda: None
    assert stream.run() == {0: [], 1: places(0, 10, 13)}
    fill(client, topic, 5, partition=0)
    stream.before_batch = fail
    assert "on purpose" in stream.failure()
    stream.before_batch = lambda: None
    assert stream.run() == {2: places(0, 13, 18), 3: places(0, 18, 21)}


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_where_a_query_began_is_kept_until_its_first_batch_is_done(
    spark, broker, client, topic, checkpoint, start
):
    """Also that of a run which has only one batch; a new query of that name begins anew."""
    fill(client, topic, 5, partition=0)
    stream = Stream(spark, broker, topic, checkpoint, queryName=topic, startingOffsets=start)
    stream.before_batch = lambda: client.execute(SeeQueryStart(topic))
    assert len(stream.run()) == 1
    with pytest.raises(NotFound):
        client.execute(SeeQueryStart(topic))


def test_a_stream_that_retention_overtook_says_how_many_are_gone(spark, broker, client, checkpoint):
    config = {"segment_size_bytes": 65536, "retention_bytes": 65536}
    client.create_topic("overtaken", partitions=1, **config)
    fill(client, "overtaken", 1)
    stream = Stream(spark, broker, "overtaken", checkpoint)
    assert stream.run() == {0: places(0, 0, 1)}
    for _ in range(5):
        client.publish_many("overtaken", [bytes(40_000)] * 5)
    client.compact_topic("overtaken")
    ends = client.topic("overtaken").ends(0)
    assert ends.earliest > 1
    assert f"overtaken/0: {ends.earliest - 1} messages are gone" in stream.failure()
    assert stream.run(failOnDataLoss="false") == {1: places(0, ends.earliest, ends.latest)}


def test_topics_that_are_gone_or_others_fail_the_query(spark, broker, client, topic, checkpoint):
    fill(client, topic, 5, partition=0)
    stream = Stream(spark, broker, topic, checkpoint)
    stream.run()
    client.create_topic(f"{topic}.other")
    assert f"belongs to a query over {topic}" in stream.failure(subscribe=f"{topic}.other")
    client.delete_topic(topic)
    assert f"there is no topic {topic}" in stream.failure()
    client.create_topic(topic, partitions=2)
    fill(client, topic, 9, partition=0)
    assert "deleted and made again" in stream.failure()
    assert stream.run(failOnDataLoss="false") == {1: places(0, 0, 9)}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOfsets": "latest"}, "did you mean startingOffsets?"),
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"columns": "vaule"}, "did you mean value?"),
        ({"url": "penstock://127.0.0.1:1", "retries": "0"}, "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_in_sparks_error(spark, broker, topic, options, says):
    with pytest.raises(PySparkException) as failed:
        reader(spark, broker, topic).options(**options).load().collect()
    assert says in str(failed.value)


def test_a_broker_that_leaves_in_the_middle_fails_the_query_not_the_rows(
    spark, broker, client, topic, checkpoint
):
    """Its next run goes on with the very batch that failed."""
    fill(client, topic, 10, partition=0)
    with proxied(broker) as proxy:
        stream = Stream(spark, broker, topic, checkpoint, url=proxy.url)
        stream.before_batch = proxy.leave
        assert "no answer from" in stream.failure()
    assert stream.batches == {}
    stream.before_batch = lambda: None
    assert stream.run(url=broker) == {0: places(0, 0, 10)}


def test_a_running_stream_outlives_a_restart_of_the_broker(spark, tmp_path, checkpoint):
    data, rows = tmp_path / "data", []
    with running_server(data) as address, Client(address) as client:
        client.create_topic("restarted", partitions=1)
        fill(client, "restarted", 5)
        port = address.rpartition(":")[2]

    def take(batch, _number):
        rows.extend(one.offset for one in batch.collect())

    options = {"url": address, "subscribe": "restarted", "startingOffsets": "earliest"}
    with running_server(data, "--binary-port", port):
        frame = spark.readStream.format("penstock").options(**options).load()
        query = (
            frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        )
        wait_until(lambda: len(rows) == 5, query)
    with running_server(data, "--binary-port", port), Client(address) as client:
        client.add_partitions("restarted", 2)
        fill(client, "restarted", 5, partition=1)
        wait_until(lambda: len(rows) == 10, query)
        query.stop()
    assert sorted(rows) == sorted([*range(5), *range(5)])


def wait_until(is_so, query):
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_workers_that_spark_keeps_can_be_told_by_their_environment(spark):
    def looked(batches):
        for batch in batches:
            yield batch.set_column(0, "kept", number_column("SPARK_REUSE_WORKER" in os.environ))

    rows = spark.range(1, numPartitions=1).mapInArrow(looked, "kept bigint").collect()
    assert [row["kept"] for row in rows] == [1]
