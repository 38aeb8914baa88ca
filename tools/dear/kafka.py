"""The dearest requests of Kafka's api keys, made from the tables of its messages.

The newest version of each api key is asked in every form, the others in two: their handler is the same.
"""

import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any

from dear.binary import OWN, PREPARE
from dear.names import BESIDE, Names
from dear.requests import FRAME_BYTES_MAX, DearRequest, Prepare
from dear.values import ALL, LARGE_BYTES
from penstock.server.kafka.metadata import topic_uuid
from penstock.server.kafka.port import HANDLERS
from penstock.server.kafka.schema import REQUESTS, Field, Schema
from penstock.server.kafka.wire import Encode, Writer, encoder_of, items_max

_SHORT_BYTES_MAX = (1 << 15) - 1
_FETCH, _PRODUCE = 1, 0
_FIXED_ZERO = {"bool": False, "uuid": bytes(16), "float64": 0.0}


class KafkaForm(Enum):
    """What a request is full of."""

    NAMES = "lists of names that exist"
    INNER_SAME = "one partition again and again"
    SAME = "lists of one name"
    ABSENT = "lists of names that do not exist"
    INNER = "one item whose lists are long"
    LARGE = "the largest texts and bytes"
    BEYOND = "more than the bounds allow"


_OF_ONE = frozenset({KafkaForm.SAME, KafkaForm.INNER_SAME, KafkaForm.BEYOND})
_OLDER = (KafkaForm.NAMES, KafkaForm.INNER_SAME)
_TOPICS = frozenset({"topic", "name", "topics", "topic_names", "subscribed_topic_names"})
_GROUPS = frozenset({"group_id", "groups", "group_ids", "groups_names", "coordinator_keys", "key"})
_PLACES = frozenset({"partition", "partition_index", "partitions", "partition_indexes", "index"})
_NUMBERS: Mapping[str, int] = {
    **dict.fromkeys(("min_bytes", "max_bytes", "partition_max_bytes", "max_records"), ALL),
    **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), -1),
    **dict.fromkeys(("session_epoch", "replica_id", "current_leader_epoch"), -1),
    **dict.fromkeys(("member_epoch", "share_session_epoch"), 0),
    "acks": -1,
    "max_wait_ms": 500,
    "timeout_ms": 60_000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1000,
    "transaction_timeout_ms": 60_000,
    "timestamp": 1,
    "resource_type": 2,
    "replication_factor": 1,
    "batch_size": 1000,
}
_OF_OWN: Mapping[str, Any] = {"name": OWN, "topic_names": OWN, "resource_name": OWN}
_OF_OWN_GROUP: Mapping[str, Any] = {"group_id": OWN}
_OF_CLASSIC: Mapping[str, Any] = {
    "group_id": "classic",
    "member_id": "",
    "protocol_type": "consumer",
}
_OF_CONSUMERS: Mapping[str, Any] = {
    "group_id": "consumers",
    "subscribed_topic_regex": "(.*)*(.*)*(.*)*x",
}
_CONFIGURING = ("DeleteTopics", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs")
# What the tables do not say: what is made anew, changed or destroyed is the judge's own.
_OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "CreateTopics": {"name": OWN, "num_partitions": 1000, "assignments": [], "configs": []},
    **dict.fromkeys(_CONFIGURING, _OF_OWN),
    "CreatePartitions": {"name": OWN, "count": 200, "assignments": None},
    "DeleteGroups": {"groups_names": OWN},
    **dict.fromkeys(("OffsetCommit", "TxnOffsetCommit", "AddOffsetsToTxn"), _OF_OWN_GROUP),
    **dict.fromkeys(("JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat"), _OF_CLASSIC),
    **dict.fromkeys(("ConsumerGroupHeartbeat", "ShareGroupHeartbeat"), _OF_CONSUMERS),
    "InitProducerId": {"transactional_id": "producer-of-kafka"},
    "Produce": {"transactional_id": None},
    "SaslHandshake": {"mechanism": "PLAIN"},
}
_PREPARE: Mapping[str, Prepare] = {
    "CreateTopics": PREPARE["CreateTopic"],
    **dict.fromkeys((*_CONFIGURING, "CreatePartitions"), PREPARE["DeleteTopic"]),
    "DeleteGroups": PREPARE["CloseGroup"],
}


