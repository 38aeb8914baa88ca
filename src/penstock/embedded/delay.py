"""Messages that are to come later: how callers say when, and what they can do with those that wait."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple, TypedDict, TypeVar

from ..api.arguments import whole_count, whole_number
from ..api.units import Duration, datetime_ns
from ..broker import delaying
from ..broker.delaying import Delayed, DelayFacts, Waiting
from ..broker.partition import Now, Partition
from ..codec import Columns
from ..config import OFF
from ..delivery.delays import DelayState
from ..errors import Damaged, NotFound, NotPending, Refused
from ..model import Message
from ..runtime.threads import ThreadDriver
from .messages import DELAY_OPTIONS, LIMITS, MessageOptions, Value, as_bytes, due_of, make_message

T = TypeVar("T")
_S_NS = 1_000_000_000
# Beyond this a batch of values is cut in two.
_BATCH_BYTES_MAX = 4 << 20
_BATCH_MESSAGES_MAX = 8192
_IDENTITY_MAX = 1 << 62

DelayKey = bytes | str


class Later(TypedDict, total=False):
    """When messages are to come."""

    delay: Duration
    deliver_at: datetime | str


def is_delayed(options: MessageOptions) -> bool:
    return not DELAY_OPTIONS.isdisjoint(options)


def delayed_of(value: Value | Message, said: MessageOptions | Later, now_ns: int) -> Delayed:
    """What a caller said, in one piece."""
    options: MessageOptions = said  # type: ignore[assignment]  # Some of the same keys, with the same types.
    due_ns = due_of(options, now_ns)
    if due_ns is None:
        raise Refused("a delay_key is for messages with a delay or a deliver_at")
    if not isinstance(value, Message):
        value = make_message(value, options, now_ns=now_ns)
    return Delayed(value, due_ns, key_of(options.get("delay_key")))


def key_of(key: DelayKey | None) -> bytes | None:
    found = as_bytes("delay_key", key)
    if found is not None and not 0 < len(found) <= LIMITS.key_bytes_max:
        raise Refused(f"a delay_key has 1 to {LIMITS.key_bytes_max} bytes, got {len(found)}")
    return found


class BrokerDelays:
    """The part of a broker that is about delayed messages. They are named by partition and offset, or by their key."""

    driver: ThreadDriver

    def delayed(
        self, topic: str, *, limit: int = 100, after: datetime | None = None
    ) -> list[Waiting]:
        """What is to come next, earliest first; of what is due after a time, if you say one.

        Of one that the disk has damaged `message` is None and `damage` says where it is.
        """
        after_ns, count = (
            0 if after is None else datetime_ns(after, "after"),
            whole_count("limit", limit),
        )
        return self.driver.look(
            lambda _now: self.driver.node.delayed(topic, limit=count, after_ns=after_ns)
        )

    def delayed_get(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
    ) -> Waiting:
        """One delayed message and its state, also after it has come, for as long as it is remembered."""
        return self._look(topic, (partition, offset, delay_key), delaying.get)

    def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
    ) -> None:
        """Never deliver it. NotPending: it has come, or was cancelled before."""

        def cancel(now: Now) -> None:
            place = self._place(topic, (partition, offset, delay_key))
            delaying.cancel(*place, now)

        self.driver.change(cancel)

    def reschedule(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
    ) -> Waiting:
        """Deliver it after another delay, counted from now, or at another time. NotPending: too late."""

        def move(now: Now) -> Waiting:
            place = self._place(topic, (partition, offset, delay_key))
            return move_to(place, delay, deliver_at, now)

        return self.driver.change(move)

    def delay_stats(self, topic: str) -> list[DelayFacts]:
        """Delayed messages of each partition: pending, and what became of the others."""
        return self.driver.look(lambda _now: self.driver.node.delay_facts(topic))

    def _look(
        self,
        topic: str,
        name: tuple[int | None, int | None, DelayKey | None],
        look: Callable[[Partition, int], T],
    ) -> T:
        return self.driver.look(lambda _now: look(*self._place(topic, name)))

    def _place(
        self, topic: str, name: tuple[int | None, int | None, DelayKey | None]
    ) -> tuple[Partition, int]:
        partition, identity, key = name
        node = self.driver.node
        if key is not None and partition is None and identity is None:
            return delaying.find_by_key(node.topic(topic).partitions, key_of(key) or b"")
        if key is None and partition is not None and identity is not None:
            return node.partition(topic, partition), _identity_of("offset", identity)
        raise Refused("a delayed message is named by its partition and offset, or by its delay_key")


def move_to(
    place: tuple[Partition, int],
    delay: Duration | None,
    deliver_at: datetime | str | None,
    now: Now,
) -> Waiting:
    """Give a delayed message another time. With the lock held."""
    options = MessageOptions()
    if delay is not None:
        options["delay"] = delay
    if deliver_at is not None:
        options["deliver_at"] = deliver_at
    due_ns = due_of(options, now.wall_ns)
    if due_ns is None:
        raise Refused("say when: delay or deliver_at")
    delaying.reschedule(*place, due_ns, now)
    return delaying.describe(*place)


class DelayedMessage(NamedTuple):
    """A message of a queue that is to come later. `number` is what `put` returned; its id it gets when it comes.

    `damage` is None, or says why and where it cannot be read; then the value is None.
    """

    number: int
    state: DelayState
    deliver_at: datetime
    delay_key: bytes | None
    value: bytes | None
    damage: Damaged | None = None


@contextmanager
def _named(which: int | DelayKey) -> Iterator[None]:
    """Errors that name a message by the number that the caller gave. Inside it has an offset, which is one less."""
    try:
        yield
    except (NotPending, NotFound) as error:
        if not isinstance(which, int):
            raise
        if isinstance(error, NotPending):
            raise NotPending(which, str(error.fields["state"])) from None
        raise NotFound("delayed message", which) from None


class QueueDelays(ABC):
    """The part of a queue that is about delayed messages. They are named by what `put` returned, or by their key."""

    _driver: ThreadDriver

    @abstractmethod
    def _partition(self) -> Partition:
        """The only partition of the queue."""

    def delayed(self, limit: int = 100) -> list[DelayedMessage]:
        """What is to come next, earliest first. Of one that the disk has damaged `damage` says where it is."""
        count = whole_count("limit", limit)
        found = self._driver.look(lambda _now: delaying.pending((self._partition(),), limit=count))
        return [_shown(one) for one in found]

    def delayed_get(self, which: int | DelayKey) -> DelayedMessage:
        """One delayed message and its state, also after it has come, for as long as it is remembered."""
        with _named(which):
            return _shown(self._driver.look(lambda _now: delaying.get(*self._place(which))))

    def cancel(self, which: int | DelayKey) -> None:
        """Never hand it out. NotPending: it has come, or was cancelled before."""
        with _named(which):
            self._driver.change(lambda now: delaying.cancel(*self._place(which), now))

    def reschedule(
        self,
        which: int | DelayKey,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
    ) -> DelayedMessage:
        """Let it come after another delay, counted from now, or at another time. NotPending: too late."""

        def move(now: Now) -> Waiting:
            return move_to(self._place(which), delay, deliver_at, now)

        with _named(which):
            return _shown(self._driver.change(move))

    def _place(self, which: int | DelayKey) -> tuple[Partition, int]:
        if isinstance(which, int):
            return self._partition(), _identity_of("number", which) - 1
        return delaying.find_by_key((self._partition(),), key_of(which) or b"")

    def put_later(self, values: Sequence[Value], options: MessageOptions) -> range:
        """Schedule messages; the numbers by which they can be cancelled."""

        def schedule(now: Now) -> range:
            delayed = [delayed_of(value, options, now.wall_ns) for value in values]
            if not delayed:
                return range(0)
            topic = self._partition().topic
            stored = self._driver.node.publish_delayed(topic, delayed, now)
            return range(stored[0].offset + 1, stored[-1].offset + 2)

        def schedule_plain(now: Now) -> range:
            return self._schedule_values(plain, options, now)

        plain = [value for value in values if type(value) is bytes]
        is_plain = len(plain) > 1 and not options.keys() - {"delay", "deliver_at"}
        is_plain = is_plain and len(plain) == len(values)
        return self._driver.change(schedule_plain if is_plain else schedule)

    def _schedule_values(self, values: list[bytes], options: MessageOptions, now: Now) -> range:
        """Many bare values with one due time, without an object for each."""
        due_ns = due_of(options, now.wall_ns)
        assert due_ns is not None, "the caller looked"
        partition = self._partition()
        ttl_ms = partition.config.ttl_ms
        expires_at = None if ttl_ms == OFF else max(due_ns, now.wall_ns) + ttl_ms * 1_000_000
        self._driver.node.guard.admit_bytes(sum(map(len, values)), now)
        first = partition.delayed.end_offset
        for piece in _pieces(values):
            columns = Columns(
                values=piece,
                timestamps=now.wall_ns,
                expires_at=expires_at,
                due_at=due_ns,
            )
            partition.schedule(columns, now)
        return range(first + 1, partition.delayed.end_offset + 1)


def _pieces(values: list[bytes]) -> list[list[bytes]]:
    """Halves of halves, until each is good for a batch."""
    count = len(values)
    size = sum(map(len, values))
    if count < 2 or (size <= _BATCH_BYTES_MAX and count <= _BATCH_MESSAGES_MAX):
        return [values] if count else []
    return _pieces(values[: count // 2]) + _pieces(values[count // 2 :])


def _shown(waiting: Waiting) -> DelayedMessage:
    return DelayedMessage(
        waiting.id + 1,
        waiting.state,
        datetime.fromtimestamp(waiting.due_ns / _S_NS).astimezone(),
        waiting.delay_key,
        None if waiting.message is None else waiting.message.value,
        waiting.damage,
    )


def _identity_of(what: str, found: object) -> int:
    """A number that a delayed message could have: none has a larger one."""
    return min(whole_number(what, found), _IDENTITY_MAX)
