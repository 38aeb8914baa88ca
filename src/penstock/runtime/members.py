"""Members of assigned groups, driven by threads: their commands, and those among them who wait for messages.

A member that waits is alive, whatever its session timeout says. Its wait ends when one of its own partitions has
something, and at once when it must release a partition or may take one.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..api.consume import Poll
from ..api.leased import LeasedMessages
from ..api.principals import LOCAL
from ..broker.consumption import ready_count
from ..broker.memberships import Ask
from ..broker.partition import Now, Partition
from ..delivery import Delivery
from ..errors import Fatal, PenstockError
from .ticker import NEVER_NS
from .waiting import Waiter

if TYPE_CHECKING:
    from ..broker.node import Node
    from .threads import ThreadDriver

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Seat:
    """Where one member waits."""

    group: str
    ask: Ask
    waiter: Waiter
    # The node may be opened anew meanwhile, and then nobody is a member.
    node: "Node"
    places: list[tuple[Partition, Delivery]]
    watch: Callable[[], None]


class MemberRoom:
    """Belongs to a driver. Thread-safe, except for what says that the lock is held."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver
        self._seats: dict[Waiter, _Seat] = {}
        self._by_group: dict[str, set[_Seat]] = {}
        # Seats whose partitions have changed, and the groups as they were when last looked at: a change looks at those
        # whom it may concern, not at all who wait.
        self._touched: set[Waiter] = set()
        self._versions: dict[str, int] = {}

    def change(self, command: Callable[[Now], T]) -> T:
        """Run a command of a member; return when its effect is as durable as the fsync policy says."""
        return self._driver.change(lambda now: self._run(command, now))

    def _run(self, command: Callable[[Now], T], now: Now) -> T:
        reply = command(now)
        self._driver.expect(self._driver.node.assigned.next_due_ns())
        return reply

    def sign(self, group: str, member: str, command: Callable[[Now], T]) -> T:
        """Run a command that is a sign of life and hardly more."""

        def run(now: Now) -> T:
            reply = command(now)
            self._driver.expect(self._driver.node.assigned.due_ns(group, member))
            return reply

        return self._driver.change_at_once(run)

    def enter(
        self,
        group: str,
        ask: Ask,
        timeout_ns: int,
        on_settled: Callable[[], None] | None = None,
    ) -> Waiter:
        """Lease what is there, or begin to wait for it: the waiter is settled at once, or later.

        Below zero: wait for ever. With `on_settled` the ticker sees to it that the wait ends in time.
        """

        def take_or_wait(now: Now) -> Waiter:
            until_ns = NEVER_NS if timeout_ns < 0 else now.monotonic_ns + timeout_ns
            command = Poll("", group, ask.member, ask.limit)
            waiter = Waiter(command, LOCAL, until_ns, on_settled=on_settled)
            messages = self._take(group, ask, now)
            if messages or timeout_ns == 0 or self._driver.node.assigned.has_news(group, ask):
                waiter.settle(messages)
            else:
                self._sit_down(group, ask, waiter, now)
            self._driver.expect(self._driver.node.assigned.due_ns(group, ask.member))
            if on_settled is not None:
                self._driver.expect(until_ns)
            return waiter

        return self._driver.change_at_once(take_or_wait)

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer; what the waiter was settled with stays with it."""
        with self._driver.lock:
            if waiter in self._seats:
                self._get_up(self._seats[waiter])

    def abandon(self, waiter: Waiter) -> None:
        """Wait no longer, and give back what came a moment too late: nobody will see it, so it does not count."""
        self.leave(waiter)
        if waiter.messages:
            with suppress(PenstockError):
                self._driver.start(waiter.messages.release())

    def _sit_down(self, group: str, ask: Ask, waiter: Waiter, now: Now) -> None:
        node = self._driver.node
        node.assigned.wait(group, ask.member, now, is_over=False)
        known = ask._replace(changes=node.assigned.groups[group].members[ask.member].changes)
        places = node.assigned.places(group, ask.member)
        watch = partial(self._touch, waiter)
        self._seats[waiter] = seat = _Seat(group, known, waiter, node, places, watch)
        self._by_group.setdefault(group, set()).add(seat)
        for partition, _ in places:
            partition.watchers.add(watch)

    def _touch(self, waiter: Waiter) -> None:
        self._touched.add(waiter)

    def _get_up(self, seat: _Seat) -> None:
        del self._seats[seat.waiter]
        self._touched.discard(seat.waiter)
        self._by_group[seat.group].discard(seat)
        if not self._by_group[seat.group]:
            del self._by_group[seat.group]
        for partition, _ in seat.places:
            partition.watchers.discard(seat.watch)
        assigned, member = self._driver.node.assigned, seat.ask.member
        assigned.wait(seat.group, member, self._driver.now(), is_over=True)
        self._driver.expect(assigned.due_ns(seat.group, member))

    def _take(self, group: str, ask: Ask, now: Now) -> LeasedMessages:
        return self._driver.node.assigned.poll(group, ask, now)

    # The rest is called with the lock held.

    def __bool__(self) -> bool:
        return bool(self._seats)

    def look_at_all(self) -> None:
        """Time has passed, which makes messages ready without a word: let the next `serve` look everywhere."""
        self._touched.update(self._seats)

    def serve(self) -> None:
        """Hand out what is ready, and wake whoever has to hear of something."""
        if not self._touched and not self._by_group:
            return
        waiters, self._touched = self._touched, set()
        for group, seats in self._by_group.items():
            if self._is_anew(group):
                waiters.update(seat.waiter for seat in seats)
        if not waiters:
            return
        now = self._driver.now()
        for seat in [self._seats[one] for one in waiters if one in self._seats]:
            if self._is_served(seat, now):
                self._get_up(seat)

    def _is_anew(self, group: str) -> bool:
        """Whether a group has changed since it was last looked at."""
        membership = self._driver.node.assigned.groups.get(group)
        version = -1 if membership is None else membership.version
        before, self._versions[group] = self._versions.get(group), version
        return before != version

    def _has_news(self, seat: _Seat) -> bool:
        if seat.node is not self._driver.node:
            return True
        member = seat.node.assigned.groups[seat.group].members.get(seat.ask.member)
        return member is None or member.changes != seat.ask.changes

    def _is_served(self, seat: _Seat, now: Now) -> bool:
        if self._has_news(seat):
            # Whoever is no member any more hears so with its next call.
            seat.waiter.settle(LeasedMessages())
            return True
        if not any(_may_have(*place) for place in seat.places):
            return False
        try:
            messages = self._take(seat.group, seat.ask, now)
        except Fatal:
            raise
        except PenstockError as error:
            # A damaged batch, a full disk: theirs to know, and none of whoever made messages ready.
            seat.waiter.settle(LeasedMessages(), error)
            return True
        if messages:
            seat.waiter.settle(messages)
        return bool(messages)

    def end_overdue(self, now_ns: int) -> float:
        """Let those go whose time is up; when the next one's is."""
        for waiter in [one for one in self._seats if one.until_ns <= now_ns]:
            self._get_up(self._seats[waiter])
            waiter.settle(LeasedMessages())
        return min((one.until_ns for one in self._seats), default=NEVER_NS)

    def dismiss(self, error: BaseException) -> None:
        """Everybody goes with an error: the house is closed."""
        for waiter in self._seats:
            waiter.settle(LeasedMessages(), error)
        self._seats.clear()
        self._by_group.clear()


def _may_have(partition: Partition, delivery: Delivery) -> bool:
    """Whether a poll could find something. Where the order is strict, not while a batch is out."""
    if delivery.is_strict and delivery.leases.in_flight:
        return False
    return ready_count(partition, delivery) > 0
