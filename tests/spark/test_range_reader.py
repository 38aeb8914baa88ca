"""What a task reads, and what a driver plans, against a broker but without Spark."""

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
import trustme
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.api.queries import HoldFiles
from penstock.client import Outgoing
from penstock.codec import Columns, encode
from penstock.errors import NotFound, Refused, Unauthenticated, Unreachable
from penstock.spark.batch import BatchReader, read_task
from penstock.spark.decoder import ROWS_MAX, ROWS_MIN
from penstock.spark.losses import DataLoss
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import Mode, SourceOptions, parse_options
from penstock.spark.range_reader import RangeReader
from penstock.spark.stream import StreamReader
from penstock.testing.server import running_server

from .proxy import proxied

pytestmark = pytest.mark.tier("test")
ANY = ReadAllAvailable()


def asked(broker: str, topic: str, used_by: UsedBy = UsedBy.BATCH, **more: str) -> SourceOptions:
    return parse_options({"url": broker, "subscribe": topic, "retries": "2", **more}, used_by)


def fill(client, topic, count, partition=0):
    client.publish_many(topic, [Outgoing(b"%d" % one, partition=partition) for one in range(count)])


def append(client, topic, values, partition=0):
    batch = encode(Columns(values=values, timestamps=1_700_000_000_000_000_000)).to_bytes()
    client.append_batch(topic, partition, bytes(batch))


def offsets_in(batches) -> list[int]:
    return [one for batch in batches for one in batch.column("offset").to_pylist()]


def test_a_long_range_is_asked_for_in_few_words_and_a_short_one_with_little_more_than_needed():
    reader = RangeReader(None, OffsetRange("t", 0, 0, 1000), is_loss_fatal=True)
    limits = [reader._asked(at).limit for at in range(1000)]
    assert all(
        left <= limit < 2 * left for limit, left in zip(limits, range(1000, 0, -1), strict=True)
    )
    assert len(set(limits)) == 11
    assert (
        RangeReader(None, OffsetRange("t", 0, 0, 1 << 40), is_loss_fatal=True)._asked(0).limit
        == 10**6
    )


@pytest.mark.parametrize(("start", "end"), [(0, 30), (3, 17), (9, 10), (10, 20), (29, 30)])
def test_a_range_gives_exactly_its_messages_every_time(broker, client, topic_of_parts, start, end):
    options = asked(broker, topic_of_parts)
    wanted = OffsetRange(topic_of_parts, 0, start, end)
    for _ in range(2):
        batches = list(read_task(options, wanted))
        assert offsets_in(batches) == list(range(start, end))
        values = [one for batch in batches for one in batch.column("value").to_pylist()]
        assert values == [b"%d" % one for one in range(start, end)]


@pytest.fixture(scope="module")
def topic_of_parts(broker):
    """Thirty messages in three stored batches."""
    from penstock.client import Client

    with Client(broker) as client:
        client.create_topic("parts", partitions=1)
        for first in (0, 10, 20):
            append(client, "parts", [b"%d" % one for one in range(first, first + 10)])
    return "parts"


def test_small_stored_batches_are_joined_and_large_ones_split(broker, client, topic):
    for _ in range(30):
        append(client, topic, [b"x"] * 1000)
    append(client, topic, [b"y"] * 120_000)
    batches = list(read_task(asked(broker, topic), OffsetRange(topic, 0, 0, 150_000)))
    assert offsets_in(batches) == list(range(150_000))
    assert all(batch.schema.equals(batches[0].schema) for batch in batches)
    assert all(batch.num_rows >= ROWS_MIN for batch in batches[:-1])
    assert max(batch.num_rows for batch in batches) <= ROWS_MAX


@pytest.mark.parametrize("columns", ["value", "topic,partition", "offset", "trace_id", "delay_id"])
def test_narrow_shapes_have_the_columns_asked_for(broker, client, topic_of_parts, columns):
    options = asked(broker, topic_of_parts, columns=columns)
    table = pa.Table.from_batches(read_task(options, OffsetRange(topic_of_parts, 0, 5, 25)))
    assert table.column_names == columns.split(",")
    assert table.num_rows == 20


def test_a_connection_that_breaks_is_made_again_and_nothing_is_missing_or_twice(
    broker, client, topic
):
    for _ in range(20):
        append(client, topic, [bytes(100)] * 10_000)
    with proxied(broker) as proxy:
        proxy.cut_after, proxy.times = 5_000_000, 4
        options = asked(proxy.url, topic)
        batches = read_task(options, OffsetRange(topic, 0, 0, 200_000))
        assert offsets_in(batches) == list(range(200_000))
        assert proxy.cuts == 4


