"""`Delivery` and its commands against a group that keeps one row a message; and every way to the same state."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.broker.partition import FORMAT
from penstock.codec import Marks, read_head
from penstock.config import DeliveryConfig, TtlAction
from penstock.delivery import (
    Choice,
    Delivery,
    DeliveryRecord,
    FailureRules,
    LeaseRequest,
    Undeliverable,
    commands,
    lanes,
    offset_answers,
)
from penstock.delivery.records import Leased, Moved, Released, Retried, Rewound
from penstock.errors import NotHeld, Refused, WrongOwner

from .naive import MS, Looked, Naive
from .states import FINISHED, State, can_become, state_of

MEMBERS = ("ann", "bob", "eve")
WALL_NS = 10**18
FIRST = 12
UNFINISHED = (State.READY, State.LEASED, State.WAITING)
CONFIGS = st.builds(
    DeliveryConfig,
    max_retries=st.sampled_from([-1, 0, 1, 3]),
    backoff_base_ms=st.sampled_from([0, 1, 7]),
    backoff_max_ms=st.sampled_from([0, 20]),
    max_in_flight=st.sampled_from([1, 9, 100]),
    max_in_flight_per_consumer=st.sampled_from([1, 6, 100]),
    ttl_action=st.sampled_from(TtlAction),
    dlq_enabled=st.booleans(),
)
# What a group's life is made of, the usual more often than the rest.
OFTEN = ("publish", "poll", "poll", "poll", "answer", "answer", "answer", "pass_time")
SELDOM = (
    "answer_by_offset",
    "answer_by_offset",
    "release",
    "commit",
    "overtake",
    "reset",
    "reopen",
    "skip",
    "snapshot",
    "restart",
)
STEPS = st.tuples(st.sampled_from((*OFTEN, *OFTEN, *SELDOM)), st.integers(0, 2**32 - 1))


def through_bytes(records) -> list[DeliveryRecord]:
    """The records as a restart would read them."""
    batch = FORMAT.to_batch(
        [*map(FORMAT.encode, records)], marks=Marks(control=True), now_ns=0
    ).to_bytes()
    return list(FORMAT.from_batch(batch, read_head(batch), "memory"))


def snapshot_of(delivery: Delivery) -> dict[str, object]:
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
        "ahead": delivery.ahead,
        "leases": leases,
        "queue": sorted({*delivery.ready, *delivery.waiting}),
        "failures": delivery.failures,
        "released": {member: sorted(one) for member, one in delivery.released.items()},
        "held_by": delivery.leases.held_by,
        "in_flight": delivery.leases.in_flight,
        "next_lease": delivery.next_lease,
        "acked": {
            lease: sorted(delivery.acked_recently.of(lease))
            for lease, _ in delivery.acked_recently.entries()
        },
        "counts": (delivery.expired_count, delivery.dead_count, delivery.skipped_count),
        "active": delivery.active_at_ns,
    }


class Group:
    """One group on one partition and its naive twin. Each step gets dice of its own."""

    def __init__(self, config: DeliveryConfig, start: int) -> None:
        self.config, self.start = config, start
        self.delivery = Delivery(1, start, now_ns=0)
        self.naive = Naive(config, start)
        self.naive.publish(FIRST)
        self.journal: list[DeliveryRecord] = []
        self.snapshots: list[tuple[list[DeliveryRecord], int]] = [([], 0)]
        self.leases: list[tuple[int, set[int]]] = []
        self.dead_sequences: list[int] = []

    def failing(self) -> FailureRules:
        sequence = max(self.dead_sequences, default=0) + 1
        at_ns = WALL_NS + self.naive.now_ns
        return FailureRules(self.config, random.Random(1), sequence, at_ns)

    def record(self, records: Sequence[DeliveryRecord]) -> None:
        """Journal and apply, watching every message on the way."""
        for record in through_bytes(records) if records else ():
            before = {one: state_of(self.delivery, one) for one in self.naive.rows}
            floor = self.delivery.progress.floor
            attempts = {one: row.attempts for one, row in self.delivery.failures.items()}
            self.delivery.apply(record)
            self.journal.append(record)
            assert isinstance(record, Rewound) or self.delivery.progress.floor >= floor
            for offset, row in self.delivery.failures.items():
                assert isinstance(record, Released) or row.attempts >= attempts.get(offset, 0)
            self.check_transitions(before)
            if getattr(record, "sequence", -1) >= 0:
                self.dead_sequences.append(record.sequence)

    def check_transitions(self, before: dict[int, State]) -> None:
        for offset, old in before.items():
            new = state_of(self.delivery, offset)
            # Why a message is finished is not kept, so any finished state will do on either side.
            olds = FINISHED if old in FINISHED else {old}
            news = FINISHED if new in FINISHED else {new}
            assert old is new or any(can_become(a, b) for a in olds for b in news), (offset, old)

    def publish(self, dice: random.Random) -> None:
        self.naive.publish(dice.randint(1, 6))

    def poll(self, dice: random.Random) -> None:
        member, limit = dice.choice(MEMBERS), dice.randint(1, 8)
        room = commands.room_for(self.delivery, member, self.config, limit=limit)
        assert max(0, room) == self.naive.room(member, limit)
        if room <= 0:
            return
        look = room + dice.choice([0, 0, 5])
        choice = commands.choose(self.delivery, limit=look, end=self.naive.end)
        assert list(choice.offsets) == self.naive.of(State.READY)[:look]
        looked = Looked(list(choice.offsets), set(), set(), room)
        if dice.random() < 0.3:
            looked.expired = {one for one in looked.offsets if dice.random() < 0.4}
            looked.absent = {one for one in looked.offsets if dice.random() < 0.4} - looked.expired
        self.lease(member, choice, looked, dice.randint(1, 40))

    def lease(self, member: str, choice: Choice, looked: Looked, duration_ms: int) -> None:
        unfit = Undeliverable(BitMap64(looked.expired), BitMap64(looked.absent))
        grant = LeaseRequest(member, looked.room, duration_ms)
        outcome = commands.lease(self.delivery, choice, unfit, grant, self.failing())
        number = self.delivery.next_lease
        self.record(outcome.records)
        taken = self.naive.poll(member, number, duration_ms, looked)
        assert list(outcome.reply.offsets) == taken
        if taken:
            assert outcome.reply.lease == number
            self.leases.append((number, set(taken)))

    def answer(self, dice: random.Random) -> None:
        """With receipts of a lease, most often one that is held, and sometimes with offsets that are not its own."""
        if not self.leases:
            return
        number, granted = dice.choice(self.leases)
        if self.delivery.leases.by_number and dice.random() < 0.7:
            number = dice.choice(sorted(self.delivery.leases.by_number))
            granted = set(self.delivery.leases.holding(number))
        offsets = set(dice.sample(sorted(granted), dice.randint(1, len(granted))))
        if dice.random() < 0.2:
            offsets |= {dice.randint(0, self.naive.end + 2) for _ in range(3)}
        how = dice.choice([self.ack, self.ack, self.nack, self.nack, self.reject, self.extend])
        how(number, offsets, dice)

    def ack(self, number: int, offsets: set[int], dice: random.Random) -> None:
        outcome = commands.ack(self.delivery, number, BitMap64(offsets))
        self.record(outcome.records)
        done, repeated = self.naive.ack(number, offsets)
        assert set(outcome.reply.done) == done
        assert set(outcome.reply.repeated) == repeated
        assert set(outcome.reply.stale) == offsets - done - repeated

    def nack(self, number: int, offsets: set[int], dice: random.Random) -> None:
        delay_ms = dice.choice([None, 0, 5, 30])
        outcome = commands.nack(
            self.delivery, number, BitMap64(offsets), self.failing(), error="no", delay_ms=delay_ms
        )
        self.record(outcome.records)
        for offset in self.taken(outcome.reply, number, offsets):
            self.naive.fail(offset, delay_ms)
        self.advance(0)

    def reject(self, number: int, offsets: set[int], dice: random.Random) -> None:
        outcome = commands.reject(
            self.delivery, number, BitMap64(offsets), self.failing(), error="bad"
        )
        self.record(outcome.records)
        for offset in self.taken(outcome.reply, number, offsets):
            self.naive.finish(offset, State.DEAD)

    def extend(self, number: int, offsets: set[int], dice: random.Random) -> None:
        duration_ms = dice.randint(1, 40)
        outcome = commands.extend(self.delivery, number, BitMap64(offsets), duration_ms=duration_ms)
        self.record(outcome.records)
        for offset in self.taken(outcome.reply, number, offsets):
            self.naive.extend(offset, duration_ms)

    def taken(self, answered: commands.AnswerResult, number: int, offsets: set[int]) -> set[int]:
        """What the twin would take; of these three answers none may be repeated."""
        done = self.naive.held(number, offsets)
        assert set(answered.done) == done
        assert set(answered.stale) == offsets - done
        assert not answered.repeated
        return done

    def answer_by_offset(self, dice: random.Random) -> None:
        """For any message, by any member or by none in particular; the late ones are the point."""
        offset = dice.randint(self.start, self.naive.end - 1)
        if self.delivery.cursor > self.start and dice.random() < 0.7:
            offset = dice.randint(self.start, self.delivery.cursor - 1)
        how = dice.choice([self.ack_late, self.ack_late, self.nack_late, self.ack_up_to])
        how(offset, dice.choice([None, *MEMBERS, self.naive.rows[offset].last or None]))

    def ack_late(self, offset: int, member: str | None) -> None:
        is_finished = self.naive.rows[offset].state in FINISHED
        if not self.naive.ack_by_offset(offset, member):
            with pytest.raises((WrongOwner, NotHeld), match=rf"^offset {offset} "):
                offset_answers.ack(self.delivery, offset, member=member)
            return
        records = offset_answers.ack(self.delivery, offset, member=member)
        assert len(records) == (not is_finished)
        self.record(records)

    def nack_late(self, offset: int, member: str | None) -> None:
        if not self.naive.nack_by_offset(offset, member):
            with pytest.raises((WrongOwner, NotHeld), match=rf"^offset {offset} "):
                offset_answers.held(self.delivery, offset, member=member)
            return
        number = offset_answers.held(self.delivery, offset, member=member).number
        offsets = BitMap64((offset,))
        outcome = commands.nack(self.delivery, number, offsets, self.failing(), error="no")
        self.record(outcome.records)
        self.advance(0)

    def ack_up_to(self, offset: int, member: str | None) -> None:
        if self.naive.may_ack_up_to(offset, member):
            self.commit_to(
                offset + 1, offset_answers.ack_up_to(self.delivery, offset, member=member)
            )
        else:
            with pytest.raises((WrongOwner, NotHeld)):
                offset_answers.ack_up_to(self.delivery, offset, member=member)

    def pass_time(self, dice: random.Random) -> None:
        self.advance(dice.choice([0, 1, 5, 30]))

    def advance(self, ms: int) -> None:
        now_ns = self.naive.now_ns + ms * MS
        self.delivery.tick(now_ns)
        while records := commands.expire_due(self.delivery, self.failing()):
            self.record(records)
        self.delivery.tick(now_ns)
        self.naive.tick(now_ns)

    def release(self, dice: random.Random) -> None:
        member = dice.choice(MEMBERS)
        self.record(commands.release(self.delivery, member, self.failing()))
        self.naive.release(member)

    def commit(self, dice: random.Random) -> None:
        offset = dice.randint(0, self.naive.end)
        self.commit_to(offset, commands.commit(self.delivery, offset))

    def commit_to(self, offset: int, records: Sequence[DeliveryRecord]) -> None:
        # What was reopened below the floor is not passed by a commit.
        kept = {one: replace(self.naive.rows[one]) for one in self.delivery.progress.reopened}
        self.record(records)
        assert self.delivery.progress.floor >= offset
        self.naive.commit(offset)
        self.naive.rows.update(kept)

    def overtake(self, dice: random.Random) -> None:
        start = dice.randint(0, self.naive.end)
        self.record(commands.overtake(self.delivery, start))
        self.naive.lose(start)

    def skip(self, dice: random.Random) -> None:
        start = dice.randint(0, self.delivery.cursor)
        end = dice.randint(start, max(start, self.naive.end))
        self.record(commands.skip(self.delivery, start, end))
        self.naive.skip(start, end)

    def reset(self, dice: random.Random) -> None:
        offset = dice.randint(self.start, self.naive.end)
        self.record(commands.rewind(self.delivery, offset))
        self.naive.rewind(offset)

    def reopen(self, dice: random.Random) -> None:
        finished = self.naive.of(*FINISHED)
        if finished:
            chosen = set(dice.sample(finished, dice.randint(1, min(4, len(finished)))))
            self.record(commands.reopen(self.delivery, BitMap64(chosen)))
            self.naive.reopen(chosen)

    def snapshot(self, dice: random.Random) -> None:
        self.snapshots.append((through_bytes(self.delivery.snapshot()), len(self.journal)))

    def restart(self, dice: random.Random) -> None:
        """Go on with what the journal, or a snapshot and what follows, makes of it: leases begin anew."""
        restarted = self.replayed(*dice.choice(self.snapshots))
        assert snapshot_of(restarted) == snapshot_of(self.delivery)
        self.delivery = restarted
        for lease in restarted.leases.by_number.values():
            for term in lease.terms:
                for offset in term.offsets:
                    self.naive.rows[offset].deadline_ns = term.deadline_ns
        for offset in self.naive.of(State.READY, State.WAITING):
            row = self.naive.rows[offset]
            row.state = State.WAITING if offset in restarted.waiting else State.READY
            row.due_ns = restarted.waiting.get(offset, float("inf"))
        self.advance(0)

    def replayed(self, images: Sequence[DeliveryRecord], tail: int) -> Delivery:
        fresh = Delivery(1, self.start, now_ns=self.naive.now_ns)
        for record in (*images, *self.journal[tail:]):
            fresh.apply(record)
        return fresh

    def check(self) -> None:
        self.check_rows()
        self.check_places()
        delivery, naive = self.delivery, self.naive
        assert delivery.leases.in_flight == len(naive.of(State.LEASED)) <= self.config.max_in_flight
        counts = (delivery.dead_count, delivery.expired_count, delivery.skipped_count)
        assert counts == (len(naive.dead), naive.expired, naive.skipped)
        unfinished = naive.of(*UNFINISHED)
        assert delivery.progress.unfinished_below(naive.end) == len(unfinished)
        lowest = min(delivery.progress.lowest_unfinished(), naive.end)
        assert min(unfinished, default=naive.end) == lowest
        assert self.dead_sequences == list(range(1, len(self.dead_sequences) + 1))
        times = [row.deadline_ns for row in naive.rows.values() if row.state is State.LEASED]
        times += [row.due_ns for row in naive.rows.values() if row.state is State.WAITING]
        assert delivery.next_due_ns() == min(times, default=float("inf"))

    def check_rows(self) -> None:
        """Every message is where the twin has it, and was delivered as often."""
        for offset, row in self.naive.rows.items():
            state = state_of(self.delivery, offset)
            expected = State.ACKED if row.state in FINISHED else row.state
            assert state is expected, (offset, state, row)
            if row.state in {State.READY, State.WAITING}:
                assert self.delivery.last_member(offset) == (row.last or None), offset
            if row.state in {State.LEASED, State.WAITING}:
                assert self.delivery.attempts_of(offset) == row.attempts, offset

    def check_places(self) -> None:
        """A message is in one place only, and in the hands of one member at the most."""
        delivery = self.delivery
        leases = delivery.leases.by_number.values()
        held = Counter(offset for one in leases for offset in one.offsets())
        for offset in range(self.start, self.naive.end):
            places = [
                delivery.progress.is_finished(offset),
                offset in delivery.ready,
                offset in delivery.waiting,
                held[offset] == 1,
                offset >= delivery.cursor,
            ]
            assert places.count(True) == 1, (offset, places)
            assert held[offset] <= 1


@given(CONFIGS, st.integers(0, 5), st.lists(STEPS, min_size=40, max_size=120))
def test_a_group_does_what_its_naive_twin_does_and_any_replay_ends_where_it_is(
    config: DeliveryConfig, start: int, steps: list[tuple[str, int]]
) -> None:
    group = Group(config, start)
    for name, seed in steps:
        getattr(group, name)(random.Random(seed))
        group.check()
    for images, tail in group.snapshots:
        assert snapshot_of(group.replayed(images, tail)) == snapshot_of(group.delivery)


def test_a_choice_takes_nothing_until_it_is_leased() -> None:
    delivery = Delivery(1, 0, now_ns=0)
    assert commands.choose(delivery, limit=3, end=10) == Choice(
        BitMap64([0, 1, 2]), 3, delivery.hints.turns
    )
    assert commands.choose(delivery, limit=3, end=2) == Choice(
        BitMap64([0, 1]), 2, delivery.hints.turns
    )
    assert delivery.cursor == 0


def test_only_what_is_finished_can_be_reopened() -> None:
    delivery = Delivery(1, 3, now_ns=0)
    with pytest.raises(Refused, match="offset 3 is not finished"):
        commands.reopen(delivery, BitMap64([2, 3]))


def test_what_is_skipped_ahead_of_the_cursor_is_not_handed_out_later() -> None:
    delivery = Delivery(1, 3, now_ns=0)
    for record in commands.skip(delivery, 4, 9):
        delivery.apply(record)
    assert (delivery.cursor, list(delivery.ahead), delivery.unseen_below(11)) == (
        3,
        [*range(4, 9)],
        3,
    )
    choice = lanes.choose(delivery, lanes.Lanes(), lanes.LaneRequest(9, 11, 0))
    assert (list(choice.offsets), choice.cursor) == ([3, 9, 10], 11)


def test_what_is_finished_at_the_cursor_is_not_handed_out_later() -> None:
    delivery = Delivery(1, 0, now_ns=0)
    delivery.apply(Leased(1, 1, "m", (0, 1), 1, 1000, 0))
    delivery.apply(Moved(1, (1, 1)))
    assert (delivery.cursor, list(delivery.ahead), delivery.unseen_below(4)) == (1, [1], 2)
    choice = lanes.choose(delivery, lanes.Lanes(), lanes.LaneRequest(9, 4, 0))
    assert (list(choice.offsets), choice.cursor) == ([2, 3], 4)


def test_a_late_ack_is_for_the_last_of_several_members_that_had_the_message() -> None:
    delivery = Delivery(1, 0, now_ns=0)
    for record in (
        Leased(1, 1, "ann", (0, 2), 2, 1000, 0),
        Released(1, 1, (0, 2), 0),
        Leased(1, 2, "bob", (0, 2), 2, 1000, 0),
        Retried(1, 2, (0, 2), 5, "no"),
    ):
        delivery.apply(record)
    for offset in (0, 1):
        with pytest.raises(NotHeld, match="bob last"):
            offset_answers.ack(delivery, offset, member="ann")
        (record,) = offset_answers.ack(delivery, offset, member="bob")
        delivery.apply(record)
    assert (delivery.progress.floor, delivery.waiting, delivery.released) == (2, {}, {})
