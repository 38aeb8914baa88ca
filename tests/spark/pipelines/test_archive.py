"""Topics into a lake, with tasks in this process: what is archived, what is not, and what is refused."""

from datetime import UTC, datetime, timedelta
from threading import Event

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.cli.exits import Exit
from penstock.client import Outgoing
from penstock.codec import Columns, encode
from penstock.errors import NotFound, Refused, Unavailable, Unreachable
from penstock.model import TopicPartition
from penstock.spark.pipelines.archive import Archive, ArchiveOptions
from penstock.spark.pipelines.delta import publish as to_delta
from penstock.spark.pipelines.lake import Lake, LakeReader, Split, TableFormat
from penstock.spark.pipelines.manifest import ends
from penstock.spark.pipelines.remote import Remote
from penstock.spark.pipelines.verify import verify

from .rigs import archived, here, places, publish, visible


def test_every_message_is_there_once_and_a_second_run_adds_what_came(client, tmp_path):
    client.create_topic("orders-for-a-lake", partitions=3)
    publish(client, "orders-for-a-lake", 2500)
    first = archived(
        tmp_path, client.url, "orders-for-a-lake", commit_messages_max=900, task_messages_max=250
    )
    assert (first.messages, first.commits) == (2500, 3)
    publish(client, "orders-for-a-lake", 10, first=2500)
    second = archived(tmp_path, client.url, "orders-for-a-lake")
    assert (second.messages, second.commits) == (10, 1)
    assert archived(tmp_path, client.url, "orders-for-a-lake").commits == 0
    assert places(tmp_path) == visible(client, "orders-for-a-lake")
    report = verify(LakeReader(tmp_path), client, is_content_read=True)
    assert (report.problems, report.rows, report.is_compared) == ([], 2510, True)
    assert all(one.behind == 0 for one in report.partitions.values())


def test_everything_of_a_message_is_kept(client, tmp_path):
    client.create_topic("full", partitions=1)
    moment = 1_700_000_000_123_456_789
    columns = Columns(
        values=[b"\x00\xff", None],
        keys=[None, b""],
        timestamps=[moment, moment],
        headers=[[("a", b"1"), ("a", b"\x80"), ("", None)], []],
        priorities=[0, 4],
    )
    client.append_batch("full", 0, encode(columns).to_bytes())
    archived(tmp_path, client.url, "full")
    (path,) = LakeReader(tmp_path).paths()
    assert "/topic=full/date=2023-11-14/" in path
    first, second = pq.ParquetFile(path).read().to_pylist()
    assert (first["value"], first["key"], first["priority"]) == (b"\x00\xff", None, 0)
    assert (second["value"], second["key"], second["headers"]) == (None, b"", [])
    found = [(one["key"], one["value"]) for one in first["headers"]]
    assert found == [("a", b"1"), ("a", b"\x80"), ("", None)]
    microseconds = int(first["timestamp"].timestamp() * 1_000_000)
    assert microseconds * 1000 + first["nanos"] == moment


@pytest.mark.parametrize(("split", "files"), [(Split.NONE, 1), (Split.DAY, 3), (Split.HOUR, 4)])
def test_files_are_divided_by_the_time_of_their_messages(client, tmp_path, split, files):
    topic = f"split-{split.value}"
    client.create_topic(topic, partitions=1)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = [
        noon,
        noon + timedelta(days=1),
        noon,
        noon + timedelta(hours=1),
        noon - timedelta(days=20000),
    ]
    moments = [int(one.timestamp()) * 10**9 for one in times]
    values = [str(one).encode() for one in range(5)]
    client.append_batch(topic, 0, encode(Columns(values=values, timestamps=moments)).to_bytes())
    archived(tmp_path, client.url, topic, split=split)
    assert len(LakeReader(tmp_path).paths()) == files
    assert places(tmp_path) == visible(client, topic)
    assert verify(LakeReader(tmp_path), client, is_content_read=True).problems == []


def test_more_days_at_once_than_files_may_be_open(client, tmp_path):
    client.create_topic("days", partitions=1)
    moments = [(one * 7 % 40) * 86_400 * 10**9 for one in range(200)]
    values = [b"x"] * 200
    client.append_batch("days", 0, encode(Columns(values=values, timestamps=moments)).to_bytes())
    archived(tmp_path, client.url, "days")
    assert places(tmp_path) == visible(client, "days")
    assert verify(LakeReader(tmp_path), client, is_content_read=True).problems == []


