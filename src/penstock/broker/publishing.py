"""Publishing: which partition, is it a repeat, and one batch for all that go to the same place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..api.publish import Published
from ..codec import Encoded, Marks, encode_messages
from ..codec.head import NO_MARKS
from ..config import OFF, LimitsConfig
from ..errors import (
    BacklogFull,
    NeverFits,
    NoSpace,
    NotFound,
    PartlyPublished,
    PenstockError,
    Refused,
    Unavailable,
)
from ..model import Message
from .backlog import is_full, is_limited, require_room
from .partition import Now, Partition
from .partitioner import partition_of
from .slots import Partitions

_MS = 1_000_000


@dataclass(slots=True)
class Router:
    """Chooses partitions; without any key it stays with one partition for a whole call.

    `former` remembers how many partitions there were until when: idempotency keys of that time have another home.
    """

    turn: int = 0
    former: list[tuple[int, int]] = field(default_factory=list)
    _this_call: int = field(default=0)

    def next_call(self, partitions: Sequence[Partition]) -> None:
        """It is the turn of the next partition that serves. PartitionFaulty: none does."""
        self.turn = (self.turn + 1) % len(partitions)
        if isinstance(partitions, Partitions):
            self.turn = partitions.next_serving(self.turn)
        self._this_call = self.turn

    def choose(self, message: Message, partitions: int) -> int:
        # An empty key is a key, an empty idempotency key is none.
        key = message.key if message.key is not None else message.idempotency_key or None
        return self._this_call if key is None else partition_of(key, partitions)

    def former_homes(self, message: Message, *, since_ns: int) -> Iterator[int]:
        """Where the message would have gone before partitions were added."""
        for partitions, until_ns in self.former:
            if until_ns >= since_ns:
                yield self.choose(message, partitions)


@dataclass(slots=True)
class Parcel:
    """What one call sends to one partition: what is known already, and what is to be stored as one batch."""

    partition: Partition
    results: list[Published | None]
    # Indexes of the messages to store, and for each repeat within the call the index of its first.
    fresh: Sequence[int]
    repeats: dict[int, int]
    encoded: Encoded | None = None

    def deliver(self, now: Now) -> list[Published]:
        """Append the batch, and answer for every message."""
        stored = self.store(now)
        if stored is not None:
            number, _, is_repeat, end, is_delayed = stored
            answers = [
                Published(number, offset, is_repeat, end, is_delayed)
                for offset in range(stored.offset, stored.offset + len(self.fresh))
            ]
            if len(answers) == len(self.results):
                return answers
            for index, answer in zip(self.fresh, answers, strict=True):
                self.results[index] = answer
        for index, first in self.repeats.items():
            known = self.results[first]
            assert known is not None, "the first with a key is stored or known"
            self.results[index] = known._replace(is_duplicate=True)
        return [one for one in self.results if one is not None]

    def store(self, now: Now) -> Published | None:
        """Where the first message came to rest; None if there is nothing to store."""
        return None if self.encoded is None else self.partition.append(self.encoded, now)


Answer = Published | PenstockError


def publish(
    partitions: Sequence[Partition],
    router: Router,
    messages: Sequence[Message],
    now: Now,
    *,
    to_partition: int | None = None,
) -> list[Published]:
    """Append messages; results in the order of the messages. All of one partition go as one batch.

    What is refused is found before anything is stored. After that only the disk can say no, and if it does so for some
    partitions of several: PartlyPublished.
    """
    by_partition = routed(partitions, router, messages, to_partition)
    homes = (partitions, router)
    parcels = [
        pack(partitions[number], [messages[one] for one in indexes], now, homes)
        for number, indexes in by_partition.items()
    ]
    for parcel in parcels:
        if parcel.encoded is not None and is_limited(parcel.partition):
            require_room(parcel.partition, len(parcel.fresh), parcel.encoded.head.length)
    if len(parcels) == 1:
        return parcels[0].deliver(now)
    answers: dict[int, Answer] = {}
    for parcel, indexes in zip(parcels, by_partition.values(), strict=True):
        answers.update(zip(indexes, delivered(parcel, now), strict=True))
    return all_or_error([answers[index] for index in range(len(messages))])


def delivered(parcel: Parcel, now: Now) -> Sequence[Answer]:
    try:
        return parcel.deliver(now)
    except Unavailable as error:
        return [error] * len(parcel.results)


def all_or_error(answers: list[Answer]) -> list[Published]:
    errors = [one for one in answers if isinstance(one, PenstockError)]
    stored = [one for one in answers if isinstance(one, Published)]
    if not errors:
        return stored
    if not stored:
        raise errors[0]
    raise PartlyPublished(answers)


def publish_each(
    partitions: Sequence[Partition],
    router: Router,
    messages: Sequence[Message],
    now: Now,
    *,
    to_partition: int | None = None,
) -> list[Answer]:
    """Append what can be; an answer or an error for each message. What is refused does not hold up the others."""
    try:
        return [*publish(partitions, router, messages, now, to_partition=to_partition)]
    except PartlyPublished as error:
        return [one for one in error.results if isinstance(one, Published | PenstockError)]
    except NoSpace as error:
        return [error] * len(messages)
    except (Refused, Unavailable) as error:
        if len(messages) == 1:
            return [error]
        is_full_there = isinstance(error, BacklogFull | NeverFits) and all(
            is_full(one) for one in partitions if to_partition in (None, one.number)
        )
    # A repeat is answered by a full partition, too. All others would be told the same, one by one, for seconds.
    if is_full_there and not any(one.idempotency_key for one in messages):
        first = publish_each(partitions, router, messages[:1], now, to_partition=to_partition)
        return first * len(messages)
    middle = len(messages) // 2
    return [
        answer
        for half in (messages[:middle], messages[middle:])
        for answer in publish_each(partitions, router, half, now, to_partition=to_partition)
    ]


def routed(
    partitions: Sequence[Partition],
    router: Router,
    messages: Sequence[Message],
    to_partition: int | None,
) -> dict[int, list[int]]:
    """Indexes of messages by partition."""
    if to_partition is not None:
        try:
            partitions[to_partition]
            is_there = to_partition >= 0
        except IndexError:
            is_there = False
        except TypeError:
            raise not_a_partition(to_partition) from None
        if not is_there:
            raise NotFound("partition", to_partition)
        return {to_partition: list(range(len(messages)))}
    router.next_call(partitions)
    chosen: dict[int, list[int]] = {}
    for index, message in enumerate(messages):
        chosen.setdefault(router.choose(message, len(partitions)), []).append(index)
    return chosen


def not_a_partition(found: object) -> Refused:
    return Refused(f"a partition is a whole number, not {type(found).__name__}")


def pack(
    partition: Partition,
    messages: Sequence[Message],
    now: Now,
    homes: tuple[Sequence[Partition], Router],
    *,
    marks: Marks = NO_MARKS,
) -> Parcel:
    """Find repeats and encode the rest. Refused, TooLarge: nothing of it can be stored."""
    if any(message.idempotency_key for message in messages):
        parcel = without_repeats(partition, messages, now, homes)
    else:
        parcel = Parcel(partition, [None] * len(messages), range(len(messages)), {})
    if parcel.fresh:
        stored = [messages[index] for index in parcel.fresh]
        parcel.encoded = encode_for(partition, stored, now, limits=partition.limits, marks=marks)
    return parcel


def without_repeats(
    partition: Partition,
    messages: Sequence[Message],
    now: Now,
    homes: tuple[Sequence[Partition], Router],
) -> Parcel:
    results: list[Published | None] = [
        _first_of(partition, one, now, homes) if one.idempotency_key else None for one in messages
    ]
    fresh, repeats = _sorted_out(messages, results)
    return Parcel(partition, results, fresh, repeats)


def _first_of(
    partition: Partition, message: Message, now: Now, homes: tuple[Sequence[Partition], Router]
) -> Published | None:
    """Where the message with this idempotency key was stored before."""
    partitions, router = homes
    key = message.idempotency_key or b""
    since_ns = now.wall_ns - partition.config.dedup_window_ms * _MS
    former = (partitions[one] for one in router.former_homes(message, since_ns=since_ns))
    for home in (partition, *former):
        kept = home.machine.dedup.find(key, now.wall_ns)
        if kept is not None:
            end = kept.position + 1
            return Published(home.number, kept.position, True, end, kept.is_delayed)
    return None


def _sorted_out(
    messages: Sequence[Message], results: Sequence[Published | None]
) -> tuple[list[int], dict[int, int]]:
    """What to store; of several messages with one key in the same call only the first."""
    first_of: dict[bytes, int] = {}
    fresh: list[int] = []
    repeats: dict[int, int] = {}
    for index, message in enumerate(messages):
        if results[index] is not None:
            continue
        key = message.idempotency_key
        if key and key in first_of:
            repeats[index] = first_of[key]
            continue
        if key:
            first_of[key] = index
        fresh.append(index)
    return fresh, repeats


def encode_for(
    partition: Partition,
    messages: Sequence[Message],
    now: Now,
    *,
    limits: LimitsConfig,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """A batch as the partition stores it, with the times that the senders left to us."""
    ttl_ms = partition.config.ttl_ms
    completed = [_completed(message, ttl_ms, now) for message in messages]
    return encode_messages(completed, compression=partition.compression, marks=marks, limits=limits)


def _completed(message: Message, ttl_ms: int, now: Now) -> Message:
    timestamp = message.timestamp or now.wall_ns
    expires_at = message.expires_at
    if expires_at is None and ttl_ms != OFF:
        expires_at = now.wall_ns + ttl_ms * _MS
    if expires_at == 0:
        raise Refused("expires_at is a time in nanoseconds since 1970, and must be above 0")
    if timestamp == message.timestamp and expires_at == message.expires_at:
        return message
    return Message(
        message.value,
        message.key,
        message.headers,
        message.priority,
        timestamp,
        expires_at,
        message.idempotency_key,
        message.schema_id,
    )
