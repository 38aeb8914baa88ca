"""Producing: a record batch for each partition, stored by one command."""

from secrets import randbits

from ...api.publish import PublishRecords
from ...errors import BadRequest, PenstockError, SchemaViolation
from .errors import Code, code_of
from .session import KafkaSession
from .transactions import init_producer, stage, staging_code_of
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


def refuse(request: Values, error: PenstockError) -> Values | None:
    """The answer to a request that was not carried out, for each of its partitions. BadRequest: it wants none."""
    if request["acks"] == _NO_ANSWER:
        raise BadRequest(f"produce without acks: {error}")
    refused = _refused(code_of(error), str(error))
    topics = [(topic["name"], topic["partition_data"]) for topic in request["topic_data"]]
    return {
        "responses": [
            {
                "name": name,
                "partition_responses": [{"index": part["index"], **refused} for part in parts],
            }
            for name, parts in topics
        ]
    }


async def _store(session: KafkaSession, topic: str, part: Values, request: Values) -> Values:
    acks = request["acks"]
    if acks not in _ACKS:
        return _refused(Code.INVALID_REQUIRED_ACKS, f"acks are 0, 1 or -1, not {acks}")
    if request["transactional_id"] is not None and acks != _ALL:
        reason = f"acks of a transaction are -1, not {acks}"
        return _refused(Code.INVALID_REQUIRED_ACKS, reason)
    try:
        if request["transactional_id"] is not None:
            staged = await stage(session, topic, part["index"], part["records"] or b"")
            return {"base_offset": staged}
        command = PublishRecords(topic, part["index"], part["records"] or b"")
        stored = (await session.execute(command, is_synced=acks == _ALL)).stored
    except SchemaViolation as error:
        wrong = {"batch_index": error.fields["index"], "batch_index_error_message": str(error)}
        return {**_refused(code_of(error), str(error)), "record_errors": [wrong]}
    except PenstockError as error:
        is_plain = request["transactional_id"] is None
        return _refused(code_of(error) if is_plain else staging_code_of(error), str(error))
    return {"base_offset": stored[0].offset}


def _refused(code: Code, reason: str) -> Values:
    return {"error_code": code, "base_offset": -1, "error_message": reason}


async def init_producer_id(session: KafkaSession, request: Values) -> Values:
    """A new identity, or the next epoch of one. Ids are drawn so that no two producers get the same."""
    if request["transactional_id"] is not None:
        return await init_producer(session, request)
    known, epoch = request["producer_id"], request["producer_epoch"]
    if known >= 0 and 0 <= epoch < _EPOCH_MAX - 1:
        return {"producer_id": known, "producer_epoch": epoch + 1}
    return {"producer_id": randbits(_PRODUCER_ID_BITS), "producer_epoch": 0}