def test_what_retention_took_before_it_was_archived_is_listed_with_the_reason(client, tmp_path):
    config = {"segment_size_bytes": 4096, "retention_bytes": 8192}
    client.create_topic("short", partitions=1, **config)
    for start in range(0, 1000, 50):
        publish(client, "short", 50, first=start)
    client.compact_topic("short")
    earliest = client.topic("short").ends(0).earliest
    assert earliest > 0
    archived(tmp_path, client.url, "short")
    report = verify(LakeReader(tmp_path), client)
    assert report.problems == []
    (gap,) = report.partitions[TopicPartition("short", 0)].gaps
    assert (gap.start, gap.end, gap.reason) == (0, earliest, "expired")
    assert places(tmp_path) == visible(client, "short")


def test_what_retention_takes_between_planning_and_reading_is_a_gap_too(client, tmp_path):
    config = {"segment_size_bytes": 4096, "retention_bytes": 8192}
    client.create_topic("race", partitions=1, **config)
    for start in range(0, 1000, 50):
        publish(client, "race", 50, first=start)

    def late(call, tasks):
        client.compact_topic("race")
        return here(call, tasks)

    archived(tmp_path, client.url, "race", spread=late, task_messages_max=100)
    report = verify(LakeReader(tmp_path), client)
    assert report.problems == []
    assert {one.reason for one in report.partitions[TopicPartition("race", 0)].gaps} == {"expired"}
    assert places(tmp_path) == visible(client, "race")


def test_what_compaction_took_is_listed_and_the_broker_agrees(client, tmp_path):
    config = {"cleanup": "compact", "segment_size_bytes": 4096}
    client.create_topic("keyed", partitions=1, **config)
    for start in range(0, 600, 20):
        messages = [Outgoing(f"{one}", key=f"{one % 7}") for one in range(start, start + 20)]
        client.publish_many("keyed", messages)
    client.compact_topic("keyed")
    seen = visible(client, "keyed")
    assert len(seen) < 600
    archived(tmp_path, client.url, "keyed", task_messages_max=50)
    report = verify(LakeReader(tmp_path), client)
    assert report.problems == []
    assert report.partitions[TopicPartition("keyed", 0)].gap_offsets == 600 - len(seen)
    assert {one.reason for one in report.partitions[TopicPartition("keyed", 0)].gaps} == {
        "compacted"
    }
    assert places(tmp_path) == seen


def test_latest_is_decided_once_and_survives_a_restart(client, tmp_path):
    client.create_topic("later", partitions=1)
    publish(client, "later", 5)
    archived(tmp_path, client.url, "later", starts_latest=True)
    publish(client, "later", 3, first=5)
    archived(tmp_path, client.url, "later", starts_latest=True)
    assert places(tmp_path) == {("later", 0, offset): 1 for offset in (5, 6, 7)}
    report = verify(LakeReader(tmp_path), client)
    assert report.problems == []
    assert [one.reason for one in report.partitions[TopicPartition("later", 0)].gaps] == [
        "before the start"
    ]


def test_partitions_that_are_added_later_are_archived_from_their_first_message(client, tmp_path):
    client.create_topic("grows", partitions=1)
    publish(client, "grows", 5)
    archived(tmp_path, client.url, "grows", starts_latest=True)
    client.add_partitions("grows", 2)
    publish(client, "grows", 4, partition=1)
    archived(tmp_path, client.url, "grows", starts_latest=True)
    assert {place[1] for place in places(tmp_path)} == {1}
    assert len(places(tmp_path)) == 4


