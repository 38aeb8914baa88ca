"""What a command decided."""

from typing import Generic, TypeVar

import msgspec

Record = TypeVar("Record")
Reply = TypeVar("Reply")


class Outcome(msgspec.Struct, Generic[Record, Reply], frozen=True):
    """The records to journal and apply, and the answer.

    The reply may leave only when everything applied before this decision is as durable as was asked for.
    """

    reply: Reply
    records: tuple[Record, ...] = ()
