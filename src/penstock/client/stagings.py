"""Stagings of named commits, without I/O: what one process hands to the other, and where a message goes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ..api.arguments import partition_number, several, text, whole_number
from ..api.bounds import PUBLISH_MESSAGES_MAX
from ..api.commits import StagingRef
from ..api.publish import Delayed
from ..config import LimitsConfig
from ..errors import Refused
from ..model import Message
from .producer_batch import partition_of
from .publish import Outgoing, delayed_or_none, message_of

T = TypeVar("T")
# The broker recognises as many of the last batches of a staging, in each partition, and one more.
IN_FLIGHT_MAX = 4
# So many bytes of messages are one batch, unless the server takes less or a message is larger.
BATCH_BYTES = 1 << 20
# Lengths, times and numbers of a message, and of a header.
_MESSAGE_COST, _HEADER_COST = 32, 16
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


def staged_bytes_of(limits: LimitsConfig) -> int:
    """How many bytes are a batch for a server with these limits: as columns they are never twice as many."""
    return min(BATCH_BYTES, limits.batch_bytes_max // 2)


def _bytes_of(message: Message) -> int:
    """About what a message adds to a batch, with its lengths and times."""
    names = sum(len(name) + len(value or b"") + _HEADER_COST for name, value in message.headers)
    return len(message.value or b"") + len(message.key or b"") + names + _MESSAGE_COST


def by_partition(
    messages: Iterable[tuple[int | None, Message]], partitions: int, turn: int, bytes_max: int
) -> Mapping[int, list[list[Message]]]:
    """Batches of messages by partition: the one that is said, or that of the key, or the one that has its turn."""
    return _batched(
        (
            (_place(said, message.key, partitions, turn), _bytes_of(message), message)
            for said, message in messages
        ),
        bytes_max,
    )


def _batched(sized: Iterable[tuple[int, int, T]], bytes_max: int) -> Mapping[int, list[list[T]]]:
    """Batches by partition, of what comes with its partition and size."""
    found: dict[int, list[list[T]]] = {}
    sizes: dict[int, int] = {}
    for place, size, item in sized:
        batches = found.setdefault(place, [])
        if not batches or sizes[place] + size > bytes_max:
            batches.append([])
            sizes[place] = 0
        batches[-1].append(item)
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
    sent: Iterable[Outgoing], now_ns: int, bytes_max: int
) -> Iterator[tuple[int | None, list[Message], list[Delayed]]]:
    """What is staged together, in order: the partition, if it is said, and messages or delayed ones."""
    run: tuple[int | None, list[Message], list[Delayed]] = (None, [], [])
    total = 0
    for one in sent:
        place = None if one.partition is None else partition_number(one.partition)
        delayed = delayed_or_none(one, now_ns)
        message = message_of(one, now_ns, None) if delayed is None else delayed.message
        size, other = _bytes_of(message), run[1] if delayed is not None else run[2]
        is_full = total + size > bytes_max or len(run[1]) + len(run[2]) == PUBLISH_MESSAGES_MAX
        if (run[1] or run[2]) and (place != run[0] or other or is_full):
            yield run
            run, total = (place, [], []), 0
        run, total = (place, run[1], run[2]), total + size
        if delayed is None:
            run[1].append(message)
        else:
            run[2].append(delayed)
    if run[1] or run[2]:
        yield run


def delayed_by_partition(
    delayed: Iterable[tuple[int | None, Delayed]], partitions: int, turn: int, bytes_max: int
) -> Mapping[int, list[list[Delayed]]]:
    """Batches of delayed messages by partition: the one that is said, or that of the key or of the delay key, or in
    turn."""

    def place_of(said: int | None, one: Delayed) -> int:
        key = one.message.key if one.message.key is not None else one.delay_key
        return _place(said, key, partitions, turn)

    return _batched(
        ((place_of(said, one), _bytes_of(one.message), one) for said, one in delayed), bytes_max
    )


def _place(said: int | None, key: bytes | None, partitions: int, turn: int) -> int:
    if said is not None:
        return said
    return turn % partitions if key is None else partition_of(key, partitions)
