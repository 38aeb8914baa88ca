"""An archive without Spark: tasks run here, one after the other. The broker is a real one."""

from collections import Counter
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq

from penstock.client import Client, Outgoing
from penstock.spark.pipelines.archive import Archive, ArchiveOptions
from penstock.spark.pipelines.lake import Lake, LakeReader
from penstock.spark.pipelines.remote import Remote

NEVER = Event()


def here(call, tasks):
    """Implements `TaskRunner` without Spark."""
    return [call(task) for task in tasks]


def publish(client: Client, topic: str, count: int, *, partition=None, first=0, key=None) -> None:
    for start in range(first, first + count, 1000):
        numbers = range(start, min(start + 1000, first + count))
        messages = [
            Outgoing(f"value {one}", key=key or f"key {one}", partition=partition)
            for one in numbers
        ]
        client.publish_many(topic, messages)


def archived(lake: Path, url: str, *topics: str, spread=here, **options) -> Archive:
    """Everything that is there goes into a lake."""
    more = {
        name: options.pop(name)
        for name in ("table", "split", "columns", "publish")
        if name in options
    }
    with Lake(lake, **more) as opened:
        retries = options.pop("retries", 1)
        options = ArchiveOptions(topics=topics, **options)
        archive = Archive(opened, Remote(url, retries=retries), spread, options)
        archive.run_once(NEVER)
    return archive


def places(root: Path) -> Counter:
    """(topic, partition, offset) of every row in the files that are in the lake now."""
    files = LakeReader(root)
    found: Counter = Counter()
    for one in files.state().files.values():
        table = pq.ParquetFile(files.path_of(one)).read(columns=["partition", "offset"])
        rows = zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True)
        found.update((one.topic, partition, offset) for partition, offset in rows)
    return found


def visible(client: Client, *topics: str) -> Counter:
    """(topic, partition, offset) of every message that the broker shows."""
    return Counter(
        (topic, partition, message.offset)
        for topic in topics
        for partition, message in client.read(topic)
    )
