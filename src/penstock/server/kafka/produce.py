"""Producing: record batches become ours, and are stored with the marks of their producer."""

from secrets import randbits

import numpy as np
from msgspec.structs import replace as replaced

from ...api.publish import PublishBatch
from ...codec import Columns, Marks, encode
from ...codec.kafka_batch import KafkaHeader, kafka_batches, kafka_columns
from ...config import LimitsConfig
from ...errors import BadRequest, MalformedBatch, PenstockError, SchemaViolation
from ...model import Buffer
from .errors import Code, code_of
from .queue_headers import with_queue_headers
from .session import KafkaSession
from .wire import Values

_NO_ANSWER = 0
_ALL = -1
_ACKS = (_NO_ANSWER, 1, _ALL)
_EPOCH_MAX = 0x7FFF
_PRODUCER_ID_BITS = 62


async def produce(session: KafkaSession, request: Values) -> Values | None:
    """Where each batch is. Without acks there is no answer, and an error closes the connection: BadRequest."""
    acks = request["acks"]
    responses = []
    for topic in request["topic_data"]:
        parts = []
        for part in topic["partition_data"]:
            found = await _store(session, topic["name"], part, request)
            if acks == _NO_ANSWER and found.get("error_code"):
                raise BadRequest(f"produce without acks: {found['error_message']}")
            parts.append({"index": part["index"], **found})
        responses.append({"name": topic["name"], "partition_responses": parts})
    return None if acks == _NO_ANSWER else {"responses": responses}


async def _store(session: KafkaSession, topic: str, part: Values, request: Values) -> Values:
    acks = request["acks"]
    if acks not in _ACKS:
        return _refused(Code.INVALID_REQUIRED_ACKS, f"acks are 0, 1 or -1, not {acks}")
    if request["transactional_id"] is not None:
        return _refused(Code.INVALID_REQUEST, "transactions are not served yet")
    first = -1
    try:
        for header, batch in kafka_batches(part["records"] or b""):
            if header.is_transactional:
                raise MalformedBatch("a transactional batch outside of a transaction")
            now_ns = session.driver.clock.now_ns()
            encoded = _encoded(header, batch, session.limits, now_ns)
            command = PublishBatch(topic, part["index"], encoded)
            stored = (await session.execute(command, is_synced=acks == _ALL)).stored
            first = stored[0].offset if first < 0 else first
        if first < 0:
            raise MalformedBatch("there is no batch")
    except SchemaViolation as error:
        wrong = {"batch_index": error.fields["index"], "batch_index_error_message": str(error)}
        return {**_refused(code_of(error), str(error)), "record_errors": [wrong]}
    except PenstockError as error:
        return _refused(code_of(error), str(error))
    return {"base_offset": first}


def _refused(code: Code, reason: str) -> Values:
    return {"error_code": code, "base_offset": -1, "error_message": reason}


def _encoded(header: KafkaHeader, batch: Buffer, limits: LimitsConfig, now_ns: int) -> bytes:
    """A batch of ours with the same records, stored as tightly as the producer sent it."""
    columns = kafka_columns(header, batch, size_max=limits.batch_bytes_max)
    columns = with_queue_headers(_timed(columns, now_ns), now_ns)
    marks = Marks()
    if header.producer_id >= 0:
        marks = Marks(False, header.producer_id, header.producer_epoch, header.base_sequence)
    return encode(columns, compression=header.compression, limits=limits, marks=marks).to_bytes()


def _timed(columns: Columns, now_ns: int) -> Columns:
    """The same with the time of arrival where the producer left it out."""
    times = np.atleast_1d(np.asarray(columns.timestamps, dtype=np.int64))
    if int(times.min()) > 0:
        return columns
    filled = np.where(times <= 0, np.int64(now_ns), times)
    return replaced(columns, timestamps=filled if len(filled) > 1 else now_ns)


async def init_producer_id(_session: KafkaSession, request: Values) -> Values:
    """A new identity, or the next epoch of one. Ids are drawn so that no two producers get the same."""
    if request["transactional_id"] is not None:
        return {"error_code": Code.INVALID_REQUEST}
    known, epoch = request["producer_id"], request["producer_epoch"]
    if known >= 0 and 0 <= epoch < _EPOCH_MAX - 1:
        return {"producer_id": known, "producer_epoch": epoch + 1}
    return {"producer_id": randbits(_PRODUCER_ID_BITS), "producer_epoch": 0}
