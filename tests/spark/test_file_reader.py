"""What a task reads from the broker's files, without Spark."""

import shutil

import pyarrow as pa
import pytest

from penstock.api.queries import HoldFiles
from penstock.errors import Refused
from penstock.spark.batch import read_task
from penstock.spark.losses import DataLoss
from penstock.spark.offsets import OffsetRange

from .proxy import proxied
from .readers import append, asked, offsets_in

pytestmark = pytest.mark.tier("test")


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