def test_the_group_follows_the_lake_and_retention_waits_for_it(client, tmp_path):
    config = {"segment_size_bytes": 4096, "retention_bytes": 8192}
    client.create_topic("held-for-a-lake", partitions=1, **config)
    archived(tmp_path, client.url, "held-for-a-lake", group="lake", holds_retention=True)
    for start in range(0, 1000, 50):
        publish(client, "held-for-a-lake", 50, first=start)

    def failing(_call, _tasks):
        raise Unavailable("no executor")

    with pytest.raises(Unavailable, match="no executor"):
        archived(tmp_path, client.url, "held-for-a-lake", group="lake", spread=failing)
    assert client.offsets("lake") == {"held-for-a-lake": {0: 0}}, "the group never leads"
    client.compact_topic("held-for-a-lake")
    assert client.topic("held-for-a-lake").ends(0).earliest == 0, (
        "the archive has not been there yet"
    )
    archived(tmp_path, client.url, "held-for-a-lake", group="lake", holds_retention=True)
    assert client.offsets("lake") == {"held-for-a-lake": {0: 1000}}
    last = client.journey("held-for-a-lake", 0, 999).spans[-1]
    assert (last.event_type.value, last.group) == ("archive.stored", "lake")
    assert str(last.attributes["lake"]).startswith(str(tmp_path))
    client.compact_topic("held-for-a-lake")
    assert client.topic("held-for-a-lake").ends(0).earliest > 0
    assert len(places(tmp_path)) == 1000


def test_a_lake_outlives_its_topic_and_one_that_was_made_again_is_another_span(client, tmp_path):
    client.create_topic("twice", partitions=1)
    publish(client, "twice", 5)
    archived(tmp_path, client.url, "twice")
    client.delete_topic("twice")
    client.create_topic("twice", partitions=1)
    publish(client, "twice", 50)
    archived(tmp_path, client.url, "twice")
    report = verify(LakeReader(tmp_path), client, is_content_read=True)
    assert (report.problems, report.rows, report.compared) == ([], 55, 50)
    (before,), now = report.earlier, report.partitions[TopicPartition("twice", 0)]
    assert (before.end, before.rows, before.broker) == (5, 5, "made again")
    assert (now.end, now.rows, now.broker, now.behind) == (50, 50, "the same", 0)
    logs = {one.log for one in LakeReader(tmp_path).state().files.values()}
    assert logs == {before.log, now.log}
    client.delete_topic("twice")
    report = verify(LakeReader(tmp_path), client, is_content_read=True)
    assert (report.problems, report.partitions[TopicPartition("twice", 0)].broker) == (
        [],
        "deleted",
    )


def test_a_topic_that_is_made_again_while_it_is_read_is_noticed(client, tmp_path):
    client.create_topic("swap", partitions=1)
    publish(client, "swap", 5)

    def swapping(call, tasks):
        client.delete_topic("swap")
        client.create_topic("swap", partitions=1)
        publish(client, "swap", 5)
        return here(call, tasks)

    with pytest.raises(Refused, match="made again"):
        archived(tmp_path, client.url, "swap", spread=swapping)
    assert LakeReader(tmp_path).manifests() == []


def test_a_topic_that_is_not_there_and_a_broker_that_is_away(client, tmp_path):
    with pytest.raises(NotFound, match="there is no topic nowhere at penstock"):
        archived(tmp_path, client.url, "nowhere")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        archived(tmp_path, "penstock://127.0.0.1:1", "orders")


