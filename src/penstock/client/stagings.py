"""Stagings of named commits, without I/O: what one process hands to the other, and where a message goes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..api.arguments import partition_number, several, text, whole_number
from ..api.commits import StagingRef
from ..api.publish import Delayed
from ..errors import Refused
from ..model import Message
from .producer_batch import partition_of
from .publish import Outgoing, delayed_or_none, message_of

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
        place = _place(said, message.key, partitions, turn)
        size = len(message.value or b"") + len(message.key or b"")
        batches = found.setdefault(place, [])
        if not batches or sizes[place] + size > BATCH_BYTES:
            batches.append([])
            sizes[place] = 0
        batches[-1].append(message)
        sizes[place] += size
    return found


def staged_apart(
    sent: Iterable[Outgoing], now_ns: int
) -> tuple[list[tuple[int | None, Message]], list[tuple[int | None, Delayed]]]:
    """Messages, and those that come later, each with the partition that is said."""
    messages: list[tuple[int | None, Message]] = []
    later: list[tuple[int | None, Delayed]] = []
    for one in sent:
        place = None if one.partition is None else partition_number(one.partition)
        delayed = delayed_or_none(one, now_ns)
        if delayed is None:
            message = message_of(one, now_ns, None)
            messages.append((place, replace(message, timestamp=now_ns)))
        else:
            later.append((place, delayed))
    return messages, later


def staged_runs(
    sent: Iterable[Outgoing], now_ns: int
) -> Iterator[tuple[int | None, list[Message], list[Delayed]]]:
    """What is staged together, in order: the partition, if it is said, and messages or delayed ones."""
    run: tuple[int | None, list[Message], list[Delayed]] = (None, [], [])
    for one in sent:
        place = None if one.partition is None else partition_number(one.partition)
        delayed = delayed_or_none(one, now_ns)
        other = run[1] if delayed is not None else run[2]
        if (run[1] or run[2]) and (place != run[0] or other):
            yield run
            run = (place, [], [])
        run = (place, run[1], run[2])
        if delayed is None:
            run[1].append(message_of(one, now_ns, None))
        else:
            run[2].append(delayed)
    if run[1] or run[2]:
        yield run


def delayed_by_partition(
    delayed: Iterable[tuple[int | None, Delayed]], partitions: int, turn: int
) -> Mapping[int, list[Delayed]]:
    """Delayed messages by partition: the one that is said, or that of the key or of the delay key, or in turn."""
    found: dict[int, list[Delayed]] = {}
    for said, one in delayed:
        key = one.message.key if one.message.key is not None else one.delay_key
        found.setdefault(_place(said, key, partitions, turn), []).append(one)
    return found


def _place(said: int | None, key: bytes | None, partitions: int, turn: int) -> int:
    if said is not None:
        return said
    return turn % partitions if key is None else partition_of(key, partitions)
