"""Record batches of Kafka: stored as they came, or as columns where more is asked of a message than a record says."""

from ...codec import encode
from ...codec.kafka_header import read_header
from ...codec.verbatim import is_faithful, keep_verbatim, records_of
from ...config import OFF, Cleanup, KafkaStorage, LimitsConfig, TopicConfig
from ...errors import MalformedBatch
from ...model import Buffer
from .batches import CheckedBatch, checked_batch
from .partition import Now
from .queue_headers import has_queue_headers, with_queue_headers


def checked_records(
    batch: Buffer,
    config: TopicConfig,
    now: Now,
    limits: LimitsConfig,
    *,
    is_transactional: bool = False,
) -> CheckedBatch:
    """Returns a record batch as a topic stores it. MalformedBatch, ChecksumMismatch, UnsupportedFormat, TooLarge.

    One of a transaction is stored as columns: readers know of no transactions. Refused: a header for the queue says
    what there is not.
    """
    view = memoryview(batch)
    header = read_header(view)
    if header.is_transactional and not is_transactional:
        raise MalformedBatch("a transactional batch outside of a transaction")
    if is_transactional and not (header.is_transactional and header.producer_id >= 0):
        raise MalformedBatch("a batch of a transaction says so, and has its producer's id")
    records = records_of(header, view, size_max=limits.batch_bytes_max)
    records.check_limits(limits)
    is_for_queue = has_queue_headers(records.header_names)
    is_kept = not is_for_queue and not _wants_columns(config)
    if is_kept and is_faithful(header, records):
        return CheckedBatch(keep_verbatim(header, view, records))
    columns = records.columns(now_ns=now.wall_ns)
    if is_for_queue:
        columns = with_queue_headers(columns, now.wall_ns)
    found = encode(columns, compression=header.compression, limits=limits, marks=header.marks)
    return checked_batch(found.to_bytes(), limits) if is_for_queue else CheckedBatch(found)


def _wants_columns(config: TopicConfig) -> bool:
    return (
        config.kafka_storage is KafkaStorage.COLUMNAR
        or config.ttl_ms != OFF
        or config.cleanup is Cleanup.COMPACT
    )