def test_delta_sees_each_commit_once_also_if_it_is_published_again(client, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    from penstock.spark.pipelines.delta import publish as to_delta

    client.create_topic("delta", partitions=2)
    publish(client, "delta", 300)
    options = {"table": TableFormat.DELTA, "publish": to_delta, "commit_messages_max": 200}
    archived(tmp_path, client.url, "delta", **options)

    def broken(_lake, _manifest):
        raise OSError("the disk is gone")

    publish(client, "delta", 50, first=300)
    with pytest.raises(OSError, match="the disk is gone"):
        archived(tmp_path, client.url, "delta", **{**options, "publish": broken})
    assert deltalake.DeltaTable(str(tmp_path)).count() == 300
    archived(tmp_path, client.url, "delta", **options)
    version = deltalake.DeltaTable(str(tmp_path)).version()
    archived(tmp_path, client.url, "delta", **options)
    assert deltalake.DeltaTable(str(tmp_path)).version() == version, "nothing to add"
    table = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table(
        columns=["topic", "partition", "offset"]
    )
    rows = {tuple(row.values()) for row in table.to_pylist()}
    assert len(rows) == table.num_rows == 350
    assert rows == set(visible(client, "delta"))


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_goes_while_it_is_committed_does_not_end_the_archive_of_others(
    client, topic, tmp_path, is_made_again
):
    client.create_topic(f"{topic}.gone", partitions=1)
    names = (f"{topic}.gone", topic)
    for name in names:
        publish(client, name, 10, partition=0)

    def deleting(call, tasks):
        done = here(call, tasks)
        client.delete_topic(f"{topic}.gone")
        if is_made_again:
            client.create_topic(f"{topic}.gone", partitions=1)
        return done

    found = archived(tmp_path, client.url, *names, group="archived", spread=deleting)
    assert list(found.problems) == [f"{topic}.gone"]
    assert found.messages == 20
    assert client.offsets("archived")[topic] == {0: 10, 1: 0}


def test_retention_waits_for_a_topic_that_was_made_again_meanwhile(client, topic, tmp_path):
    publish(client, topic, 10)
    stop, before = Event(), []

    def watch(progress):
        if progress.state == "running" and not before:
            before.append(topic)
            assert client.topic(topic).config["keep_unread"]
            client.delete_topic(topic)
            client.create_topic(topic, partitions=1)
            publish(client, topic, 5)
        elif progress.messages == 15:
            stop.set()

    with Lake(tmp_path) as lake:
        options = ArchiveOptions(
            topics=(topic,), group="kept", holds_retention=True, interval_s=0.01
        )
        Archive(lake, Remote(client.url), here, options, watch).run(stop)
    assert client.topic(topic).config["keep_unread"]
    assert client.offsets("kept")[topic] == {0: 5}


def test_a_commit_whose_publication_failed_is_published_before_the_next_one(
    client, topic, tmp_path
):
    publish(client, topic, 30)
    failures, stop = [Unavailable("the store failed")], Event()

    def sometimes(lake, manifest):
        if failures:
            raise failures.pop()
        to_delta(lake, manifest)

    def watch(progress):
        if progress.state == "waiting":
            publish(client, topic, 20, first=30)
        elif progress.state == "running":
            stop.set()

    with Lake(tmp_path, table=TableFormat.DELTA, publish=sometimes) as lake:
        options = ArchiveOptions(topics=(topic,), interval_s=0.01)
        Archive(lake, Remote(client.url), here, options, watch).run(stop)
    assert len(LakeReader(tmp_path).manifests()) == 2
    assert DeltaTable(str(tmp_path)).count() == 50


def test_a_delta_log_that_cannot_be_read_is_one_line(client, topic, tmp_path, said):
    words = ("archive", "run", topic, "--to", str(tmp_path), "--table", "delta", "--once")
    publish(client, topic, 5)
    said(*words, "--server", client.url)
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("no JSON")
    publish(client, topic, 5, first=5)
    text = said(*words, "--server", client.url, code=Exit.FOUND_PROBLEMS)
    assert f"the Delta log of {tmp_path}: " in text
    assert len(text.splitlines()) == 1


def test_the_manifest_says_where_each_partition_goes_on(client, tmp_path):
    client.create_topic("spans", partitions=2)
    publish(client, "spans", 7, partition=0)
    archived(tmp_path, client.url, "spans")
    found = ends(LakeReader(tmp_path).manifests())
    assert {str(place): (one.start, one.end, one.rows) for place, one in found.items()} == {
        "spans/0": (0, 7, 7),
        "spans/1": (0, 0, 0),
    }


def test_a_run_follows_the_topic_until_it_is_asked_to_stop(client, topic, tmp_path):
    stop, seen = Event(), []

    def watch(progress):
        seen.append(progress)
        if progress.commits == 1:
            publish(client, topic, 10, first=10)
        if progress.commits == 3:
            stop.set()

    publish(client, topic, 10)
    with Lake(tmp_path) as lake:
        options = ArchiveOptions(topics=(topic,), interval_s=0.01, commit_messages_max=10)
        Archive(lake, Remote(client.url), here, options, watch).run(stop)
    assert seen[-1].state == "stopped"
    assert seen[-1].commits == 3, "the commit under way was the last"
    found = places(tmp_path)
    assert set(found.values()) == {1}
    assert found <= visible(client, topic)


def test_a_run_waits_for_a_broker_that_is_away_and_says_why(tmp_path):
    stop, seen = Event(), []

    def watch(progress):
        seen.append(progress)
        stop.set()

    with Lake(tmp_path) as lake:
        remote = Remote("penstock://127.0.0.1:1", retries=0)
        Archive(lake, remote, here, ArchiveOptions(topics=("t",)), watch).run(stop)
    assert [one.state for one in seen] == ["waiting", "stopped"]
    assert "no answer from penstock://127.0.0.1:1" in seen[0].error
