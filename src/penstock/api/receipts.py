"""Receipts: the text that names a delivery of a message, and proves that it was leased."""

import re
from typing import NamedTuple

from ..errors import Refused


class Place(NamedTuple):
    """The group, by its number, of a partition to which a lease belongs."""

    topic: str
    partition: int
    group: int


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
    """Refused: the text is not a receipt."""
    found = _RECEIPT.fullmatch(receipt)
    if found is None:
        raise Refused(f"{receipt[:80]!r} is not a receipt", receipt=receipt[:80])
    place = Place(found["topic"], int(found["partition"]), int(found["group"], 16))
    return Receipt(place, int(found["offset"]), int(found["attempts"]), int(found["lease"], 16))
