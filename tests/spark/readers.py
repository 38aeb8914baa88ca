"""What tests of readers without Spark have in common."""

from penstock.client import Outgoing
from penstock.codec import Columns, encode
from penstock.spark.batch import BatchReader
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import SourceOptions, parse_options


def asked(broker: str, topic: str, used_by: UsedBy = UsedBy.BATCH, **more: str) -> SourceOptions:
    return parse_options({"url": broker, "subscribe": topic, "retries": "2", **more}, used_by)


def fill(client, topic, count, partition=0):
    client.publish_many(topic, [Outgoing(b"%d" % one, partition=partition) for one in range(count)])


def append(client, topic, values, partition=0):
    batch = encode(Columns(values=values, timestamps=1_700_000_000_000_000_000)).to_bytes()
    client.append_batch(topic, partition, bytes(batch))


def offsets_in(batches) -> list[int]:
    return [one for batch in batches for one in batch.column("offset").to_pylist()]


def planned(options: SourceOptions) -> list[OffsetRange]:
    return [one.wanted for one in BatchReader(options).partitions()]
