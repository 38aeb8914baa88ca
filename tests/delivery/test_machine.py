"""`Delivery` and its commands against a group that keeps one row a message; and every way to the same state."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from pyroaring import BitMap64

from penstock.broker.partition import FORMAT
from penstock.codec import Marks, read_head
from penstock.config import DeliveryConfig, TtlAction
from penstock.delivery import Choice, Delivery, Failing, Grant, State, Unfit, commands
from penstock.delivery.records import Released, Rewound
from penstock.delivery.states import FINISHED, can_become

from .naive import MS, Looked, Naive

MEMBERS = ("ann", "bob", "eve")
WALL_NS = 10**18
CONFIGS = st.builds(
    DeliveryConfig,
    max_retries=st.sampled_from([-1, 0, 1, 3]),
    backoff_base_ms=st.sampled_from([0, 1, 7]),
    backoff_max_ms=st.sampled_from([0, 20]),
    max_in_flight=st.sampled_from([1, 6, 100]),
    max_in_flight_per_consumer=st.sampled_from([1, 4, 100]),
    ttl_action=st.sampled_from(TtlAction),
    dlq_enabled=st.booleans(),
)
OFFSETS = st.sets(st.integers(0, 40), max_size=8)
DURATIONS = st.integers(1, 40)


def through_bytes(records):
    """The records as a restart would read them."""
    batch = FORMAT.to_batch(records, marks=Marks(control=True), now_ns=0)
    return list(FORMAT.from_batch(batch, read_head(batch), "memory"))


def state_of(delivery: Delivery) -> dict[str, object]:
    """Everything that does not depend on when it was looked at."""
    leases = {
        number: (
            lease.member,
            lease.at_ns,
            sorted((offset, term.duration_ms) for term in lease.terms for offset in term.offsets),
        )
        for number, lease in delivery.leases.by_number.items()
    }
    return {
        "progress": delivery.progress,
        "cursor": delivery.cursor,
        "leases": leases,
        "queue": sorted({*delivery.ready, *delivery.waiting}),
        "failures": delivery.failures,
        "held_by": +delivery.leases.held_by,
        "in_flight": delivery.leases.in_flight,
        "next_lease": delivery.next_lease,
        "acked": {lease: sorted(acked) for lease, acked in delivery.acked_recently.items()},
        "counts": (delivery.expired_count, delivery.dead_count, delivery.skipped_count),
        "active": delivery.active_at_ns,
    }


class GroupMachine(RuleBasedStateMachine):
    """One group on one partition, told what to do in any order."""

    @initialize(config=CONFIGS, start=st.integers(0, 5))
    def begin(self, config: DeliveryConfig, start: int) -> None:
        self.config, self.start = config, start
        self.delivery = Delivery(1, start, now_ns=0)
        self.naive = Naive(config, start)
        self.journal: list[object] = []
        self.snapshots: list[tuple[list[object], int]] = []
        self.leases: list[tuple[int, set[int]]] = []
        self.entropy = random.Random(1)
        self.dead_sequences: list[int] = []

    def failing(self) -> Failing:
        sequence = max(self.dead_sequences, default=0) + 1
        return Failing(self.config, self.entropy, sequence, WALL_NS + self.naive.now_ns)

    def record(self, records) -> None:
        """Journal and apply, watching each message on the way."""
        if not records:
            return
        for record in through_bytes(records):
            before = self.states()
            floor = self.delivery.progress.floor
            attempts = {one: row.attempts for one, row in self.delivery.failures.items()}
            self.delivery.apply(record)
            self.journal.append(record)
            assert isinstance(record, Rewound) or self.delivery.progress.floor >= floor
            self.check_transitions(before)
            for offset, row in self.delivery.failures.items():
                is_released = isinstance(record, Released)
                assert is_released or row.attempts >= attempts.get(offset, 0)
            if getattr(record, "sequence", -1) >= 0:
                self.dead_sequences.append(record.sequence)

    def states(self) -> dict[int, State]:
        return {offset: self.delivery.state_of(offset) for offset in self.naive.rows}

    def check_transitions(self, before: dict[int, State]) -> None:
        for offset, old in before.items():
            new = self.delivery.state_of(offset)
            # Why a message is finished is not kept, so any finished state will do on either side.
            olds = FINISHED if old in FINISHED else {old}
            news = FINISHED if new in FINISHED else {new}
            # Between two records no time passes, but a retry may have become due: both are legal here.
            assert old is new or any(can_become(a, b) for a in olds for b in news), (offset, old)

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        self.naive.publish(count)

    @rule(
        member=st.sampled_from(MEMBERS),
        sizes=st.tuples(st.integers(1, 8), st.integers(1, 30)),
        expired=OFFSETS,
        absent=OFFSETS,
        duration_ms=DURATIONS,
    )
    def poll(self, member, sizes, expired, absent, duration_ms) -> None:
        limit, look = sizes
        room = commands.room_for(self.delivery, member, self.config, limit=limit)
        assert max(0, room) == self.naive.room(member, limit)
        if room <= 0:
            return
        look = max(look, room)
        choice = commands.choose(self.delivery, limit=look, end=self.naive.end)
        looked = Looked(list(choice.offsets), expired, absent - expired, room)
        assert looked.offsets == self.naive.of(State.READY)[:look]
        unfit = Unfit(BitMap64(expired) & choice.offsets, BitMap64(looked.absent) & choice.offsets)
        grant = Grant(member, room, duration_ms)
        outcome = commands.lease(self.delivery, choice, unfit, grant, self.failing())
        number = self.delivery.next_lease
        self.record(outcome.records)
        taken = self.naive.poll(member, number, duration_ms, looked)
        assert list(outcome.reply.offsets) == taken
        if taken:
            assert outcome.reply.lease == number
            self.leases.append((number, set(taken)))

    @rule(data=st.data())
    def skip(self, data) -> None:
        start = data.draw(st.integers(0, self.delivery.cursor))
        end = data.draw(st.integers(start, max(start, self.naive.end)))
        self.record(commands.skip(self.delivery, start, end))
        self.naive.skip(start, end)
        assert self.delivery.skipped_count == self.naive.skipped

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), extra=OFFSETS)
    def ack(self, data, extra: set[int]) -> None:
        number, offsets = self.receipts(data, extra)
        outcome = commands.ack(self.delivery, number, BitMap64(offsets))
        self.record(outcome.records)
        done, repeated = self.naive.ack(number, offsets)
        assert set(outcome.reply.done) == done
        assert set(outcome.reply.repeated) == repeated
        assert set(outcome.reply.stale) == offsets - done - repeated

    def receipts(self, data, extra: set[int]) -> tuple[int, set[int]]:
        """Some of any lease there ever was, and some offsets that may not belong to it."""
        number, granted = data.draw(st.sampled_from(self.leases))
        return number, data.draw(st.sets(st.sampled_from(sorted(granted)))) | extra

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), extra=OFFSETS, delay_ms=st.none() | st.integers(0, 30))
    def nack(self, data, extra: set[int], delay_ms: int | None) -> None:
        number, offsets = self.receipts(data, extra)
        outcome = commands.nack(
            self.delivery, number, BitMap64(offsets), self.failing(), error="no", delay_ms=delay_ms
        )
        self.record(outcome.records)
        done = self.naive.held(number, offsets)
        assert set(outcome.reply.done) == done
        assert set(outcome.reply.stale) == offsets - done
        for offset in done:
            self.naive.fail(offset, delay_ms)
        self.pass_time(0)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), extra=OFFSETS)
    def reject(self, data, extra: set[int]) -> None:
        number, offsets = self.receipts(data, extra)
        outcome = commands.reject(
            self.delivery, number, BitMap64(offsets), self.failing(), error="bad"
        )
        self.record(outcome.records)
        done = self.naive.held(number, offsets)
        assert set(outcome.reply.done) == done
        for offset in done:
            self.naive.finish(offset, State.DEAD)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), extra=OFFSETS, duration_ms=DURATIONS)
    def extend(self, data, extra: set[int], duration_ms: int) -> None:
        number, offsets = self.receipts(data, extra)
        outcome = commands.extend(self.delivery, number, BitMap64(offsets), duration_ms=duration_ms)
        self.record(outcome.records)
        done = self.naive.held(number, offsets)
        assert set(outcome.reply.done) == done
        for offset in done:
            self.naive.extend(offset, duration_ms)

    @rule(ms=st.integers(0, 30))
    def pass_time(self, ms: int) -> None:
        now_ns = self.naive.now_ns + ms * MS
        self.delivery.tick(now_ns)
        while records := commands.expire_due(self.delivery, self.failing()):
            self.record(records)
        self.delivery.tick(now_ns)
        self.naive.tick(now_ns)

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        self.record(commands.release(self.delivery, member, self.failing()))
        self.naive.release(member)

    @rule(data=st.data())
    def commit(self, data) -> None:
        offset = data.draw(st.integers(0, self.naive.end))
        # What was reopened below the floor is not passed by a commit.
        below = set(self.delivery.progress.reopened)
        self.record(commands.commit(self.delivery, offset))
        if offset > self.delivery.progress.floor:
            raise AssertionError("a commit leaves nothing unfinished below it")
        kept = {one: replace(self.naive.rows[one]) for one in below}
        self.naive.commit(offset)
        self.naive.rows.update(kept)

    @rule(data=st.data())
    def overtake(self, data) -> None:
        start = data.draw(st.integers(0, self.naive.end))
        self.record(commands.overtake(self.delivery, start))
        self.naive.lose(start)
        assert self.delivery.skipped_count == self.naive.skipped

    @rule(data=st.data())
    def reset(self, data) -> None:
        offset = data.draw(st.integers(self.start, self.naive.end))
        self.record(commands.rewind(self.delivery, offset))
        self.naive.rewind(offset)

    @rule(data=st.data())
    def reopen(self, data) -> None:
        finished = self.naive.of(*FINISHED)
        if finished:
            chosen = data.draw(st.sets(st.sampled_from(finished), min_size=1, max_size=4))
            self.record(commands.reopen(self.delivery, BitMap64(chosen)))
            self.naive.reopen(chosen)

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append((through_bytes(self.delivery.snapshot()), len(self.journal)))

    @rule(data=st.data())
    def restart(self, data) -> None:
        """Go on with what the journal, or a snapshot and what follows, makes of it: leases begin anew."""
        images, tail = data.draw(st.sampled_from([([], 0), *self.snapshots]))
        restarted = self.replayed(images, tail)
        assert state_of(restarted) == state_of(self.delivery)
        self.delivery = restarted
        for lease in restarted.leases.by_number.values():
            for term in lease.terms:
                for offset in term.offsets:
                    self.naive.rows[offset].deadline_ns = term.deadline_ns
        for offset in self.naive.of(State.READY, State.WAITING):
            row = self.naive.rows[offset]
            row.state = State.WAITING if offset in restarted.waiting else State.READY
            row.due_ns = restarted.waiting.get(offset, float("inf"))
        self.pass_time(0)

    def replayed(self, images, tail: int) -> Delivery:
        fresh = Delivery(1, self.start, now_ns=self.naive.now_ns)
        for record in (*images, *self.journal[tail:]):
            fresh.apply(record)
        return fresh

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        for offset, row in self.naive.rows.items():
            state = self.delivery.state_of(offset)
            expected = State.ACKED if row.state in FINISHED else row.state
            assert state is expected, (offset, state, row)
            if row.state in {State.LEASED, State.WAITING}:
                assert self.delivery.attempts_of(offset) == row.attempts, offset

    @invariant()
    def a_message_is_in_one_place_only(self) -> None:
        delivery = self.delivery
        held = Counter(
            offset for one in delivery.leases.by_number.values() for offset in one.offsets()
        )
        assert not held or max(held.values()) == 1
        for offset in range(self.start, self.naive.end):
            places = [
                delivery.progress.is_finished(offset),
                offset in delivery.ready,
                offset in delivery.waiting,
                held[offset] == 1,
                offset >= delivery.cursor,
            ]
            assert places.count(True) == 1, (offset, places)

    @invariant()
    def limits_and_counts_hold(self) -> None:
        delivery, naive = self.delivery, self.naive
        leased = naive.of(State.LEASED)
        assert delivery.leases.in_flight == len(leased) <= self.config.max_in_flight
        assert delivery.dead_count == len(naive.dead)
        assert delivery.expired_count == naive.expired
        unfinished = naive.of(State.READY, State.LEASED, State.WAITING)
        assert delivery.progress.unfinished_below(naive.end) == len(unfinished)
        lowest = delivery.progress.lowest_unfinished()
        assert min(unfinished, default=naive.end) == min(lowest, naive.end)
        sequences = self.dead_sequences
        assert sequences == list(range(1, len(sequences) + 1))

    @invariant()
    def it_says_when_something_happens(self) -> None:
        times = [row.deadline_ns for row in self.naive.rows.values() if row.state is State.LEASED]
        times += [row.due_ns for row in self.naive.rows.values() if row.state is State.WAITING]
        assert self.delivery.next_due_ns() == min(times, default=float("inf"))

    def teardown(self) -> None:
        if not hasattr(self, "delivery"):
            return
        for images, tail in [([], 0), *self.snapshots]:
            assert state_of(self.replayed(images, tail)) == state_of(self.delivery)


TestGroupMachine = GroupMachine.TestCase


def test_a_choice_that_was_made_for_somebody_else_is_not_needed() -> None:
    """A choice is a plain value: nothing is taken until it is leased."""
    delivery = Delivery(1, 0, now_ns=0)
    choice = commands.choose(delivery, limit=3, end=10)
    assert choice == Choice(BitMap64([0, 1, 2]), 3)
    assert delivery.cursor == 0
