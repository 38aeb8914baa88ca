"""Leased messages as a table for Spark, and the task that stages what Spark made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..client.leased_messages import Delivered, LeasedPart, Polled
from ..client.stagings import CommitKey, StagingHandle
from ..errors import Unavailable
from .columns import HEADERS_KIND
from .pipelines.task_runner import binary_column
from .sink_options import SinkOptions
from .worker_errors import brief_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..client import Consumer

# A round is held in memory by the driver, so it ends with the poll that brings it beyond so many bytes.
ROUND_BYTES_MAX = 64 << 20
# The broker gives out so many messages of a partition with one lease.
_POLL_MAX = 10_000
# Half of what the broker takes in one request.
_ANSWERS_A_REQUEST = 50_000
_INSTANT = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class RoundColumn(NamedTuple):
    """A column of a round, its type as Spark writes it, and what the guide says of it."""

    name: str
    kind: str
    says: str


ROUND_COLUMNS = (
    RoundColumn("key", "binary", "as published; may be null"),
    RoundColumn("value", "binary", "as published; may be null"),
    RoundColumn("topic", "string", ""),
    RoundColumn("partition", "int", ""),
    RoundColumn("offset", "bigint", ""),
    RoundColumn("timestamp", "timestamp", "given by the producer, or when it was stored"),
    RoundColumn("priority", "int", "0 critical to 4 background"),
    RoundColumn("expires_at", "timestamp", "end of its time to live, or null"),
    RoundColumn("schema_id", "bigint", "or null"),
    RoundColumn("attempts", "int", "how often it was delivered, from 1"),
    RoundColumn("headers", HEADERS_KIND, "only if asked for"),
)
_TYPES = {"binary": pa.binary(), "string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
_TYPES |= {"timestamp": _INSTANT, HEADERS_KIND: _HEADERS}
_STORED = ("key", "value", "offset", "timestamp", "priority", "expires_at", "schema_id")


def lease_round(
    consumer: "Consumer", messages_max: int, wait_s: float, held: Polled[Delivered]
) -> Polled[Delivered]:
    """Returns what is held and more, as the group would give it out: waits for the first message, and for no other."""
    parts: list[LeasedPart] = [*held.parts]
    count, size = len(held), sum(part.stored_bytes for part in parts)
    while count < messages_max and size < ROUND_BYTES_MAX:
        limit = min(messages_max - count, _POLL_MAX)
        polled = consumer.poll(limit, wait=0 if parts else wait_s)
        if not polled:
            break
        parts += polled.parts
        count += len(polled)
        size += sum(part.stored_bytes for part in polled.parts)
    return Polled(parts, Delivered)


def table_of(held: Polled[Delivered], *, has_headers: bool) -> pa.Table:
    """Returns the messages as columns of Spark, in the order in which iteration gives them."""
    wanted = [one for one in ROUND_COLUMNS if has_headers or one.name != "headers"]
    schema = pa.schema([(one.name, _TYPES[one.kind]) for one in wanted])
    stored = (*_STORED, "headers") if has_headers else _STORED
    batches = [_record_batch(part, stored, schema) for part in held.parts]
    return pa.Table.from_batches(batches, schema)


def _record_batch(part: LeasedPart, stored: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    found, rows = part.record_batch(stored), len(part)
    arrays = {name: found.column(name) for name in stored}
    arrays["topic"] = pa.repeat(part.topic, rows)
    arrays["partition"] = pa.repeat(part.partition, rows)
    arrays["attempts"] = pa.array(part.attempts(), pa.int32())
    if "headers" in arrays:
        whole = arrays["headers"]
        pairs = pa.StructArray.from_arrays(whole.values.flatten(), fields=list(_HEADERS.value_type))
        arrays["headers"] = pa.ListArray.from_arrays(whole.offsets, pairs, _HEADERS)
    # Not safe: times lose their nanoseconds, which Spark does not have.
    columns = [arrays[field.name].cast(field.type, safe=False) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def delivered_before(rows: pa.Table) -> list[int]:
    """Returns the places of messages that this is not the first delivery of."""
    found = pc.indices_nonzero(pc.greater(rows.column("attempts"), 1))
    return [int(place) for place in found.to_pylist()]


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages the rows of a task for a commit, and returns the handle. Runs on the executors."""

    sink: SinkOptions
    key: CommitKey
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from .sink import stage_task

        with brief_errors(is_query=False):
            done = stage_task(self.sink, self.key, batches, self.job)
            if done.last is not None:
                raise Unavailable(f"sequence {self.key.sequence} of {self.key.name} was committed")
        if done.handle is not None:
            handle = binary_column(msgspec.json.encode(done.handle))
            yield pa.RecordBatch.from_arrays([handle], names=["staged"])


def staged_by(job: "DataFrame") -> list[StagingHandle]:
    """Runs a job of `StageRows`; the stagings of the tasks that won."""
    return [StagingHandle(*msgspec.json.decode(bytes(row["staged"]))) for row in job.collect()]


def in_requests(held: Polled[Delivered]) -> Iterator[Polled[Delivered]]:
    """Yields the messages in pieces that one request may answer."""
    parts: list[LeasedPart] = []
    count = 0
    for part in held.parts:
        if parts and count + len(part) > _ANSWERS_A_REQUEST:
            yield Polled(parts, Delivered)
            parts, count = [], 0
        parts.append(part)
        count += len(part)
    if parts:
        yield Polled(parts, Delivered)


def limit_reached(held: Polled[Delivered], settings: Mapping[str, int]) -> str:
    """Returns the setting of the topic that bounds a round, with its value; empty if none does."""
    counts: dict[int, int] = {}
    for part in held.parts:
        counts[part.partition] = counts.get(part.partition, 0) + len(part)
    for name in ("max_in_flight_per_consumer", "max_in_flight"):
        limit = int(settings[name])
        if any(count >= limit for count in counts.values()):
            return f"{name}={limit}"
    return ""
