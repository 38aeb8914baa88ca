"""Publishing: which partition, is it a repeat, and one batch for all that go to the same place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...api.publish import Published
from ...codec import Columns, Encoded, Marks, encode
from ...codec.columns import Ints, columns_of
from ...codec.head import NO_MARKS
from ...config import OFF, LimitsConfig
from ...errors import (
    BacklogFull,
    NeverFits,
    NoSpace,
    NotFound,
    PartlyPublished,
    PenstockError,
    Refused,
    Unavailable,
)
from ...model import Message
from .backlog import is_full, require_room
from .partition import Now, Partition
from .partitioner import partition_of
from .slots import Partitions

_MS = 1_000_000


def size_of(message: Message) -> int:
    """The bytes of a message that are written: value, key, headers and idempotency key."""
    size = len(message.value or b"") + len(message.key or b"")
    if message.headers:
        size += sum(len(name) + len(value or b"") for name, value in message.headers)
    return size + len(message.idempotency_key or b"")


@dataclass(slots=True)
class Router:
    """Chooses partitions; messages without any key stay with one partition for a whole call.

    `turn` is the partition of the last such call. It is not recorded: a restart begins anew.
    `former` remembers how many partitions there were until when: idempotency keys of that time have another home.
    """

    turn: int = 0
    former: list[tuple[int, int]] = field(default_factory=list)

    def next_call(self, partitions: Partitions) -> Partition:
        """The next partition that serves: it is its turn. PartitionFaulty: none does."""
        slots = partitions.slots
        for step in range(1, len(slots) + 1):
            turn = (self.turn + step) % len(slots)
            found = slots[turn]
            if isinstance(found, Partition):
                self.turn = turn
                return found
        raise partitions.faults[0].error()

    def choose(self, message: Message, partitions: int) -> int:
        # An empty key is a key, an empty idempotency key is none.
        key = message.key if message.key is not None else message.idempotency_key or None
        return self.turn if key is None else partition_of(key, partitions)

    def former_homes(self, message: Message, *, since_ns: int) -> Iterator[int]:
        """Where the message would have gone before partitions were added."""
        for partitions, until_ns in self.former:
            if until_ns >= since_ns:
                yield self.choose(message, partitions)


@dataclass(slots=True)
class PendingAppend:
    """What one call sends to one partition: what is known already, and one batch of messages or of delayed messages."""

    partition: Partition
    results: list[Published | None]
    # Indexes of the messages to store, and for each repeat within the call the index of its first.
    fresh: Sequence[int]
    repeats: dict[int, int]
    batch: Encoded | None = None
    delayed: Columns | None = None

    def append(self, now: Now) -> list[Published]:
        """Append the batch; returns the result of every message."""
        first: Published | None = None
        if self.batch is not None:
            first = self.partition.append(self.batch, now)
        elif self.delayed is not None:
            first = self.partition.schedule(self.delayed, now)
        if first is not None:
            number, offset, is_repeat, end, is_delayed = first
            stored = [
                Published(number, one, is_repeat, end, is_delayed)
                for one in range(offset, offset + len(self.fresh))
            ]
            if len(stored) == len(self.results):
                return stored
            for index, result in zip(self.fresh, stored, strict=True):
                self.results[index] = result
        for index, earlier in self.repeats.items():
            known = self.results[earlier]
            assert known is not None, "the first with a key is stored or known"
            self.results[index] = known._replace(is_duplicate=True)
        return [one for one in self.results if one is not None]


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
    if not messages:
        return []
    pending = []
    for number, indexes in by_partition.items():
        mine = messages if len(by_partition) == 1 else [messages[one] for one in indexes]
        pending.append(_prepared(partitions[number], mine, now, (partitions, router)))
    for one in pending:
        if one.batch is not None and one.partition.has_backlog_limit:
            require_room(one.partition, len(one.fresh), one.batch.head.length)
    return append_all(pending, by_partition, now)


def append_all(
    pending: Sequence[PendingAppend], by_partition: Mapping[int, Sequence[int]], now: Now
) -> list[Published]:
    """Append to every partition; results in the order of the messages. PartlyPublished: only some of them could."""
    if len(pending) == 1:
        return pending[0].append(now)
    answers: dict[int, Answer] = {}
    for one, indexes in zip(pending, by_partition.values(), strict=True):
        try:
            found: Sequence[Answer] = one.append(now)
        except Unavailable as error:
            found = [error.fresh()] * len(indexes)
        answers.update(zip(indexes, found, strict=True))
    return all_or_error([answers[index] for index in range(len(answers))])


def all_or_error(answers: list[Answer]) -> list[Published]:
    errors = [one for one in answers if isinstance(one, PenstockError)]
    stored = [one for one in answers if isinstance(one, Published)]
    if not errors:
        return stored
    if not stored:
        raise errors[0].fresh()
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
        return [error.fresh()] * len(messages)
    except (Refused, Unavailable) as error:
        if len(messages) == 1:
            return [error.fresh()]
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
) -> Mapping[int, Sequence[int]]:
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
        return {to_partition: range(len(messages))}
    assert isinstance(partitions, Partitions), "those of a topic"
    router.next_call(partitions)
    count = len(partitions)
    if count == 1:
        return {0: range(len(messages))}
    chosen: dict[int, list[int]] = {}
    for index, message in enumerate(messages):
        chosen.setdefault(router.choose(message, count), []).append(index)
    return chosen


def not_a_partition(found: object) -> Refused:
    return Refused(f"a partition is a whole number, not {type(found).__name__}")


def _prepared(
    partition: Partition,
    messages: Sequence[Message],
    now: Now,
    homes: tuple[Sequence[Partition], Router],
) -> PendingAppend:
    """Find repeats and encode the rest. Refused, TooLarge: nothing of it can be stored."""
    columns = columns_of(messages)
    if columns.idempotency_keys is None or not any(columns.idempotency_keys):
        batch = encode_for(partition, columns, now)
        count = len(messages)
        return PendingAppend(partition, [None] * count, range(count), {}, batch)
    pending = without_repeats(partition, messages, now, homes)
    if pending.fresh:
        fresh = columns_of([messages[index] for index in pending.fresh])
        pending.batch = encode_for(partition, fresh, now)
    return pending


def without_repeats(
    partition: Partition,
    messages: Sequence[Message],
    now: Now,
    homes: tuple[Sequence[Partition], Router],
) -> PendingAppend:
    results: list[Published | None] = [
        _first_of(partition, one, now, homes) if one.idempotency_key else None for one in messages
    ]
    fresh, repeats = _sorted_out(messages, results)
    return PendingAppend(partition, results, fresh, repeats)


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
    columns: Columns,
    now: Now,
    *,
    limits: LimitsConfig | None = None,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """A batch as the partition stores it, with the times that the senders left to us."""
    ttl_ms = partition.config.ttl_ms
    until_ns = None if ttl_ms == OFF else now.wall_ns + ttl_ms * _MS
    timestamps, expires_at = columns.timestamps, columns.expires_at
    if expires_at is None and isinstance(timestamps, int):
        completed = replace(columns, timestamps=timestamps or now.wall_ns, expires_at=until_ns)
    else:
        completed = replace(
            columns,
            timestamps=times_or(timestamps, now.wall_ns),
            expires_at=expiry_or(expires_at, until_ns),
        )
    return encode(
        completed, compression=partition.compression, marks=marks, limits=limits or partition.limits
    )


def times_or(timestamps: Ints | int, now_ns: int) -> Ints | int:
    """Timestamps, with the time now where the sender left it to us."""
    if isinstance(timestamps, int):
        return timestamps or now_ns
    return [one or now_ns for one in timestamps] if 0 in timestamps else timestamps


def expiry_or(
    expires_at: Sequence[int | None] | int | None, until_ns: Sequence[int] | int | None
) -> Sequence[int | None] | int | None:
    """When messages expire, with the topic's time for those that say nothing. Refused: a message says 0."""
    if expires_at is None:
        return until_ns
    if isinstance(expires_at, int):
        return expires_at
    if 0 in expires_at:
        raise Refused("expires_at is a time in nanoseconds since 1970, and must be above 0")
    if until_ns is None:
        return expires_at
    defaults = [until_ns] * len(expires_at) if isinstance(until_ns, int) else until_ns
    pairs = zip(expires_at, defaults, strict=True)
    return [default if one is None else one for one, default in pairs]
