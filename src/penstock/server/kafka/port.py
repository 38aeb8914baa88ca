"""Kafka's api keys on the binary port: each request decoded, carried out by its handler, its response encoded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...api.frames import RequestHeader
from ...errors import BadRequest, PenstockError, TooManyRequests
from ...model import Buffer
from ..binary.service import BinaryService, Pieces
from . import (
    classic,
    commits,
    consumer_groups,
    fetch,
    metadata,
    offsets,
    produce,
    sasl,
    share_groups,
    topics,
    transactions,
)
from .converted import ConvertedBatches
from .errors import Code, outcome_of
from .fetch_sessions import FetchSessions
from .members import KafkaMembers
from .schema import REQUESTS, RESPONSES, Schema
from .session import KafkaSession, KafkaState
from .wire import Reader, TooManyItems, Values, decode_request, encode_response

if TYPE_CHECKING:
    from ..binary.connection import Connection

Handle = Callable[[KafkaSession, Values], Awaitable[Values | bytes | None]]

_PRODUCE, _FETCH = 0, 1
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
# What a client may ask before it has shown a key.
_OPEN = (_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE)
_NO_TAGS = b"\0"
# A client over its rate waits this long at most for its turn; beyond that its connection ends.
_THROTTLE_S_MAX = 10.0
# To decode or encode so many items takes some milliseconds.
_ITEMS_AT_ONCE = 500

HANDLERS: Mapping[int, Handle] = {
    0: produce.produce,
    _FETCH: fetch.fetch,
    2: offsets.list_offsets,
    3: metadata.metadata,
    8: commits.offset_commit,
    9: commits.offset_fetch,
    10: metadata.find_coordinator,
    11: classic.join_group,
    12: classic.heartbeat,
    13: classic.leave_group,
    14: classic.sync_group,
    15: classic.describe_groups,
    16: classic.list_groups,
    _SASL_HANDSHAKE: sasl.handshake,
    _API_VERSIONS: metadata.api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: topics.delete_records,
    22: produce.init_producer_id,
    23: offsets.offset_for_leader_epoch,
    24: transactions.add_partitions,
    25: transactions.add_offsets,
    26: transactions.end,
    28: transactions.offset_commit,
    32: topics.describe_configs,
    33: topics.alter_configs,
    _SASL_AUTHENTICATE: sasl.authenticate,
    37: topics.create_partitions,
    42: classic.delete_groups,
    44: topics.incremental_alter_configs,
    60: metadata.describe_cluster,
    68: consumer_groups.heartbeat,
    69: consumer_groups.describe,
    76: share_groups.heartbeat,
    77: share_groups.describe,
    78: share_groups.fetch,
    79: share_groups.acknowledge,
}


class KafkaServer:
    """Implements `KafkaPort` for all connections of one service."""

    def __init__(self, service: BinaryService) -> None:
        self._service = service
        self._state = KafkaState(
            ConvertedBatches(), KafkaMembers(), transactions.ProducerConnections(), FetchSessions()
        )
        service.shared.watch(self._state.members.forget_missed)
        self._sessions: dict[Connection, KafkaSession] = {}

    def forget(self, connection: "Connection") -> None:
        session = self._sessions.pop(connection, None)
        if session is not None and session.fetch_session is not None:
            self._state.fetch_sessions.forget(session.fetch_session)

    def is_refusable(self, key: int, version: int) -> bool:
        """Whether a response can say that nothing of its request was looked at."""
        schema = REQUESTS.get(key)
        return schema is not None and _has_error_code(key, version)

    async def answer(
        self,
        header: RequestHeader,
        body: memoryview,
        connection: "Connection",
        refusal: PenstockError | None = None,
    ) -> Pieces | None:
        """The response behind its correlation; None if the client wants none. A Produce may be refused already.

        BadRequest: no such request is served in this version, or the bytes are none. Unauthenticated. Whatever is
        raised ends the connection.
        """
        key, traffic = header.api_key, self._service.traffic
        name = REQUESTS[key].name if key in REQUESTS else "unknown"
        try:
            pieces, outcome = await self._answered(header, body, connection, refusal)
        except Exception:
            traffic.count(name, "closed")
            raise
        traffic.count(name, outcome)
        return pieces

    async def _answered(
        self,
        header: RequestHeader,
        body: memoryview,
        connection: "Connection",
        refusal: PenstockError | None,
    ) -> tuple[Pieces | None, str]:
        """The response, and its outcome for metrics."""
        key, version, client_id = header.api_key, header.version, header.client_id
        session = self._sessions.get(connection)
        if session is None:
            session = KafkaSession(self._service, connection, self._state)
            self._sessions[connection] = session
        session.client_id = client_id
        schema = REQUESTS.get(key)
        if schema is None:
            raise BadRequest(f"Kafka's api key {key} is not served")
        if not schema.first <= version <= schema.last:
            if key != _API_VERSIONS:
                raise BadRequest(
                    f"{schema.name} {schema.first} to {schema.last} is served, not {version}"
                )
            # A client of the future: it goes on with a version that it is told of here.
            found: Values = {"error_code": Code.UNSUPPORTED_VERSION}
            told = found | {"api_keys": metadata.served_versions()}
            return [*encode_response(key, 0, told)], outcome_of(told)
        if key not in _OPEN:
            session.require_key()
            await _turn(session)
        request: Values | None = None
        values: Values | bytes | None = {"error_code": Code.INVALID_REQUEST}
        if refusal is None or key == _PRODUCE:
            try:
                request = await _decoded(session, key, version, without_tags(schema, version, body))
            except TooManyItems:
                if not _has_error_code(key, version):
                    raise
        if request is not None:
            request["version"] = version
            await session.driver.give_way()
            if refusal is None:
                values = await HANDLERS[key](session, request)
            else:
                values = produce.refuse(request, refusal)
        if values is None:
            return None, outcome_of({})
        if isinstance(values, bytes):
            return [values], outcome_of({})
        await session.driver.give_way()
        pieces, outcome = await _encoded(session, key, version, values)
        # The response to ApiVersions comes before client and broker have agreed on anything.
        if version >= schema.flexible and key != _API_VERSIONS:
            pieces.insert(0, _NO_TAGS)
        if key == _FETCH and request is not None:
            fetch.note_response(session, request, values, pieces)
        return [*pieces], outcome


async def _decoded(session: KafkaSession, key: int, version: int, body: Buffer) -> Values:
    """A request. One of many items in a thread, from which the loop gets the interpreter every 5 ms."""
    with suppress(TooManyItems):
        return decode_request(key, version, body, _ITEMS_AT_ONCE)
    return await session.driver.in_thread(partial(decode_request, key, version, body))


async def _encoded(
    session: KafkaSession, key: int, version: int, values: Values
) -> tuple[list[Buffer], str]:
    """A response, and its outcome. One of many items in a thread, as `_decoded`."""

    def encoded() -> tuple[list[Buffer], str]:
        return encode_response(key, version, values), outcome_of(values)

    if _has_more_items(values, _ITEMS_AT_ONCE):
        return await session.driver.in_thread(encoded)
    return encoded()


def _has_more_items(values: Values, count: int) -> bool:
    """Whether there are more structs than so many in a response, or in those that it holds."""
    left, unseen = count, [values]
    while unseen and left >= 0:
        for value in unseen.pop().values():
            if isinstance(value, list) and value and not isinstance(value[0], Buffer):
                left -= len(value)
                if isinstance(value[0], dict) and left >= 0:
                    unseen += value
    return left < 0


def _has_error_code(key: int, version: int) -> bool:
    """Whether a response can say that nothing of its request was looked at."""
    return any(
        field.name == "error_code" and field.first <= version <= field.last
        for field in RESPONSES[key].fields
    )


async def _turn(session: KafkaSession) -> None:
    """Return when the client is below its rate. TooManyRequests: it is too far above it."""
    waited_s = 0.0
    while True:
        try:
            session.admit()
        except TooManyRequests as refusal:
            wait_s = max(0.01, float(str(refusal.fields.get("retry_after_ms", 100))) / 1000)
            waited_s += wait_s
            if waited_s > _THROTTLE_S_MAX:
                raise
            await asyncio.sleep(wait_s)
        else:
            return


def without_tags(schema: Schema, version: int, body: memoryview) -> memoryview:
    """The body behind the tagged fields that end a flexible header; none of them means anything to us."""
    if version < schema.flexible:
        return body
    reader = Reader(body)
    for _ in range(reader.count_items(reader.uvarint())):
        reader.uvarint()
        reader.take(reader.uvarint())
    return body[reader.position :]
