"""What a command decided."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Record = TypeVar("Record")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Record, Reply]):
    """The records to journal and apply, and the answer.

    The reply may leave only when everything applied before this decision is as durable as was asked for.
    """

    reply: Reply
    records: tuple[Record, ...] = ()
