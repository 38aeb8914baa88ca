"""Publishes a topic of a lake into a broker, which may be a new one: every message once, however often it runs.

Messages of a partition are sent in the order of their offsets by one numbered producer, whose identity comes from the
lake and the log. The broker keeps the number with its messages, so it says itself what it has: a run that was cut off
goes on behind its last message.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ...api.publish import Acks, PublishBatch
from ...codec import Columns, Marks, encode
from ...errors import DamagedFile, NotFound, OutOfSequence, Refused
from ...model import TopicPartition
from ..sink_batches import columns_of_rows
from .file_hash import hash_of
from .lake import LakeReader
from .lake_log import LogRows, files_of_topic, require_archive
from .load_task import stored_of
from .manifest import LakeFile
from .rows import moments_ns

if TYPE_CHECKING:
    from ...client import Client

# One request carries at most so much, or one message.
BATCH_BYTES = 4 << 20
# What a broker gives anew is left out: offsets, keys against repetition, numbers of its schemas.
_COLUMNS = (
    "offset",
    "timestamp",
    "nanos",
    "key",
    "value",
    "headers",
    "priority",
    "expires_at",
)
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition to be restored: the log that it was, its files, and how many messages they hold."""

    name: TopicPartition
    log: int
    files: list[LakeFile]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A topic of a lake, and the topic of a broker that it goes into. `is_new`: it has to be made."""

    target: str
    is_new: bool
    partitions: list[PartitionPlan]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.partitions)


def plan_restore(
    client: "Client", files: LakeReader, topic: str, target: str, as_of: str | None = None
) -> RestorePlan:
    """Returns what is to be done. NotFound: the lake has no such topic.

    Refused: the target has other messages, or not the partitions of the lake.
    """
    state = files.state(as_of)
    require_archive(state, files.root)
    found = files_of_topic(files, state, topic)
    partitions = [PartitionPlan(name, state.ends[name].log, own) for name, own in found.items()]
    count = max(one.name.number for one in partitions) + 1
    if not any(one.rows for one in partitions):
        raise Refused(f"{files.root} has no messages of {topic}")
    try:
        known = client.topic(target)
    except NotFound:
        return RestorePlan(target, True, partitions)
    if known.partitions != count:
        raise Refused(
            f"topic {target} has {known.partitions} partitions, the lake has {count}: messages keep their partition"
        )
    for one in partitions:
        _require_own(client, files, one, target)
    return RestorePlan(target, False, partitions)


def _require_own(client: "Client", files: LakeReader, one: PartitionPlan, target: str) -> None:
    """Refused: the target has messages that are not from this log of the lake."""
    number = one.name.number
    ends = client.topic(target).ends(number)
    if ends.latest == 0:
        return
    fetched = client.fetch(target, number, offset=ends.earliest, limit=1)
    first = next(LogRows(files, one.files, _COLUMNS).windows(), None)
    if ends.latest <= one.rows and first is not None and ends.earliest == 0 and fetched:
        theirs = next(iter(fetched.record_batches()))
        pairs = [(theirs.column(one)[0], first.column(one)[0]) for one in ("key", "value")]
        moment = theirs.column("timestamp").cast(pa.int64())[0].as_py()
        is_same = all(own.as_py() == other.as_py() for own, other in pairs)
        if is_same and moment == int(moments_ns(first.slice(0, 1))[0]):
            return
    raise Refused(
        f"topic {target}, partition {number} has other messages: restore into a topic that is new or empty"
    )


def restore(
    client: "Client",
    files: LakeReader,
    planned: RestorePlan,
    *,
    rate: int | None = None,
    stop: Event | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Publish all messages of a plan, at most `rate` a second. Returns how many the target has of it.

    DamagedFile: a file is not what its commit says; nothing is published then.
    """
    for file in (file for one in planned.partitions for file in one.files):
        if hash_of(files.store, files.place_of(file)) != (file.size, file.sha256):
            raise DamagedFile(file.path, "it is not what its commit says, so nothing is restored")
    if planned.is_new:
        count = max(one.name.number for one in planned.partitions) + 1
        client.create_topic(planned.target, partitions=count)
    done, started = 0, time.monotonic()
    for one in planned.partitions:
        sequence, target = 0, TopicPartition(planned.target, one.name.number)
        producer = _producer_id(files.identity.lake, one, planned.target)
        for rows in LogRows(files, one.files, _COLUMNS).windows():
            for piece in _pieces(rows.combine_chunks().to_batches(), rate):
                if stop is not None and stop.is_set():
                    return done
                _send(client, target, producer, sequence, piece)
                sequence += piece.num_rows
                done += piece.num_rows
                on_progress(done)
                if rate is not None:
                    time.sleep(max(0.0, done / rate - (time.monotonic() - started)))
    return done


def _producer_id(lake: str, one: PartitionPlan, target: str) -> int:
    words = f"restore\0{lake}\0{one.name}\0{one.log}\0{target}"
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def _pieces(batches: list[pa.RecordBatch], rows_max: int | None) -> Iterator[pa.RecordBatch]:
    """Yields rows in portions that one request can carry, of at most `rows_max`, at least one in each."""
    for batch in batches:
        is_small = batch.nbytes <= BATCH_BYTES and (rows_max is None or batch.num_rows <= rows_max)
        if is_small or batch.num_rows == 1:
            yield batch
        else:
            half = batch.num_rows // 2
            yield from _pieces([batch.slice(0, half), batch.slice(half)], rows_max)


def _columns(rows: pa.RecordBatch) -> Columns:
    ends = rows.column("expires_at")
    expires_at = None
    if ends.null_count < len(ends):
        found = ends.cast(pa.int64()).to_pylist()
        expires_at = [None if one is None else one * _NS_PER_US for one in found]
    columns = columns_of_rows(rows, 0)
    return msgspec.structs.replace(columns, timestamps=moments_ns(rows), expires_at=expires_at)


def _send(
    client: "Client", target: TopicPartition, producer: int, sequence: int, rows: pa.RecordBatch
) -> None:
    while rows.num_rows:
        marks = Marks(producer_id=producer, producer_epoch=0, first_sequence=sequence)
        batch = encode(_columns(rows), marks=marks).to_bytes()
        command = PublishBatch(*target, batch)
        try:
            client.connector.execute(command, acks=Acks.ALL, may_repeat=True)
        except OutOfSequence as error:
            stored = stored_of(error, sequence)
            rows, sequence = rows.slice(stored), sequence + stored
        else:
            return
