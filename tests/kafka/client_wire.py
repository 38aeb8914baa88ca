"""Kafka's messages as a client has them: requests as bytes, and responses from bytes."""

from functools import cache
from typing import Any

from penstock.server.kafka.schema import REQUESTS, RESPONSES
from penstock.server.kafka.wire import Decode, Encode, Reader, Writer, decoder_of, encoder_of


def encode_request(key: int, version: int, values: dict[str, Any]) -> bytes:
    writer = Writer()
    _request_encoder(key, version)(writer, values)
    return b"".join(writer.pieces)


def decode_response(key: int, version: int, data: bytes | memoryview) -> Any:
    return _response_decoder(key, version)(Reader(data, 1 << 20))


@cache
def _request_encoder(key: int, version: int) -> Encode:
    return encoder_of(REQUESTS[key], version)


@cache
def _response_decoder(key: int, version: int) -> Decode:
    return decoder_of(RESPONSES[key], version)
