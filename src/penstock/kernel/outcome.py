"""What a command decided."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from .effects import Effect

Record = TypeVar("Record")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Record, Reply]):
    """The records to journal and apply, the answer, and what the shell has to do.

    The reply may leave only when everything applied before this decision is as durable as was asked for.
    """

    reply: Reply
    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