def kafka_requests(names: Names) -> Iterator[DearRequest]:
    """Every api key in every version."""
    for key in sorted(HANDLERS):
        schema = REQUESTS[key]
        for version in range(schema.last, schema.first - 1, -1):
            yield from _requests_of(schema, version, names)


def _requests_of(schema: Schema, version: int, names: Names) -> Iterator[DearRequest]:
    def sketch(form: KafkaForm, items: int) -> bytes:
        filler = Filler(names, schema, version, form, items=items, large=9)
        return _body(schema, version, filler)

    seen: set[bytes] = set()
    for form in KafkaForm if version == schema.last else _OLDER:
        made = sketch(form, 7)
        is_new = made not in seen
        if form is KafkaForm.BEYOND:
            is_new = sketch(form, 70) != made
        seen.add(made)
        if is_new:
            yield DearRequest(
                port="kafka",
                family=HANDLERS[schema.key].__module__.rpartition(".")[2],
                name=f"{schema.name} {version}: {form.value}",
                make=partial(_frame, schema, version, form, names),
                api=(schema.key, version),
                prepare=_PREPARE.get(schema.name),
            )


def _frame(schema: Schema, version: int, form: KafkaForm, names: Names) -> bytes:
    """A frame with as many items as Kafka's port takes, fewer if it would be too large."""
    most, large = items_max(schema.key), LARGE_BYTES
    items = 2 * most if form is KafkaForm.BEYOND else min(names.sizes.items, most)
    while True:
        filler = Filler(names, schema, version, form, items=items, large=large)
        frame = kafka_frame(schema, version, _body(schema, version, filler))
        if len(frame) <= FRAME_BYTES_MAX:
            return frame
        items, large = items // 2, large // 2


def kafka_frame(schema: Schema, version: int, body: bytes) -> bytes:
    tags = b"\0" if version >= schema.flexible else b""
    header = struct.pack(">hhih", schema.key, version, 7, 5) + b"judge" + tags
    return struct.pack(">i", len(header) + len(body)) + header + body


def _body(schema: Schema, version: int, filler: "Filler") -> bytes:
    writer = Writer()
    _encoder(schema.key, version)(writer, filler.values())
    return b"".join(writer.pieces)


@cache
def _encoder(key: int, version: int) -> Encode:
    return encoder_of(REQUESTS[key], version)


