"""The sink in Spark itself: all rows or none of them, and once, whatever is run again."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]


def numbers(spark, count, first=0):
    """Rows in two tasks, half of them without a key."""
    frame = spark.range(first, first + count, numPartitions=2)
    return frame.selectExpr(
        "CAST(id AS STRING) AS value", "IF(id % 2 = 0, CAST(id AS STRING), NULL) AS key"
    )


def written(frame, broker, topic, /, **options):
    options = {"url": broker, "topic": topic, **options}
    frame.write.format("penstock").options(**options).mode("append").save()


def values(client, topic):
    """How often each number is in a topic."""
    return Counter(int(message.value) for _, message in client.read(topic))


def test_a_batch_is_published_whole_with_what_its_columns_say(spark, broker, client, topic):
    other = f"{topic}.other"
    client.create_topic(other, partitions=1)
    frame = spark.range(100, numPartitions=3).selectExpr(
        "CAST(id AS STRING) AS value",
        f"IF(id < 90, '{topic}', '{other}') AS topic",
        "CAST('k' AS BINARY) AS key",
        "CAST(id % 2 AS INT) * CAST(id < 90 AS INT) AS partition",
        "array(struct('a' AS key, CAST('b' AS BINARY) AS value)) AS headers",
        "timestamp_millis(id) AS timestamp",
        "1 AS priority",
        "INTERVAL 1 HOUR AS ttl",
    )
    frame.write.format("penstock").option("url", broker).mode("append").save()
    assert values(client, topic) == Counter(range(90))
    assert values(client, other) == Counter(range(90, 100))
    for partition, message in client.read(topic):
        number = int(message.value)
        assert (partition, message.key) == (number % 2, b"k")
        assert (list(message.headers), message.priority) == ([("a", b"b")], 1)
        assert message.timestamp == number * 1_000_000


def test_a_batch_with_a_name_is_published_once_and_one_without_again(spark, broker, client, topic):
    named = {"sinkId": topic, "sequence": "7"}
    written(numbers(spark, 10), broker, topic, **named)
    # The same rows are a repeat; others are refused, unless they are to be passed over.
    written(numbers(spark, 10), broker, topic, **named)
    with pytest.raises(Exception, match="nothing was published"):
        written(numbers(spark, 10, first=100), broker, topic, **named)
    written(numbers(spark, 10, first=100), broker, topic, onRepeat="skip", **named)
    assert values(client, topic) == Counter(range(10))
    written(numbers(spark, 5, first=10), broker, topic, sinkId=topic, sequence="8")
    assert values(client, topic) == Counter(range(15))
    for _ in range(2):
        written(numbers(spark, 3, first=20), broker, topic)
    twice = Counter(range(20, 23))
    assert values(client, topic) == Counter(range(15)) + twice + twice


def test_a_task_that_fails_is_tried_again_and_leaves_nothing(
    spark, broker, client, topic, tmp_path
):
    marker = str(tmp_path / "failed")

    def failing_once(batches):
        for batch in batches:
            yield batch
            if not Path(marker).exists():
                Path(marker).touch()
                raise RuntimeError("on purpose")

    frame = numbers(spark, 50).coalesce(1)
    written(frame.mapInArrow(failing_once, frame.schema), broker, topic)
    assert Path(marker).exists()
    assert values(client, topic) == Counter(range(50))


def test_a_batch_that_fails_publishes_nothing(spark, broker, client, topic):
    frame = numbers(spark, 50).selectExpr("value", "IF(value = '49', 7, 0) AS partition")
    with pytest.raises(PySparkException, match="has partitions 0 to 1, not 7"):
        written(frame, broker, topic, sinkId=topic, sequence="1")
    assert values(client, topic) == Counter()
    written(numbers(spark, 50), broker, topic, sinkId=topic, sequence="1")
    assert values(client, topic) == Counter(range(50))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topc": "x"}, "did you mean topic?"),
        ({"topic": "no-such-topic"}, "there is no topic no-such-topic"),
        ({"sinkId": "x"}, "give sinkId and sequence together"),
    ],
)
def test_what_is_wrong_is_said_in_sparks_error(spark, broker, topic, options, says):
    with pytest.raises(PySparkException) as failed:
        written(numbers(spark, 1), broker, topic, **options)
    assert says in str(failed.value)
