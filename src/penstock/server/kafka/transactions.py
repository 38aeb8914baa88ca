"""Transactions of Kafka's clients: sessions of producers, partitions and offsets that take part, and the end.

These clients keep their epoch from one transaction to the next, and EndTxn names no transaction. So an EndTxn that the
network delivers late could end the next one; it is refused if the producer has spoken on a newer connection since.
"""

from collections import OrderedDict

from ...api.transaction_answers import StagedOffset, StageOffsets
from ...api.transactions import (
    BeginTransaction,
    EndTransaction,
    InitProducer,
    ProducerSession,
    StageRecords,
)
from ...errors import (
    Forbidden,
    NotFound,
    PenstockError,
    ProducerFenced,
    Refused,
    ShareFull,
    TransactionEnded,
    TransactionInProgress,
)
from ...model import TopicPartition
from .commits import NOTE_CHARACTERS_MAX, asked_offsets, commit_reply
from .consumer_groups import member_name
from .errors import Code, code_of, group_code_of
from .session import KafkaSession
from .wire import Values

# No record of a staged batch has an offset yet: added to it, no index of a record comes near one.
STAGED_OFFSET = -(1 << 62)
_PRODUCERS_KEPT = 10_000
# From this version of the requests on, clients know PRODUCER_FENCED.
_KNOWS_FENCED = 2


class ProducerConnections:
    """The newest connection on which each transactional producer has asked for something, by number.

    Counted for each key: a request of a key that does not own the producer is refused, and must not make those of its
    owner late.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._count = 0

    def next_number(self) -> int:
        self._count += 1
        return self._count

    def note(self, key: str, producer_id: int, number: int) -> None:
        producer = key, producer_id
        self._newest[producer] = max(number, self._newest.pop(producer, 0))
        if len(self._newest) > _PRODUCERS_KEPT:
            self._newest.popitem(last=False)

    def is_late(self, key: str, producer_id: int, number: int) -> bool:
        """Whether a request comes on an older connection than the last one of its producer."""
        return number < self._newest.get((key, producer_id), 0)


async def init_producer(session: KafkaSession, request: Values) -> Values:
    """A session of the producer of a name; or, if the client says which it had, of that one only."""
    known, epoch = request["producer_id"], request["producer_epoch"]
    former = ProducerSession(known, epoch) if known >= 0 else None
    name, timeout_ms = request["transactional_id"], request["transaction_timeout_ms"]
    try:
        found = await session.execute(InitProducer(name, timeout_ms, former, keeps_epoch=True))
    except ShareFull as error:
        return _no_session(_code_of(error, request["version"]))
    except Refused as error:
        limit = error.fields.get("limit")
        if limit is not None and timeout_ms > int(str(limit)):
            return _no_session(Code.INVALID_TRANSACTION_TIMEOUT)
        return _no_session(_code_of(error, request["version"]))
    except PenstockError as error:
        return _no_session(_code_of(error, request["version"]))
    session.producers.note(session.principal.key_id, found.producer_id, session.number)
    return {"producer_id": found.producer_id, "producer_epoch": found.epoch}


def _no_session(code: Code) -> Values:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


async def add_partitions(session: KafkaSession, request: Values) -> Values:
    """All of the partitions take part from now on, or none."""
    topics = request["v3and_below_topics"]
    partitions = tuple(
        TopicPartition(topic["name"], number) for topic in topics for number in topic["partitions"]
    )
    producer = request["v3and_below_producer_id"], request["v3and_below_producer_epoch"]
    code = await _begin(session, BeginTransaction(*producer, partitions), request["version"])
    return {
        "results_by_topic_v3and_below": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": code}
                    for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }


async def add_offsets(session: KafkaSession, request: Values) -> Values:
    """The transaction begins; the group's partitions take part with their offsets."""
    command = BeginTransaction(request["producer_id"], request["producer_epoch"])
    return {"error_code": await _begin(session, command, request["version"])}


async def _begin(session: KafkaSession, command: BeginTransaction, version: int) -> Code:
    session.producers.note(session.principal.key_id, command.producer_id, session.number)
    try:
        await session.execute(command)
    except PenstockError as error:
        return _code_of(error, version)
    return Code.NONE


async def offset_commit(session: KafkaSession, request: Values) -> Values:
    """All of the offsets become the group's with the commit, or none."""
    offsets = tuple([StagedOffset(*one) for one in asked_offsets(request)])
    generation = request["generation_id"]
    command = StageOffsets(
        request["producer_id"],
        request["producer_epoch"],
        request["group_id"],
        offsets,
        member=member_name(request["member_id"]),
        generation=generation if generation >= 0 else None,
        instance=request["group_instance_id"] or "",
    )
    code = Code.NONE
    if any(len(one.note or "") > NOTE_CHARACTERS_MAX for one in offsets):
        code = Code.OFFSET_METADATA_TOO_LARGE
    else:
        try:
            await session.execute(command)
        except (ProducerFenced, TransactionInProgress, TransactionEnded) as error:
            code = _code_of(error, request["version"])
        except PenstockError as error:
            code = group_code_of(error)
    return commit_reply(request, [code] * len(offsets))


async def end(session: KafkaSession, request: Values) -> Values:
    producer_id, epoch = request["producer_id"], request["producer_epoch"]
    connection = session.principal.key_id, producer_id, session.number
    if session.producers.is_late(*connection):
        return {"error_code": Code.INVALID_TXN_STATE}
    session.producers.note(*connection)
    try:
        await session.execute(EndTransaction(producer_id, epoch, is_commit=request["committed"]))
    except PenstockError as error:
        return {"error_code": _code_of(error, request["version"])}
    return {"error_code": Code.NONE}


async def stage(session: KafkaSession, topic: str, partition: int, records: bytes) -> int:
    """Stage a record batch; returns the offset that the producer is told."""
    await session.execute(StageRecords(topic, partition, records))
    return STAGED_OFFSET


def staging_code_of(error: PenstockError) -> Code:
    """The code of an error that was met with a record batch of a transaction."""
    is_of_another = isinstance(error, Forbidden) and not error.fields.get("topic")
    return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_of_another else code_of(error)


def _code_of(error: PenstockError, version: int) -> Code:
    """The code of an error that was met with a transaction. One that was ended from outside has fenced its producer."""
    if isinstance(error, ProducerFenced) or (
        isinstance(error, TransactionEnded) and error.fields["reason"]
    ):
        is_known = version >= _KNOWS_FENCED
        return Code.PRODUCER_FENCED if is_known else Code.INVALID_PRODUCER_EPOCH
    if isinstance(error, NotFound) and error.fields.get("kind") == "producer":
        return Code.INVALID_PRODUCER_ID_MAPPING
    if isinstance(error, Forbidden) and not error.fields.get("topic"):
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return code_of(error)
