"""The sink of a stream: where it goes on, and what it refuses. Processes that die are in `test_sink_kills`."""

import shutil
from collections import Counter
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.errors import StreamingQueryException

from penstock.api.commits import DescribeCommitName

from .proxy import proxied

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]

DEADLINE_S = 1200
PAUSE_S = 0.02


class Load:
    """A query that writes numbers, a file of them for each `fill`, into a topic, and stops."""

    def __init__(self, spark, broker, topic, folder):
        self.spark, self.options = spark, {"url": broker, "topic": topic}
        self.files, self.checkpoint = folder / "files", folder / "checkpoint"
        self.files.mkdir()

    def fill(self, first, last):
        # Spark passes over names that begin with a dot, and a rename shows it the whole file.
        unseen = self.files / f".{first}"
        unseen.write_text("".join(f"{one}\n" for one in range(first, last)))
        unseen.rename(self.files / f"{first}.txt")

    def frame(self):
        return self.spark.readStream.text(str(self.files))

    def run(self, frame=None, sink="penstock", mode="append", **options):
        writer = (frame or self.frame()).writeStream.format(sink).outputMode(mode)
        writer = writer.options(**self.options | options, checkpointLocation=str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()
        return query.id

    def failure(self, *given, **options) -> str:
        with pytest.raises(StreamingQueryException) as failed:
            self.run(*given, **options)
        return str(failed.value)


@pytest.fixture
def load(spark, broker, topic, tmp_path):
    return Load(spark, broker, topic, tmp_path)


def values(client, topic):
    """How often each number is in a topic."""
    return Counter(int(message.value) for _, message in client.read(topic))


def test_a_stream_goes_on_where_it_was_and_a_new_checkpoint_publishes_again(client, topic, load):
    load.fill(0, 10)
    query = load.run()
    load.fill(10, 20)
    assert load.run() == query
    assert values(client, topic) == Counter(range(20))
    found = client.execute(DescribeCommitName(query))
    assert (found.writer, found.sequence, found.staging_count) == (query, 1, 0)
    shutil.rmtree(load.checkpoint)
    assert load.run() != query
    assert values(client, topic) == Counter([*range(20), *range(20)])


def test_a_name_that_another_checkpoint_used_is_refused_with_the_way_out(client, topic, load):
    load.fill(0, 10)
    load.run(sinkId=topic)
    shutil.rmtree(load.checkpoint)
    assert f"penstock commits reset {topic}" in load.failure(sinkId=topic)
    assert values(client, topic) == Counter(range(10))


def numbers_of(spark, broker, source):
    options = {"url": broker, "subscribe": source, "startingOffsets": "earliest"}
    return spark.readStream.format("penstock").options(**options).load().select("value")


def test_an_older_checkpoint_that_plans_a_batch_anew_is_refused(spark, broker, client, topic, load):
    """Spark forgot what it had planned: the batch has the number of one that is there, and other rows."""
    source = f"{topic}.source"
    client.create_topic(source)
    with client.producer(source) as producer:
        for number in range(100):
            producer.send(b"%d" % number)
    load.run(numbers_of(spark, broker, source))
    planned, done = (load.checkpoint / kind for kind in ("offsets", "commits"))
    offsets = (planned / "0").read_bytes()
    for file in [*planned.glob("*0*"), *done.glob("*0*")]:
        file.unlink()
    client.publish(source, b"100")
    text = load.failure(numbers_of(spark, broker, source))
    assert "was committed with 100 rows, " in text
    assert "onRepeat=skip" in text
    assert values(client, topic) == Counter(range(100))
    # With the file that it had lost the batch is what it was.
    for file in planned.glob("*0*"):
        file.unlink()
    (planned / "0").write_bytes(offsets)
    load.run(numbers_of(spark, broker, source))
    assert values(client, topic) == Counter(range(101))


def test_complete_mode_is_refused(client, topic, load):
    load.fill(0, 1)
    counts = load.frame().groupBy("value").count().select("value")
    assert "output mode complete is not for it" in load.failure(counts, mode="complete")
    assert values(client, topic) == Counter()


def test_a_broker_that_leaves_in_the_middle_and_stays_away_is_one_line(
    broker, client, topic, load, tmp_path
):
    staged, gone = tmp_path / "staged", tmp_path / "gone"

    def waiting(batches):
        yield from batches
        Path(staged).touch()
        while not Path(gone).exists():
            Event().wait(PAUSE_S)

    def leave():
        while not staged.exists():
            Event().wait(PAUSE_S)
        proxy.leave()
        gone.touch()

    load.fill(0, 10)
    with proxied(broker) as proxy:
        leaving = Thread(target=leave)
        leaving.start()
        frame = load.frame()
        text = load.failure(frame.mapInArrow(waiting, frame.schema), url=proxy.url, retries="1")
        leaving.join()
    assert "Traceback" not in text
    (line,) = [one for one in text.splitlines() if "penstock.errors" in one]
    assert f"no answer from {proxy.url}: " in line
    assert line.endswith("start the query again: a stream goes on with this batch")
    assert values(client, topic) == Counter()
    load.run()
    assert values(client, topic) == Counter(range(10))


def test_a_wrong_row_and_a_missing_topic_of_a_stream_are_told_in_one_line(client, topic, load):
    load.fill(0, 20_000)
    wrong = load.frame().selectExpr("value", "IF(value = '7', 9, 0) AS partition")
    texts = {
        f"column partition: topic {topic} has partitions 0 to 1, not 9": load.failure(wrong),
        "there is no topic no-such-topic": load.failure(topic="no-such-topic"),
    }
    for said, text in texts.items():
        assert said in text
        assert "Traceback" not in text
    assert values(client, topic) == Counter()
