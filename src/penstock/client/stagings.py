"""Stagings of named commits, without I/O: what one process hands to the other, and where a message goes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..api.arguments import several, text, whole_number
from ..api.commits import StagingRef
from ..errors import Refused
from ..model import Message
from .producer_batch import partition_of

# The broker recognises as many of the last batches of a staging, in each partition, and one more.
IN_FLIGHT_MAX = 4
# So many bytes of keys and values are one batch, unless a message is larger.
BATCH_BYTES = 1 << 20
_SEQUENCE_MAX = (1 << 53) - 1


class StagingHandle(NamedTuple):
    """A finished staging, for the process that commits it: small, plain, and the same after pickle or JSON.

    `StagingHandle(*json.loads(json.dumps(handle)))` is the handle again.
    """

    name: str
    sequence: int
    writer: str
    staging: str
    messages: int


class CommitKey(NamedTuple):
    """The name, the sequence and the writer of a commit."""

    name: str
    sequence: int
    writer: str


def commit_key(name: object, sequence: object, writer: object) -> CommitKey:
    """Refused: they are not of the kinds that they have to be."""
    return CommitKey(
        text("the name of a commit", name),
        whole_number("the sequence of a commit", sequence, 0, _SEQUENCE_MAX),
        text("the writer of a commit", writer),
    )


def handles_of(handles: Iterable[StagingHandle | Iterable[Any]]) -> list[StagingHandle]:
    """Refused if one is no handle."""
    found = []
    for one in several("handles", handles):
        try:
            found.append(StagingHandle(*one))
        except TypeError:
            raise Refused("a handle of a staging is what `Staging.handle` returns") from None
    return found


def refs_of(key: CommitKey, handles: Iterable[StagingHandle | Iterable[Any]]) -> list[StagingRef]:
    """What a commit lists. Refused: a handle is of another commit; nothing has to be asked to know."""
    found = []
    for handle in handles_of(handles):
        if handle[:3] != key:
            raise Refused(
                f"staging {handle.staging} is for sequence {handle.sequence} of {handle.name}, "
                f"writer {handle.writer}, and the commit for {key.sequence} of {key.name}, {key.writer}"
            )
        found.append(StagingRef(handle.staging, handle.messages))
    return found


def by_partition(
    messages: Iterable[tuple[int | None, Message]], partitions: int, turn: int
) -> Mapping[int, list[list[Message]]]:
    """Batches of messages by partition: the one that is said, or that of the key, or the one that has its turn."""
    found: dict[int, list[list[Message]]] = {}
    sizes: dict[int, int] = {}
    for said, message in messages:
        key = message.key
        place = said
        if place is None:
            place = turn % partitions if key is None else partition_of(key, partitions)
        size = len(message.value or b"") + len(key or b"")
        batches = found.setdefault(place, [])
        if not batches or sizes[place] + size > BATCH_BYTES:
            batches.append([])
            sizes[place] = 0
        batches[-1].append(message)
        sizes[place] += size
    return found