def test_a_broker_that_stays_away_is_an_error_not_an_end(broker, client, topic):
    for _ in range(20):
        append(client, topic, [bytes(100)] * 10_000)
    with proxied(broker) as proxy:
        # By what has passed, not by when: what is read ahead may be all there is.
        proxy.cut_after, proxy.times, proxy.is_leaving = 5_000_000, 1, True
        found = read_task(asked(proxy.url, topic), OffsetRange(topic, 0, 0, 200_000))
        with pytest.raises(Unreachable):
            list(found)
        assert proxy.cuts == 1


def make_retained(client, name: str) -> int:
    """A topic of which retention took the beginning; gives its earliest offset."""
    config = {"segment_size_bytes": 65536, "retention_bytes": 65536}
    client.create_topic(name, partitions=1, **config)
    for _ in range(10):
        append(client, name, [bytes(1000)] * 40)
    client.compact_topic(name)
    earliest = client.topic(name).ends(0).earliest
    assert 0 < earliest < 400
    return int(earliest)


def test_what_retention_took_is_an_error_with_the_numbers_or_passed_over(broker, client):
    earliest = make_retained(client, "retained")
    wanted = OffsetRange("retained", 0, 0, 400)
    with pytest.raises(DataLoss, match=f"retained/0: {earliest} messages are gone"):
        list(read_task(asked(broker, "retained"), wanted))
    found = read_task(asked(broker, "retained", failOnDataLoss="false"), wanted)
    assert offsets_in(found) == list(range(earliest, 400))
    assert (
        offsets_in(
            read_task(asked(broker, "retained", failOnDataLoss="false"), wanted._replace(end=3))
        )
        == []
    )


def test_a_range_beyond_the_end_is_never_silently_short(broker, client, topic_of_parts):
    wanted = OffsetRange(topic_of_parts, 0, 20, 50)
    with pytest.raises(DataLoss, match="at offset 50, the partition ends at 30"):
        list(read_task(asked(broker, topic_of_parts), wanted))
    found = read_task(asked(broker, topic_of_parts, failOnDataLoss="false"), wanted)
    assert offsets_in(found) == list(range(20, 30))


def test_a_topic_deleted_under_a_task_is_named(broker, client, topic):
    for _ in range(10):
        append(client, topic, [bytes(1000)] * 10_000)
    found = read_task(asked(broker, topic), OffsetRange(topic, 0, 0, 100_000))
    next(found)
    client.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"topic {topic} is gone"):
        list(found)


def planned(options: SourceOptions) -> list[OffsetRange]:
    return [one.wanted for one in BatchReader(options).partitions()]


def test_starts_and_ends_by_name_offset_and_time(broker, client, topic):
    fill(client, topic, 10, partition=0)
    between = client.fetch(topic, 0, offset=9).batches[0][0].append_time + 1
    fill(client, topic, 5, partition=1)
    zero, one = OffsetRange(topic, 0, 0, 10), OffsetRange(topic, 1, 0, 5)
    assert planned(asked(broker, topic)) == [zero, one]
    assert planned(asked(broker, topic, startingOffsets="latest")) == []
    start = f'{{"{topic}": {{"0": 4, "1": -1}}}}'
    assert planned(asked(broker, topic, startingOffsets=start)) == [zero._replace(start=4)]
    end = f'{{"{topic}": {{"0": 7, "1": 0}}}}'
    assert planned(asked(broker, topic, endingOffsets=end)) == [zero._replace(end=7)]
    by_time = asked(broker, topic)
    after = replace(by_time, start=by_time.start._replace(end=None, time_ns=between))
    assert planned(after) == [one]
    before = replace(by_time, end=by_time.end._replace(end=None, time_ns=between))
    assert planned(before) == [zero]
    assert len(planned(asked(broker, topic, minPartitions="6"))) >= 6
    chosen = parse_options({"url": broker, "assign": f'{{"{topic}": [1]}}'}, UsedBy.BATCH)
    assert planned(chosen) == [one]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": '{"parts": {"1": 0}}'}, "parts/0 is missing"),
        ({"startingOffsets": '{"parts": {"0": 0, "1": 0}}'}, "parts/1 is not one that is read"),
        ({"startingOffsets": '{"parts": {"0": 31}}'}, "no offset 31: it ends at 30"),
        (
            {"startingOffsets": '{"parts": {"0": 9}}', "endingOffsets": '{"parts": {"0": 8}}'},
            "ends at 8, before it starts at 9",
        ),
    ],
)
def test_places_that_are_not_there_are_refused(broker, topic_of_parts, options, says):
    with pytest.raises(Refused, match=says):
        planned(asked(broker, topic_of_parts, **options))


