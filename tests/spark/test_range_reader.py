"""What a task reads, and what a driver plans, against a broker but without Spark."""

from dataclasses import replace

import pyarrow as pa
import pytest
import trustme

from penstock.client import Outgoing
from penstock.errors import NotFound, Refused, Unauthenticated, Unreachable
from penstock.spark.batch import BatchReader, read_task
from penstock.spark.decoder import ROWS_MAX, ROWS_MIN
from penstock.spark.losses import DataLoss
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import Mode, parse_options
from penstock.spark.range_reader import RangeReader
from penstock.spark.stream import StreamReader
from penstock.testing.server import running_server

from .proxy import proxied
from .readers import append, asked, fill, offsets_in, planned

pytestmark = pytest.mark.tier("test")


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


def test_a_table_that_was_planned_for_a_topic_is_not_read_from_the_one_made_after_it(
    broker, client, topic, caplog
):
    """Spark keeps what was planned with the table, for as long as that lives."""
    fill(client, topic, 5)
    lenient = {"failOnDataLoss": "false"}
    readers = [BatchReader(asked(broker, topic, **more)) for more in ({}, lenient)]
    tasks = [reader.partitions() for reader in readers]
    client.delete_topic(topic)
    client.create_topic(topic, partitions=2)
    client.publish_many(topic, [Outgoing(b"other", partition=0) for _ in range(9)])
    with pytest.raises(DataLoss, match="was deleted and made again"):
        [*readers[0].read(tasks[0][0])]
    assert [*readers[1].read(tasks[1][0])] == []
    assert "failOnDataLoss=false" in caplog.text
    assert "made again" in caplog.text


def test_what_is_passed_over_is_logged(broker, client, topic, caplog):
    fill(client, topic, 5)
    options = asked(broker, topic, failOnDataLoss="false")
    assert offsets_in(read_task(options, OffsetRange(topic, 0, 2, 9))) == [2, 3, 4]
    assert f"failOnDataLoss=false: {topic}/0: the query is at offset 9" in caplog.text
