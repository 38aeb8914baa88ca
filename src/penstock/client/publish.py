"""Messages that the client publishes, and where they are stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from ..api.arguments import value_of, whole_number
from ..api.bounds import PUBLISH_MESSAGES_MAX
from ..api.contents import LIMITS, Content, HeadersIn, bytes_of, pairs_of
from ..api.publish import BatchStored as StoredBatch
from ..api.publish import Delayed, PublishedRun, Safety
from ..api.publish import Published as StoredMessage
from ..api.schedule_options import ContentReaders
from ..api.units import Duration, Moment, priority_of, time_text
from ..errors import PartlyPublished, PenstockError, Refused
from ..model import Message, Priority
from .delays import due_ns
from .producer_batch import expiry_ns


class PublishOptions(TypedDict, total=False):
    """`json`: the value, as any object that JSON has a form for.

    `ttl`: not delivered after so long. `delay` or `deliver_at`: not delivered before.
    Of delayed messages with one `delay_key` only the last counts.
    """

    json: Any
    key: Content
    headers: HeadersIn
    partition: int | None
    priority: int | str | None
    ttl: Duration | None
    idempotency_key: Content
    delay: Duration | None
    deliver_at: Moment | None
    delay_key: Content


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish: its value, or any object as `json`.

    Without `partition` the key decides, then the idempotency key; the rest take turns.
    """

    value: Content | UnsetType = UNSET
    key: Content = None
    headers: HeadersIn = ()
    partition: int | None = None
    priority: int | str | None = None
    ttl: Duration | None = None
    idempotency_key: Content = None
    delay: Duration | None = None
    deliver_at: Moment | None = None
    delay_key: Content = None
    json: Any = UNSET


class Published(msgspec.Struct, frozen=True):
    """Where a message is stored, and how safely (`guarantee`: buffered, fsynced or replicated).

    Delayed ones are in the delay log. `copies`: on how many machines it is; 0 from a broker that has no standby.
    """

    partition: int
    offset: int
    duplicate: bool = False
    guarantee: str = "buffered"
    delayed: bool = False
    deliver_at: str | None = None
    copies: int = 0


class BatchStored(msgspec.Struct, frozen=True):
    """Where a batch is stored, how safely, and how many partitions its topic has now."""

    partition: int
    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    guarantee: str
    partitions: int = 0
    copies: int = 0


_OPTIONS = frozenset(get_type_hints(PublishOptions))
SCHEDULE_READERS = ContentReaders(
    lambda what, content: bytes_of(content, what, LIMITS.value_bytes_max), pairs_of
)
"""How the message of a schedule is read; the broker has lower limits for it."""
Result = Published | PenstockError


def outgoing_of(value: Outgoing | Content | UnsetType, options: Mapping[str, Any]) -> Outgoing:
    """A message with its options. TypeError if there is no such option, Refused if the message has its own."""
    if unknown := sorted(set(options) - _OPTIONS):
        raise TypeError(f"a message has no option {unknown[0]!r}")
    if not isinstance(value, Outgoing):
        return Outgoing(value, **options)
    if options:
        raise Refused(f"an Outgoing has its options itself; it came with {', '.join(options)}=")
    return value


def message_of(one: Outgoing, now_ns: int, due: int | None) -> Message:
    """The message itself. Its time to live begins now, or when it is due. Refused or TooLarge if a part is wrong."""
    return Message(
        bytes_of(value_of(one.value, one.json), "value", LIMITS.value_bytes_max),
        bytes_of(one.key, "key", LIMITS.key_bytes_max),
        pairs_of(one.headers) if one.headers else (),
        Priority.NORMAL if one.priority is None else priority_of(one.priority),
        # The broker fills in the time, unless the end of its life is counted from it.
        0 if one.ttl is None else now_ns,
        None if one.ttl is None else expiry_ns(one.ttl, max(now_ns, due or 0)),
        bytes_of(one.idempotency_key, "idempotency key", LIMITS.key_bytes_max) or None,
    )


def due_of(one: Outgoing, now_ns: int) -> int | None:
    """When a message is to come; None: at once. Refused if that is said twice, or a delay key has no time."""
    due = due_ns(one.delay, one.deliver_at, now_ns)
    if due is None and one.delay_key is not None:
        raise Refused("delay_key needs delay or deliver_at", field="delay_key")
    return due


def delayed_or_none(one: Outgoing, now_ns: int) -> Delayed | None:
    """A message that is to come later; None: it comes at once. Refused if its time is wrong."""
    due = due_of(one, now_ns)
    if due is None:
        return None
    delay_key = bytes_of(one.delay_key, "delay key", LIMITS.key_bytes_max)
    return Delayed(message_of(one, now_ns, due), due, delay_key)


@dataclass(slots=True)
class Batches:
    """Messages of one call by what they are sent with, each with its index in the call."""

    plain: dict[int | None, list[tuple[int, Message]]] = field(default_factory=dict)
    delayed: list[tuple[int, int | None, Delayed]] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)

    def add(self, index: int, one: Outgoing, now_ns: int) -> None:
        """Refused or TooLarge if the message is wrong."""
        partition = one.partition
        if partition is not None:
            partition = whole_number("partition", partition, 0)
        delayed = delayed_or_none(one, now_ns)
        if delayed is None:
            self.plain.setdefault(partition, []).append((index, message_of(one, now_ns, None)))
        else:
            self.delayed.append((index, partition, delayed))

    def runs(self) -> Iterator[tuple[int | None, list[tuple[int, Message]]]]:
        """Messages that come at once, by partition, as many together as one request may have."""
        for partition, messages in self.plain.items():
            for first in range(0, len(messages), PUBLISH_MESSAGES_MAX):
                yield partition, messages[first : first + PUBLISH_MESSAGES_MAX]

    def in_order(self) -> list[Published]:
        """The results. Raises the first error if nothing was stored, PartlyPublished if something was."""
        found = [self.results[index] for index in sorted(self.results)]
        failed = [one for one in found if isinstance(one, PenstockError)]
        if failed and len(failed) == len(found):
            raise failed[0]
        if failed:
            raise PartlyPublished(found)
        return found  # type: ignore[return-value]  # There are no errors among them.


def published_of(one: StoredMessage, safety: Safety, due: int | None = None) -> Published:
    return Published(
        one.partition,
        one.offset,
        one.is_duplicate,
        safety.guarantee.value,
        one.is_delayed,
        None if due is None else time_text(due),
        safety.copies,
    )


def batch_stored_of(found: StoredBatch, safety: Safety) -> BatchStored:
    stored: Sequence[StoredMessage] = found.stored
    first, last = stored[0], stored[-1]
    is_run = isinstance(stored, PublishedRun)
    is_repeat = first.is_duplicate if is_run else all(one.is_duplicate for one in stored)
    return BatchStored(
        first.partition,
        first.offset,
        last.offset + 1,
        len(stored),
        is_repeat,
        safety.guarantee.value,
        found.partitions,
        safety.copies,
    )
