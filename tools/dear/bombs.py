"""Requests that types do not tell of: small ones that become large, and large ones that are refused again and again."""

import json
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from dear.binary import OWN
from dear.kafka import kafka_frame, records
from dear.names import BIG, SUBJECT, Names
from dear.requests import DearRequest
from dear.wires import command_frame
from penstock.api.schemas import CheckCompatibility, FindSchema, NewSchema, RegisterSchema
from penstock.server.kafka.schema import REQUESTS
from penstock.server.kafka.wire import Writer, encoder_of

# Of a body or frame of 32 MiB most is one field.
_REFUSED_BYTES = 26 << 20
_REFUSED_TIMES = 40
_BEYOND_BYTES = 33 << 20
_BOMB_BYTES = 200 << 20
_PRODUCE, _PRODUCE_VERSION = 0, 9
_COMPRESSIONS = {"gzip": 1, "lz4": 3, "zstd": 4}
_PATTERN_TIMES = 2000
_DOUBLINGS = 24


def bombs(names: Names) -> Iterator[DearRequest]:
    yield from _refused()
    yield from _schemas()
    for name, compression in _COMPRESSIONS.items():
        yield DearRequest(
            port="kafka",
            family="bombs",
            name=f"Produce: a batch of {name} that unpacks to {_BOMB_BYTES >> 20} MiB",
            make=partial(_produced, compression),
            api=(_PRODUCE, _PRODUCE_VERSION),
            times=5,
        )
    yield DearRequest(
        port="http",
        family="bombs",
        name="POST /topics/{topic}/messages: 23 MB of small values",
        make=partial(_large_json, names),
    )


def _refused() -> Iterator[DearRequest]:
    """What a key that may not even publish sends again and again."""
    for name, size in (("refused", _REFUSED_BYTES), ("beyond the largest frame", _BEYOND_BYTES)):
        yield DearRequest(
            port="binary",
            family="bombs",
            name=f"PublishValues: {size >> 20} MiB {name}, {_REFUSED_TIMES} times",
            make=partial(_large_values, size),
            times=_REFUSED_TIMES if size == _REFUSED_BYTES else 1,
            role="readonly",
        )
        yield DearRequest(
            port="http",
            family="bombs",
            name=f"POST /topics/{{topic}}/messages: {size >> 20} MiB {name}",
            make=partial(_large_body, size),
            times=_REFUSED_TIMES // 4,
            role="readonly",
        )


def _large_values(size: int) -> bytes:
    count = size // (1 << 20)
    packed = msgspec.msgpack.encode({"topic": BIG, "values": [b"x" * (1 << 20)] * count})
    return command_frame("PublishValues", packed)


def _large_body(size: int) -> bytes:
    return _posted(f"/topics/{BIG}/messages", b'{"messages":[{"value":"%s"}]}' % (b"x" * size))


def _large_json(names: Names) -> bytes:
    count = min(names.sizes.items * 10, 1_200_000)
    return _posted(
        f"/topics/{BIG}/messages", b'{"messages":[%s]}' % b",".join([b'{"value":"1234"}'] * count)
    )


def _posted(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _produced(compression: int) -> bytes:
    part = {"index": 0, "records": records(1, _BOMB_BYTES, compression)}
    writer = Writer()
    encoder_of(REQUESTS[_PRODUCE], _PRODUCE_VERSION)(
        writer, {"acks": -1, "topic_data": [{"name": BIG, "partition_data": [part]}]}
    )
    return kafka_frame(REQUESTS[_PRODUCE], _PRODUCE_VERSION, b"".join(writer.pieces))


# Schemas.


def _schemas() -> Iterator[DearRequest]:
    """Schemas whose compilation, or comparison, is dear: for each command that takes one."""
    for title, language, make in (
        ("patterns that repeat in repetitions", "JSON", _patterns),
        ("one pattern of a million characters", "JSON", _long_pattern),
        ("records that double", "AVRO", _doubling_records),
        ("references that double", "JSON", _doubling_references),
        ("arrays in arrays", "AVRO", _deep_arrays),
    ):
        for command in (CheckCompatibility, RegisterSchema, FindSchema):
            yield DearRequest(
                port="binary",
                family="schemas",
                name=f"{command.__name__}: {title}",
                make=partial(_schema_frame, command, language, make),
            )
        yield DearRequest(
            port="http",
            family="schemas",
            name=f"POST /compatibility/subjects/{{subject}}/versions: {title}",
            make=partial(_schema_posted, language, make),
        )


def _schema_frame(
    command: type[CheckCompatibility | RegisterSchema | FindSchema],
    language: str,
    make: Callable[[], str],
) -> bytes:
    subject = OWN if command is RegisterSchema else SUBJECT
    packed = msgspec.msgpack.encode({"subject": subject, "schema": NewSchema(language, make())})
    return command_frame(command.__name__, packed)


def _schema_posted(language: str, make: Callable[[], str]) -> bytes:
    body = json.dumps({"schema": make(), "schemaType": language}).encode()
    return _posted(f"/compatibility/subjects/{SUBJECT}/versions", body)


def _patterns() -> str:
    properties = {
        f"f{number}": {"type": "string", "pattern": f"(a{{1,{number % 900 + 90}}}){{1,99}}$"}
        for number in range(_PATTERN_TIMES)
    }
    return json.dumps({"type": "object", "properties": properties})


def _long_pattern() -> str:
    return json.dumps({"type": "string", "pattern": "(a|b)?" * 170_000})


def _doubling_records() -> str:
    """Each record has two fields of the one before: all values together are 2^n."""
    kind: object = "int"
    for number in range(_DOUBLINGS):
        first = {"name": "a", "type": kind}
        second = {"name": "b", "type": f"R{number - 1}" if number else "int"}
        kind = {"type": "record", "name": f"R{number}", "fields": [first, second]}
    return json.dumps(kind)


def _doubling_references() -> str:
    definitions: dict[str, object] = {"d0": {"type": "integer"}}
    for number in range(1, _DOUBLINGS):
        reference = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"properties": {"a": reference, "b": reference}}
    return json.dumps({"$defs": definitions, "$ref": f"#/$defs/d{_DOUBLINGS - 1}"})


def _deep_arrays() -> str:
    kind: object = "int"
    for _ in range(400):
        kind = {"type": "array", "items": kind}
    return json.dumps(kind)
