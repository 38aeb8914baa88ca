"""A message in the hands of a member, with the proof that it is theirs."""

import re
from typing import NamedTuple

import msgspec

from ..errors import Refused
from ..model import Headers, Priority


class Place(NamedTuple):
    """Which group of which partition a lease belongs to."""

    topic: str
    partition: int
    group: int


# Their order for people: what was put first, then the delivery.
_SHOWN = (
    "value",
    "key",
    "headers",
    "priority",
    "timestamp",
    "expires_at",
    "idempotency_key",
    "schema_id",
    "offset",
    "attempts",
    "lease",
    "place",
)


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message and the lease under which it was handed out. `attempts` counts deliveries from 1."""

    # What every message has comes first: most have nothing else, and what is not said costs nothing to make.
    value: bytes | None
    offset: int
    timestamp: int
    attempts: int
    lease: int
    place: Place
    key: bytes | None = None
    headers: Headers = ()
    priority: Priority | int = int(Priority.NORMAL)
    expires_at: int | None = None
    idempotency_key: bytes | None = None
    schema_id: int | None = None

    def __repr__(self) -> str:
        return f"Received({', '.join(f'{name}={getattr(self, name)!r}' for name in _SHOWN)})"

    @property
    def id(self) -> int:
        """Its number in a queue of one partition, counted from 1."""
        return self.offset + 1

    @property
    def receipt(self) -> str:
        return write_receipt(self.place, self.offset, self.attempts, self.lease)

    @property
    def topic(self) -> str:
        return self.place.topic

    @property
    def partition(self) -> int:
        return self.place.partition


class Receipt(NamedTuple):
    """A receipt, read."""

    place: Place
    offset: int
    attempts: int
    lease: int


_RECEIPT = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,245}):(?P<partition>\d{1,6}):(?P<offset>\d{1,19})"
    r":(?P<attempts>\d{1,10}):(?P<group>[0-9a-f]{1,8})\.(?P<lease>[0-9a-f]{1,16})",
    re.ASCII,
)


def write_receipt(place: Place, offset: int, attempts: int, lease: int) -> str:
    return f"{place.topic}:{place.partition}:{offset}:{attempts}:{place.group:x}.{lease:x}"


def read_receipt(receipt: str) -> Receipt:
    found = _RECEIPT.fullmatch(receipt)
    if found is None:
        raise Refused(f"{receipt[:80]!r} is not a receipt", receipt=receipt[:80])
    place = Place(found["topic"], int(found["partition"]), int(found["group"], 16))
    return Receipt(place, int(found["offset"]), int(found["attempts"]), int(found["lease"], 16))