def test_topics_and_partitions_that_are_not_there_are_named(broker, topic_of_parts):
    with pytest.raises(NotFound, match="nowhere"):
        planned(asked(broker, "parts,nowhere"))
    with pytest.raises(NotFound, match=r"parts/3; there are 1"):
        planned(parse_options({"url": broker, "assign": '{"parts": [3]}'}, UsedBy.BATCH))
    assert planned(parse_options({"url": broker, "subscribePattern": "none.*"}, UsedBy.BATCH)) == []


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
    one.commit(end)
    lag = client.lag("readers")
    assert lag.total == 6
    assert client.offsets("readers")[topic][0] == 4


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
        one.commit(end)
        client.create_topic(f"{topic}.again", partitions=1, exist_ok=True)
    one.commit(end)
    fill(client, topic, 2)
    following = one.latestOffset(end, ANY)
    assert work_of(one, end, following) == [OffsetRange(topic, 0, 10, 12)]
    one.commit(following)
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


def test_partitions_begin_at_times_of_their_own(broker, client, topic):
    fill(client, topic, 5)
    fill(client, topic, 5, partition=1)
    late_ms = 4_000_000_000_000
    times = f'{{"{topic}": {{"0": 0, "1": {late_ms}}}}}'
    assert planned(asked(broker, topic, startingOffsetsByTimestamp=times)) == [
        OffsetRange(topic, 0, 0, 5)
    ]
    with pytest.raises(Refused, match=f"{topic}/1 is missing"):
        planned(asked(broker, topic, startingOffsetsByTimestamp=f'{{"{topic}": {{"0": 0}}}}'))


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


def test_over_tls_and_with_a_key(tmp_path):
    authority = trustme.CA()
    made, files = authority.issue_cert("127.0.0.1"), {}
    for name in ("cert.pem", "key.pem", "ca.pem", "penstock.yaml"):
        files[name] = tmp_path / name
    made.private_key_and_cert_chain_pem.write_to_path(str(files["key.pem"]))
    made.cert_chain_pems[0].write_to_path(str(files["cert.pem"]))
    authority.cert_pem.write_to_path(str(files["ca.pem"]))
    files["key.pem"].chmod(0o600)
    tls = f"tls: {{cert_file: {files['cert.pem']}, key_file: {files['key.pem']}}}"
    files["penstock.yaml"].write_text(f"{tls}\nauth: {{enabled: true}}\n")
    with running_server(tmp_path / "data", "--config", str(files["penstock.yaml"])) as url:
        key_file = tmp_path / "data" / "admin.key"
        options = asked(url, "secret", caFile=str(files["ca.pem"]), apiKeyFile=str(key_file))
        with options.connect() as client:
            client.create_topic("secret", partitions=1)
            append(client, "secret", [bytes(1000)] * 2000)
        for mode in (Mode.NETWORK, Mode.FILES):
            found = read_task(replace(options, mode=mode), OffsetRange("secret", 0, 0, 2000))
            assert offsets_in(found) == list(range(2000))
        with pytest.raises(Unauthenticated, match="option apiKeyFile: is not given"):
            planned(replace(options, api_key_file=None))
        (tmp_path / "wrong.key").write_text("no.such-key\n")
        wrong = StreamReader(replace(options, api_key_file=str(tmp_path / "wrong.key")))
        with pytest.raises(Unauthenticated, match=r"option apiKeyFile: .*wrong\.key"):
            wrong.initialOffset()
        wrong.stop()
        with pytest.raises(Unreachable, match="certificate"):
            planned(replace(options, ca_file=None, retries=0))


def test_a_key_file_is_read_where_it_is_used(broker, topic_of_parts, tmp_path):
    with pytest.raises(Refused, match=r"apiKeyFile .*none: No such file"):
        planned(asked(broker, topic_of_parts, apiKeyFile=str(tmp_path / "none")))
    (tmp_path / "two").write_text("a.b\nc.d\n")
    with pytest.raises(Refused, match=r"apiKeyFile .*two: a key is one line"):
        planned(asked(broker, topic_of_parts, apiKeyFile=str(tmp_path / "two")))


def small_segments(client, name: str, **config: int) -> int:
    """A topic with many small files; gives how many messages it has."""
    client.create_topic(name, partitions=1, segment_size_bytes=65536, **config)
    for first in range(0, 600, 40):
        append(client, name, [b"%d" % one + bytes(1000) for one in range(first, first + 40)])
    return 600


