"""Messages that are to come later: how callers say when, and what they can do with those that wait."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple, TypedDict

from msgspec import UnsetType

from ..api.arguments import text, whole_count, whole_number
from ..api.delays import (
    FIRST_PLACE,
    CancelDelayed,
    DelayedId,
    DelayedMessage,
    DelayPlace,
    DelayState,
    DelayStats,
    DescribeDelays,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from ..api.publish import Delayed, Schedule, ScheduleValues
from ..api.units import Duration, datetime_ns
from ..errors import Damaged, NotFound, NotPending, Refused
from ..model import Message
from ..runtime.threads import ThreadDriver
from .messages import (
    DELAY_OPTIONS,
    LIMITS,
    MessageOptions,
    Value,
    as_bytes,
    due_of,
    message_of,
)

_S_NS = 1_000_000_000
_IDENTITY_MAX = 1 << 62

DelayKey = bytes | str


class Later(TypedDict, total=False):
    """When messages are to come."""

    delay: Duration
    deliver_at: datetime | str


def check_later(said: Later) -> None:
    """Refused: it says more than when messages are to come, or two of them would have one key."""
    if unknown := sorted(said.keys() - Later.__annotations__.keys()):
        known = ", ".join(Later.__annotations__)
        raise Refused(f"unknown option {unknown[0]!r} for several messages; known: {known}")


def is_delayed(options: MessageOptions) -> bool:
    return not DELAY_OPTIONS.isdisjoint(options)


def delayed_of(
    value: Value | UnsetType | Message, said: MessageOptions | Later, now_ns: int
) -> Delayed:
    """What a caller said, in one piece."""
    options: MessageOptions = said  # type: ignore[assignment]  # Some of the same keys, with the same types.
    due_ns = due_of(options, now_ns)
    if due_ns is None:
        raise Refused("a delay_key is for messages with a delay or a deliver_at")
    message = message_of(value, options, now_ns=now_ns)
    return Delayed(message, due_ns, key_of(options.get("delay_key")))


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
    ) -> list[DelayedMessage]:
        """What is to come next, earliest first; of what is due after a time, if you say one.

        Of one that the disk has damaged `message` is None and `damage` says where it is.
        """
        count, place = _count(limit), FIRST_PLACE
        if after is not None:
            place = DelayPlace(datetime_ns(after, "after"), _IDENTITY_MAX, 0)
        return self.driver.execute(ListDelayed(_topic(topic), count, place)).messages

    def delayed_get(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
    ) -> DelayedMessage:
        """One delayed message and its state, also after it has come, for as long as it is remembered."""
        return self.driver.execute(GetDelayed(_topic(topic), _which(partition, offset, delay_key)))

    def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
    ) -> None:
        """Never deliver it. NotPending: it has come, or was cancelled before."""
        which = _which(partition, offset, delay_key)
        self.driver.execute(CancelDelayed(_topic(topic), which, wants_message=False))

    def reschedule(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: DelayKey | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
    ) -> DelayedMessage:
        """Deliver it after another delay, counted from now, or at another time. NotPending: too late."""
        which = _which(partition, offset, delay_key)
        due_ns = _due_ns(delay, deliver_at, self.driver.now().wall_ns)
        return self.driver.execute(RescheduleDelayed(_topic(topic), which, due_ns))

    def delay_stats(self, topic: str) -> list[DelayStats]:
        """Delayed messages of each partition: pending, and what became of the others."""
        name = _topic(topic)
        return self.driver.execute(DescribeDelays(name))[name]


def _count(limit: int) -> int:
    """A limit that the caller may have made as large as a number can be: no topic has so many."""
    return min(whole_count("limit", limit), _IDENTITY_MAX)


def _topic(given: str) -> str:
    return text("a topic's name", given)


def _which(partition: int | None, offset: int | None, key: DelayKey | None) -> DelayedId | bytes:
    if key is not None and partition is None and offset is None:
        return key_of(key) or b""
    if key is None and partition is not None and offset is not None:
        return DelayedId(partition, _identity_of("offset", offset))
    raise Refused("a delayed message is named by its partition and offset, or by its delay_key")


def _due_ns(delay: Duration | None, deliver_at: datetime | str | None, now_ns: int) -> int:
    options = MessageOptions()
    if delay is not None:
        options["delay"] = delay
    if deliver_at is not None:
        options["deliver_at"] = deliver_at
    due_ns = due_of(options, now_ns)
    if due_ns is None:
        raise Refused("say when: delay or deliver_at")
    return due_ns


class DelayedPut(NamedTuple):
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
    _topic: str

    @abstractmethod
    def _expect_due(self, due_ns: int) -> None:
        """A message is to come at a time."""

    def delayed(self, limit: int = 100) -> list[DelayedPut]:
        """What is to come next, earliest first. Of one that the disk has damaged `damage` says where it is."""
        page = self._driver.execute(ListDelayed(self._topic, _count(limit)))
        return [_shown(one) for one in page.messages]

    def delayed_get(self, which: int | DelayKey) -> DelayedPut:
        """One delayed message and its state, also after it has come, for as long as it is remembered."""
        with _named(which):
            return _shown(self._driver.execute(GetDelayed(self._topic, _which_put(which))))

    def cancel(self, which: int | DelayKey) -> None:
        """Never hand it out. NotPending: it has come, or was cancelled before."""
        with _named(which):
            self._driver.execute(CancelDelayed(self._topic, _which_put(which), wants_message=False))

    def reschedule(
        self,
        which: int | DelayKey,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
    ) -> DelayedPut:
        """Let it come after another delay, counted from now, or at another time. NotPending: too late."""
        wanted = _which_put(which)
        due_ns = _due_ns(delay, deliver_at, self._driver.now().wall_ns)
        with _named(which):
            moved = self._driver.execute(RescheduleDelayed(self._topic, wanted, due_ns))
        self._expect_due(due_ns)
        return _shown(moved)

    def put_later(self, values: Sequence[Value | UnsetType], options: MessageOptions) -> range:
        """Schedule messages; the numbers by which they can be cancelled."""
        if not values:
            return range(0)
        now_ns = self._driver.clock.now_ns()
        command: Schedule | ScheduleValues
        plain = [value for value in values if type(value) is bytes]
        if 1 < len(plain) == len(values) and options.keys() <= {"delay", "deliver_at"}:
            # Many bare values with one due time, without an object for each.
            due_ns = due_of(options, now_ns)
            assert due_ns is not None, "the caller looked"
            command = ScheduleValues(self._topic, plain, due_ns)
        else:
            delayed = [delayed_of(value, options, now_ns) for value in values]
            due_ns = delayed[0].due_ns
            command = Schedule(self._topic, delayed)
        stored = self._driver.execute(command)
        self._expect_due(due_ns)
        return range(stored[0].offset + 1, stored[-1].offset + 2)


def _shown(found: DelayedMessage) -> DelayedPut:
    return DelayedPut(
        found.id + 1,
        found.state,
        datetime.fromtimestamp(found.due_ns / _S_NS).astimezone(),
        found.delay_key,
        None if found.message is None else found.message.value,
        found.damage,
    )


def _which_put(which: int | DelayKey) -> DelayedId | bytes:
    if isinstance(which, int):
        return DelayedId(0, _identity_of("number", which) - 1)
    return key_of(which) or b""


def _identity_of(what: str, found: object) -> int:
    """A number that a delayed message could have: none has a larger one."""
    return min(whole_number(what, found), _IDENTITY_MAX)
