"""What a consumer says about messages that are lent to it, in columns (docs/formats/answers.md).

The way back of a leased answer: a few columns for many messages of one lease, no receipt written out. Knows bytes and
nothing else: whether a lease is still somebody's is decided elsewhere.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from ..errors import MalformedBatch, TooLarge
from ..model import Buffer

MAGIC = b"PAN1"
MESSAGES_MAX = 100_000


class Kind(Enum):
    """The four answers of a holder, and giving back what nobody has looked at: that costs no attempt."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"
    RELEASE = "release"


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One answer for some messages of one lease.

    `ms` is the delay of a nack (None: the backoff of the topic), or how long an extend lasts.
    """

    kind: Kind
    topic: str
    partition: int
    group: int
    lease: int
    offsets: list[int]
    reason: str = ""
    ms: int | None = None


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[LeaseAnswer]).decode


def encode_answers(answers: Sequence[LeaseAnswer]) -> bytes:
    return MAGIC + _ENCODE(answers)


def decode_answers(data: Buffer) -> list[LeaseAnswer]:
    """Read answers that somebody else wrote. MalformedBatch: they are not; TooLarge: of too many messages."""
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise MalformedBatch(f"answers begin with {MAGIC.decode()}")
    try:
        found = _DECODE(data[len(MAGIC) :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBatch(f"answers: {str(error)[:200]}") from None
    count = sum(len(one.offsets) for one in found)
    if count > MESSAGES_MAX:
        raise TooLarge("messages in one request", found=count, limit=MESSAGES_MAX)
    return found
