"""Record batches of Kafka: stored as they came, or as columns where more is asked of a message than a record says."""

import numpy as np

from ...codec import Columns, Encoded, encode, select
from ...codec.edit import expiring
from ...codec.kafka_header import read_header
from ...codec.verbatim import is_faithful, keep_verbatim, records_of
from ...config import OFF, Cleanup, KafkaStorage, LimitsConfig, TopicConfig
from ...errors import MalformedBatch
from ...model import Buffer
from .dedup import Dedup
from .partition import Now, Partition
from .queue_headers import has_queue_headers, with_queue_headers

_MS = 1_000_000


def encoded_records(
    partition: Partition, batch: Buffer, now: Now, *, limits: LimitsConfig
) -> Encoded:
    """Returns a record batch as it is stored. MalformedBatch, ChecksumMismatch, UnsupportedFormat, TooLarge.

    Refused: a header for the queue says what there is not.
    """
    view = memoryview(batch)
    header = read_header(view)
    if header.is_transactional:
        raise MalformedBatch("a transactional batch outside of a transaction")
    records = records_of(header, view, size_max=limits.batch_bytes_max)
    records.check_limits(limits)
    is_for_queue = has_queue_headers(records.header_names)
    is_kept = not is_for_queue and not _wants_columns(partition.config)
    if is_kept and is_faithful(header, records):
        return keep_verbatim(header, view, records)
    columns = records.columns(now_ns=now.wall_ns)
    if is_for_queue:
        columns = with_queue_headers(columns, now.wall_ns)
    found = encode(columns, compression=header.compression, limits=limits, marks=header.marks)
    ttl_ms = partition.config.ttl_ms
    if ttl_ms != OFF:
        expires_at = now.wall_ns + ttl_ms * _MS
        found = expiring(found, expires_at, size_max=limits.batch_bytes_max)
    if columns.idempotency_keys is None:
        return found
    return _without_known(found, columns, partition.machine.dedup, now)


def _wants_columns(config: TopicConfig) -> bool:
    return (
        config.kafka_storage is KafkaStorage.COLUMNAR
        or config.ttl_ms != OFF
        or config.cleanup is Cleanup.COMPACT
    )


def _without_known(encoded: Encoded, columns: Columns, dedup: Dedup, now: Now) -> Encoded:
    """Returns the batch without records whose idempotency key is known. Their offsets stay empty.

    So the batch is one step of the log, and the producer's sequence goes on behind all of its records. One that the
    producer sends again is empty by then, and recognised by its sequence all the same.
    """
    seen: set[bytes] = set()
    is_new = np.ones(encoded.head.message_count, dtype=np.bool_)
    for index, key in enumerate(columns.idempotency_keys or ()):
        if key and (key in seen or dedup.find(key, now.wall_ns) is not None):
            is_new[index] = False
        elif key:
            seen.add(key)
    if is_new.all():
        return encoded
    last_offset = encoded.head.last_offset
    return select(encoded.to_bytes(), encoded.head, is_new, last_offset=last_offset)
