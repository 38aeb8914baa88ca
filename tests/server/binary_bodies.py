"""Tells schemathesis how to send a batch: as the bytes that it made up."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/vnd.penstock.batch")
def as_it_is(_context: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