@pytest.fixture(scope="module")
def topic_of_files(broker):
    from penstock.client import Client

    with Client(broker) as client:
        small_segments(client, "of-files")
    return "of-files"


@pytest.mark.parametrize(("start", "end"), [(0, 600), (0, 1), (39, 41), (7, 555), (590, 600)])
def test_files_give_the_same_rows_as_the_broker(broker, topic_of_files, start, end):
    wanted = OffsetRange(topic_of_files, 0, start, end)
    ours, theirs = (
        pa.Table.from_batches(read_task(asked(broker, topic_of_files, mode=mode), wanted))
        for mode in ("files", "network")
    )
    assert ours.num_rows == end - start
    assert ours.equals(theirs)


def test_sealed_files_are_read_without_the_broker(broker, client, topic_of_files):
    """All but the list of files and what is in the file that grows."""
    with proxied(broker) as proxy:
        options = asked(proxy.url, topic_of_files, mode="files")
        found = read_task(options, OffsetRange(topic_of_files, 0, 0, 500))
        first = next(found)
        proxy.leave()
        rows = first.num_rows + sum(batch.num_rows for batch in found)
    assert rows == 500


def test_a_file_that_cannot_be_read_is_no_loss_if_the_broker_has_it(broker, client, data_dir):
    small_segments(client, "damaged-copy")
    copy = data_dir.parent / "copy"
    shutil.copytree(data_dir / "topics", copy / "topics")
    segments = sorted(copy.glob("topics/default/damaged-copy.*/partition-0/messages/*.log"))
    segments[4].unlink()
    content = bytearray(segments[1].read_bytes())
    content[-100] ^= 1
    segments[1].write_bytes(content)
    options = asked(broker, "damaged-copy", mode="files", dataDir=str(copy))
    # A copy of links; links are not followed.
    segments[9].unlink()
    segments[9].symlink_to(data_dir)
    for start in (0, 200, 360):
        found = pa.Table.from_batches(
            read_task(options, OffsetRange("damaged-copy", 0, start, 600))
        )
        values = [b"%d" % one + bytes(1000) for one in range(start, 600)]
        assert found.column("value").to_pylist() == values


@pytest.mark.parametrize("mode", ["network", "files"])
def test_damage_that_a_topic_skips_is_a_loss_like_any_other(broker, client, data_dir, mode):
    name = f"skips-{mode}"
    small_segments(client, name, on_damage="skip")
    segments = sorted(data_dir.glob(f"topics/default/{name}.*/partition-0/messages/*.log"))
    content = bytearray(segments[1].read_bytes())
    content[5000] ^= 1
    segments[1].write_bytes(content)
    whole, damaged = OffsetRange(name, 0, 0, 600), range(40, 80)
    with pytest.raises(DataLoss, match=f"{name}/0: offsets 40 to 79 are damaged"):
        list(read_task(asked(broker, name, mode=mode), whole))
    with pytest.raises(DataLoss, match="offsets 50 to 59 are damaged"):
        list(read_task(asked(broker, name, mode=mode), OffsetRange(name, 0, 50, 60)))
    # What is damaged beside a range is no loss of it.
    for start, end in ((0, 40), (80, 600)):
        found = read_task(asked(broker, name, mode=mode), OffsetRange(name, 0, start, end))
        assert offsets_in(found) == [*range(start, end)]
    found = read_task(asked(broker, name, mode=mode, failOnDataLoss="false"), whole)
    assert offsets_in(found) == [one for one in range(600) if one not in damaged]


def test_a_data_directory_that_is_not_there_is_said(broker, topic_of_files, tmp_path):
    options = asked(broker, topic_of_files, mode="files", dataDir=str(tmp_path / "none"))
    with pytest.raises(Refused, match=r"mode=files: .*none cannot be read here"):
        list(read_task(options, OffsetRange(topic_of_files, 0, 0, 600)))


def test_files_that_somebody_reads_stay(broker, client):
    small_segments(client, "held", retention_bytes=65536)
    listed = client.execute(HoldFiles("held", 0, 0, 600, 600_000))
    assert len(listed.files) > 5
    assert client.compact_topic("held").segments_removed == 0
    small_segments(client, "not-held", retention_bytes=65536)
    assert client.compact_topic("not-held").segments_removed > 5
    with pytest.raises(DataLoss, match="messages are gone"):
        list(read_task(asked(broker, "not-held", mode="files"), OffsetRange("not-held", 0, 0, 600)))
