"""The sink of a stream: where it goes on, and what it refuses. Processes that die are in `test_sink_kills`."""

import shutil
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from penstock.api.commits import DescribeCommitName

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]

DEADLINE_S = 300


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


def test_complete_mode_is_refused(client, topic, load):
    load.fill(0, 1)
    counts = load.frame().groupBy("value").count().select("value")
    assert "output mode complete is not for it" in load.failure(counts, mode="complete")
    assert values(client, topic) == Counter()
