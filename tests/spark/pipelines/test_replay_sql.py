"""SQL over lakes, and SQL that selects and changes what is replayed; the session of the tests stays."""

import json
import os

import pytest

from penstock.cli.exits import Exit

from .conftest import SECRET
from .rigs import archived, publish
from .test_restore import rejected

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]


def test_a_query_over_lake_and_log_is_published_once_in_one_commit(lasting, client, tmp_path, said):
    config = {"segment_size_bytes": 4096, "retention_bytes": 4096}
    client.create_topic("sold", partitions=2, **config)
    client.create_topic("sold-2", partitions=1)
    for start in range(0, 800, 50):
        publish(client, "sold", 50, first=start)
    archived(tmp_path / "lake", client.url, "sold")
    publish(client, "sold", 10, first=800)
    client.compact_topic("sold")
    assert client.topic("sold").ends(0).earliest > 0
    words = ["replay", "sold", "--to", "sold-2", "--lake", str(tmp_path / "lake")]
    words += ["--server", client.url]

    def asked(query, *more, code=Exit.OK):
        return said(*words, "--sql", query, *more, code=code)

    query = (
        "SELECT key, upper(CAST(value AS STRING)) AS value, headers, timestamp FROM messages "
        "WHERE CAST(split(CAST(value AS STRING), ' ')[1] AS INT) % 2 = 1"
    )
    for wrong, why in (
        ("SELECT nothing FROM messages", "nothing"),
        ("SELECT offset, value FROM messages", "unknown column 'offset'"),
        ("SELECT value FROM messages WHERE false", "selects no row"),
    ):
        text = asked(wrong, code=Exit.REFUSED)
        assert (why in text, len(text.splitlines())) == (True, 1), text
    assert "405 rows of 810 offsets of sold would go to sold-2" in asked(query, "--dry-run")
    assert client.topic("sold-2").total_messages == 0
    assert json.loads(asked(query, "--json"))["messages"] == 405
    assert json.loads(asked(query, "--json"))["done_before"] == 405
    found = [one for _, one in client.read("sold-2")]
    assert sorted(one.value for one in found) == sorted(b"VALUE %d" % n for n in range(1, 810, 2))
    assert {one.priority for one in found} == {4}
    sent = {one.value.upper(): one.timestamp // 1000 for _, one in client.read("sold")}
    assert all(sent.get(one.value, one.timestamp // 1000) == one.timestamp // 1000 for one in found)


def test_dead_letters_that_a_query_selects_go_back(lasting, client, topic, said):
    rejected(client, topic, 3, "order {} has no price")
    rejected(client, topic, 2, "timeout")
    words = ["dlq", "redrive", topic, "--server", client.url, "--sql"]
    for wrong, why in (
        ("SELECT partition FROM letters", "the columns partition and offset are needed"),
        ("SELECT partition, offset FROM letters WHERE false", "selects no dead letter"),
    ):
        text = said(*words, wrong, code=Exit.REFUSED)
        assert (why in text, len(text.splitlines())) == (True, 1), text
    query = (
        "SELECT partition, offset FROM letters WHERE dlq_reason = 'REJECTED' AND last_error LIKE '%price' "
        "AND group = 'g' AND CAST(value AS STRING) = 'x'"
    )
    assert "3 found, 3 would go back" in said(*words, query, "--dry-run")
    assert len(client.dead_letters(topic)) == 5
    assert "3 found, 3 went back" in said(*words, query)
    assert {one.last_error for one in client.dead_letters(topic)} == {"timeout"}
    assert client.topic(topic).total_messages == 8
    assert "3 that the query has went back before" in said(*words, query)
    said("dlq", "redrive", topic, "--all", "--sql", query, code=Exit.USAGE)


def test_a_query_reads_a_bucket_if_tasks_have_its_settings_and_says_so_if_not(
    lasting, spark, client, topic, bucket, said, monkeypatch
):
    publish(client, topic, 200)
    archived(bucket, client.url, topic)
    words = ["sql", "SELECT topic, count(*) AS n FROM rows GROUP BY topic", "--json"]
    words += ["--lake", f"rows={bucket}", "--server", client.url]
    text = said(*words, code=Exit.REFUSED)
    assert "they have no AWS_ENDPOINT_URL" in text
    assert (len(text.splitlines()), SECRET in text) == (1, False)
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        # What spark.executorEnv.NAME would have set when the session began.
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    assert json.loads(said(*words)) == {"topic": topic, "n": 200}