class Filler:
    """Makes the values of a message in one form."""

    def __init__(
        self,
        names: Names,
        schema: Schema,
        version: int,
        form: KafkaForm,
        *,
        items: int,
        large: int,
    ) -> None:
        self._names, self._schema, self._version, self._form = names, schema, version, form
        self._items = items
        self._large = large if version >= schema.flexible else min(large, _SHORT_BYTES_MAX)
        self._bytes = large
        self._overrides = _OVERRIDES.get(schema.name, {})

    def values(self) -> dict[str, Any]:
        return self._struct(self._schema.fields, self._items, 0)

    def _struct(self, fields: tuple[Field, ...], items: int, index: int) -> dict[str, Any]:
        there = self._there(fields)
        arrays = sum(field.kind.startswith("[]") for field in there)
        share = max(1, items // max(1, arrays))
        return {field.name: self._value(field, share, index) for field in there}

    def _there(self, fields: tuple[Field, ...]) -> list[Field]:
        return [field for field in fields if field.first <= self._version <= field.last]

    def _value(self, field: Field, items: int, index: int) -> Any:
        if field.name in self._overrides and not field.kind.startswith("[]string"):
            return self._overrides[field.name]
        if field.kind.startswith("[]"):
            return self._array(field, items)
        return self._scalar(field, field.kind, index)

    def _array(self, field: Field, items: int) -> list[Any]:
        """All items of a message are counted together, so those of arrays in arrays share what is left."""
        if self._form is KafkaForm.LARGE or items <= 1:
            return [self._item(field, 1, 0)]
        inner = [array for array in self._there(field.fields) if array.kind.startswith("[]")]
        is_inner = self._form in {KafkaForm.INNER, KafkaForm.INNER_SAME}
        if inner and is_inner:
            return [self._item(field, items - 1, 0)]
        count = items // (1 + self._depth(field))
        is_same = self._form in _OF_ONE
        if is_same:
            return [self._item(field, 1, 0)] * count
        return [self._item(field, 1, place) for place in range(count)]

    def _depth(self, field: Field) -> int:
        """How many items one item of an array has in its own arrays, if each of those has one."""
        inner = [array for array in self._there(field.fields) if array.kind.startswith("[]")]
        return sum(1 + self._depth(array) for array in inner)

    def _item(self, field: Field, items: int, index: int) -> Any:
        kind = field.kind.removeprefix("[]")
        return (
            self._struct(field.fields, items, index)
            if kind == "struct"
            else self._scalar(field, kind, index)
        )

    def _scalar(self, field: Field, kind: str, index: int) -> Any:
        if kind == "string":
            return self._text(field, index)
        if kind in {"bytes", "records"}:
            return self._blob(kind)
        if kind == "uuid":
            return self._uuid(index)
        if kind in _FIXED_ZERO:
            # Names that do not exist are checked, not made: a topic for each would fill the disk.
            return field.name == "validate_only" and self._form is KafkaForm.ABSENT
        if field.name in _PLACES:
            return 0 if self._form is KafkaForm.INNER_SAME else index % self._names.partitions
        return _NUMBERS.get(field.name, 0)

    def _text(self, field: Field, index: int) -> str | None:
        form, name = self._form, field.name
        override = self._overrides.get(name)
        if isinstance(override, str):
            return (
                override
                if index == 0 or form in {KafkaForm.SAME, KafkaForm.BEYOND}
                else f"{OWN}-{index}"
            )
        if form is KafkaForm.ABSENT:
            return f"absent-{index}"
        if name in _TOPICS or name == "resource_name":
            pool = (BESIDE,) if form is KafkaForm.INNER_SAME else self._names.topics
        elif name in _GROUPS:
            pool = self._names.groups
        elif form is KafkaForm.LARGE:
            return "x" * self._large
        elif field.nullable <= self._version:
            return None
        else:
            return "range"
        return pool[0] if form in {KafkaForm.SAME, KafkaForm.BEYOND} else pool[index % len(pool)]

    def _blob(self, kind: str) -> bytes:
        if kind == "records":
            return records(10_000, 1000) if self._form is KafkaForm.LARGE else records(1, 10)
        return b"x" * (self._bytes if self._form is KafkaForm.LARGE else 100)

    def _uuid(self, index: int) -> bytes:
        ids = self._names.topic_ids
        if self._form is KafkaForm.ABSENT:
            return (1 << 100 | index).to_bytes(16, "big")
        is_same = self._form in _OF_ONE
        return topic_uuid(ids[0] if is_same else ids[index % len(ids)])


@cache
def records(count: int, size: int, compression: int = 0) -> bytes:
    """A record batch of a Kafka producer; `compression` is 1 for gzip, 3 for lz4, 4 for zstd."""
    from aiokafka.record.default_records import (  # type: ignore[import-untyped]  # It has no types.
        DefaultRecordBatchBuilder,
    )

    builder = DefaultRecordBatchBuilder(
        2,
        compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2 * count * (size + 100),
    )
    for place in range(count):
        builder.append(place, 1_700_000_000_000, None, b"\0" * size, [])
    return bytes(builder.build())
