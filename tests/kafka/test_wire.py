"""Kafka's messages as bytes: every version against kio, in both directions; and hostile bytes."""

import random
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.errors import BadRequest
from penstock.server.kafka.schema import REQUESTS, RESPONSES, Field, Schema
from penstock.server.kafka.wire import ITEMS_MAX, decode_request, encode_response
from tests.kafka.client_wire import decode_response, encode_request

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    pytest.param(kind, schema, version, id=f"{schema.name}-{kind}-{version}")
    for kind, table in (("request", REQUESTS), ("response", RESPONSES))
    for schema in table.values()
    for version in range(schema.first, schema.last + 1)
]


def value_for(field: Field, version: int, chance: random.Random) -> Any:
    if version >= field.nullable and chance.random() < 0.3:
        return None
    if field.kind.startswith("[]"):
        item = field._replace(kind=field.kind[2:], nullable=32767)
        return [value_for(item, version, chance) for _ in range(chance.randrange(4))]
    match field.kind:
        case "struct":
            return values_for(field.fields, version, chance)
        case "string":
            return chance.choice(["", "a", "orders", "größe", "x" * 300])
        case "bytes" | "records":
            return chance.choice([b"", b"abc", bytes(200), bytes(5000)])
        case "uuid":
            return chance.randbytes(16)
        case "bool":
            return chance.random() < 0.5
    if field.name.endswith("error_code"):
        return chance.choice([0, 3, 35])
    return chance.randrange(127) if field.kind == "int8" else chance.randrange(20_000)


def values_for(fields: tuple[Field, ...], version: int, chance: random.Random) -> dict[str, Any]:
    return {
        one.name: value_for(one, version, chance)
        if one.first <= version <= one.last
        else one.default_value()
        for one in fields
    }


def encoded(kind: str, schema: Schema, version: int, values: dict[str, Any]) -> bytes:
    if kind == "request":
        return encode_request(schema.key, version, values)
    return b"".join(encode_response(schema.key, version, values))


@pytest.mark.parametrize(("kind", "schema", "version"), CASES)
def test_every_version_reads_and_writes_as_kio_does(
    kind: str, schema: Schema, version: int
) -> None:
    load = load_request_schema if kind == "request" else load_response_schema
    entity = load(schema.key, version)
    decode = decode_request if kind == "request" else decode_response
    for seed in range(12):
        values = values_for(schema.fields, version, random.Random(seed))
        data = encoded(kind, schema, version, values)
        read, size = entity_reader(entity)(data, 0)
        assert size == len(data)
        again = BytesIO()
        entity_writer(entity)(again, read)
        assert again.getvalue() == data
        assert decode(schema.key, version, data) == values


@pytest.mark.parametrize(("kind", "schema", "version"), CASES)
def test_a_message_that_is_cut_is_refused(kind: str, schema: Schema, version: int) -> None:
    decode = decode_request if kind == "request" else decode_response
    data = encoded(kind, schema, version, values_for(schema.fields, version, random.Random(5)))
    for cut in range(0, len(data), max(1, len(data) // 200)):
        with pytest.raises(BadRequest):
            decode(schema.key, version, data[:cut])
    assert decode(schema.key, version, data + b"more") == decode(schema.key, version, data)


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_noise_is_a_request_or_refused(key: int) -> None:
    schema, chance = REQUESTS[key], random.Random(key)
    for version in range(schema.first, schema.last + 1):
        good = encoded("request", schema, version, values_for(schema.fields, version, chance))
        for _ in range(60):
            data = bytearray(good or b"\0\0\0")
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            try:
                decode_request(key, version, data)
            except BadRequest:
                continue


def test_an_array_that_says_more_items_than_bytes_is_refused() -> None:
    with pytest.raises(BadRequest, match="2147483647 items"):
        decode_request(3, 1, b"\x7f\xff\xff\xff")


def test_a_request_has_a_most_of_items_in_all_its_arrays() -> None:
    names = [{"name": "a"}] * ITEMS_MAX
    assert len(decode_request(3, 1, encode_request(3, 1, {"topics": names}))["topics"])
    data = encode_request(3, 1, {"topics": [*names, {"name": "a"}]})
    with pytest.raises(BadRequest):
        decode_request(3, 1, data)


def test_tags_that_are_not_known_are_skipped() -> None:
    plain = encode_request(3, 9, {"topics": None})
    assert plain.endswith(b"\0")
    with_tag = plain[:-1] + b"\x01\x63\x02hi"
    assert decode_request(3, 9, with_tag) == decode_request(3, 9, plain)


def test_the_tables_are_what_the_tool_makes() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import json

    import kafka_tables

    messages = json.loads(kafka_tables.FACTS.read_text())
    for kind in ("request", "response"):
        made = kafka_tables.write_tables(messages, kind)
        assert (kafka_tables.TABLES / f"{kind}_tables.py").read_text() == made
