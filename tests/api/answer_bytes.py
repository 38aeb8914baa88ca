"""Answers in columns as a client writes them (docs/formats/answers.md)."""

from collections.abc import Sequence

import msgspec

from penstock.api.answers import LeaseAnswer


def encode_answers(answers: Sequence[LeaseAnswer]) -> bytes:
    return b"PAN1" + msgspec.msgpack.encode(answers)
