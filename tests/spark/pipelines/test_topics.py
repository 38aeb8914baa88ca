"""Several topics in one lake: patterns, and the trouble of one that stops no other."""

import json

import pytest

from penstock.cli.exits import Exit
from penstock.errors import NotFound, Refused
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.verify import verify

from .rigs import archived, here, places, publish, visible


def test_a_pattern_takes_topics_as_they_come(client, tmp_path):
    for name in ("shop-a", "shop-b", "other"):
        client.create_topic(name, partitions=1)
        publish(client, name, 5)
    archived(tmp_path, client.url, "shop-?")
    assert {place[0] for place in places(tmp_path)} == {"shop-a", "shop-b"}
    client.create_topic("shop-c", partitions=1)
    publish(client, "shop-c", 3)
    archived(tmp_path, client.url, "shop-*", "other")
    assert places(tmp_path) == visible(client, "shop-a", "shop-b", "shop-c", "other")
    with pytest.raises(NotFound, match=r"like nothing-\* at"):
        archived(tmp_path, client.url, "nothing-*")


def test_the_trouble_of_one_topic_stops_no_other_and_is_said(client, tmp_path, said):
    for name in ("good", "swapped"):
        client.create_topic(name, partitions=2)
        publish(client, name, 10)

    def swapping(call, tasks):
        client.delete_topic("swapped")
        client.create_topic("swapped", partitions=2)
        publish(client, "swapped", 4)
        return here(call, tasks)

    lake = tmp_path / "lake"
    found = archived(lake, client.url, "good", "swapped", "nowhere", spread=swapping)
    assert found.problems.keys() == {"swapped", "nowhere"}
    assert places(lake) == visible(client, "good")
    # The next run takes the topic as it is now. The one that is missing still makes the exit code.
    words = ["archive", "run", "good", "swapped", "nowhere", "--to", str(lake), "--once"]
    text = said(*words, "--server", client.url, "--dry-run", "--json", code=Exit.FOUND_PROBLEMS)
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert sum(one["messages"] for one in rows) == 4
    assert "problem: nowhere: there is no topic nowhere" in text
    assert len(LakeReader(lake).manifests()) == 1, "nothing was done"
    text = said(*words, "--server", client.url, "--json", code=Exit.FOUND_PROBLEMS)
    last = [json.loads(line) for line in text.splitlines() if line.startswith("{")][-1]
    assert (last["messages"], list(last["problems"])) == (4, ["nowhere"])
    assert places(lake) == visible(client, "good", "swapped")
    # A topic that the lake has and the broker deleted is no trouble.
    client.delete_topic("swapped")
    publish(client, "good", 5, first=10)
    said("archive", "run", "good", "swapped", "--to", str(lake), "--once", "--server", client.url)
    assert "deleted" in said("archive", "verify", str(lake), "--server", client.url)
    assert verify(LakeReader(lake), client, is_content_read=True).problems == []


def test_a_broker_that_lost_messages_is_not_taken_for_a_new_topic(client, topic, tmp_path):
    publish(client, topic, 10, partition=0)
    archived(tmp_path, client.url, topic)
    reader = LakeReader(tmp_path)
    from penstock.spark.pipelines.partitions import query_partitions, require_continued

    now = query_partitions(client, [topic])[0]
    with pytest.raises(Refused, match="ends at offset 4 in the broker and at 10 in the lake"):
        require_continued(reader.state(), now._replace(latest=4))


def test_a_run_that_is_refused_leaves_no_lake(client, tmp_path, said):
    lake = tmp_path / "lake"
    words = ["archive", "run", "nowhere", "--to", str(lake), "--once", "--server", client.url]
    assert "there is no topic nowhere" in said(*words, code=Exit.REFUSED)
    assert not lake.exists()
    assert "FILE_MISSING" in said("archive", "compact", str(lake), code=Exit.REFUSED)
    assert "FILE_MISSING" in said("archive", "vacuum", str(lake), code=Exit.REFUSED)
    assert not lake.exists()
