"""A group that keeps one row for each message and does everything by looking at all of them."""

from dataclasses import dataclass

from penstock.config import DeliveryConfig, TtlAction

from .states import FINISHED, State

MS = 1_000_000
NEVER = float("inf")


@dataclass
class Row:
    """One message of one group."""

    state: State = State.READY
    is_new: bool = True
    attempts: int = 0
    lease: int = 0
    member: str = ""
    deadline_ns: float = NEVER
    due_ns: float = NEVER
    # Who had it last, until it is finished.
    last: str = ""


@dataclass
class Looked:
    """What a poll looked at, what of it cannot be handed out, and how much may be."""

    offsets: list[int]
    expired: set[int]
    absent: set[int]
    room: int


@dataclass
class Naive:
    """What `Delivery` should be. The test numbers the leases of both."""

    config: DeliveryConfig
    start: int = 0
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.acked: set[tuple[int, int]] = set()
        self.end = self.start
        self.dead: list[int] = []
        self.skipped = self.expired = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.rows[self.end] = Row()
            self.end += 1

    def of(self, *states: State) -> list[int]:
        return [offset for offset, row in sorted(self.rows.items()) if row.state in states]

    @property
    def floor(self) -> int:
        """Everything below is finished, except what was reopened since."""
        unfinished = self.of(State.READY, State.LEASED, State.WAITING)
        return min(unfinished, default=self.end)

    def room(self, member: str, limit: int) -> int:
        leased = self.of(State.LEASED)
        mine = [one for one in leased if self.rows[one].member == member]
        total = self.config.max_in_flight - len(leased)
        return max(0, min(limit, total, self.config.max_in_flight_per_consumer - len(mine)))

    def poll(self, member: str, lease: int, ms: int, looked: "Looked") -> list[int]:
        """What a poll that looked at these messages hands out."""
        unfit = looked.expired | looked.absent
        fit = [one for one in looked.offsets if one not in unfit]
        taken, rest = fit[: looked.room], fit[looked.room :]
        border = min((one for one in rest if self.rows[one].is_new), default=self.end)
        for offset in looked.offsets:
            if offset < border and offset in looked.expired:
                self.finish(offset, self.unfit_state())
            elif offset < border and offset in looked.absent:
                self.finish(offset, State.ACKED)
        for offset in taken:
            row = self.rows[offset]
            row.state, row.is_new, row.attempts = State.LEASED, False, row.attempts + 1
            row.lease, row.member, row.last = lease, member, member
            row.deadline_ns = self.now_ns + ms * MS
        return taken

    def skip(self, start: int, end: int) -> None:
        for offset in self.of(State.READY, State.WAITING):
            if start <= offset < end:
                self.finish(offset, State.ACKED)
                self.skipped += 1

    def unfit_state(self) -> State:
        is_dead = self.config.ttl_action is TtlAction.DEAD_LETTER
        return State.DEAD if is_dead else State.EXPIRED

    def finish(self, offset: int, state: State) -> None:
        row = self.rows[offset]
        if state is State.DEAD:
            self.dead.append(offset)
        if state is State.EXPIRED:
            self.expired += 1
        row.state, row.is_new, row.attempts, row.lease = state, False, 0, 0
        row.member, row.deadline_ns, row.due_ns, row.last = "", NEVER, NEVER, ""

    def held(self, lease: int, offsets: set[int]) -> set[int]:
        return {
            one
            for one in offsets
            if one in self.rows
            and self.rows[one].state is State.LEASED
            and self.rows[one].lease == lease
        }

    def ack(self, lease: int, offsets: set[int]) -> tuple[set[int], set[int]]:
        """What was taken, and what repeats."""
        done = self.held(lease, offsets)
        repeated = {one for one in offsets - done if (lease, one) in self.acked}
        for offset in done:
            self.finish(offset, State.ACKED)
            self.acked.add((lease, offset))
        return done, repeated

    def ack_by_offset(self, offset: int, member: str | None) -> bool:
        """Whether it counts: of what is finished, held or was held by the member, and by no other now."""
        row = self.rows[offset]
        if row.state in FINISHED:
            return True
        is_mine = member is None or member == row.last
        if not row.last or not is_mine:
            return False
        if row.state is State.LEASED:
            self.acked.add((row.lease, offset))
        self.finish(offset, State.ACKED)
        return True

    def nack_by_offset(self, offset: int, member: str | None) -> bool:
        row = self.rows[offset]
        if row.state is not State.LEASED or member not in (None, row.member):
            return False
        self.fail(offset)
        return True

    def may_ack_up_to(self, offset: int, member: str | None) -> bool:
        rows = [row for one, row in self.rows.items() if one <= offset]
        others = [row for row in rows if row.state is State.LEASED and row.member != member]
        is_new = any(row.is_new and row.state is State.READY for row in rows)
        return not is_new and (member is None or not others)

    def fail(self, offset: int, delay_ms: int | None = None) -> None:
        row, config = self.rows[offset], self.config
        if config.max_retries >= 0 and row.attempts >= config.max_retries + 1:
            self.finish(offset, State.DEAD)
            return
        if delay_ms is None:
            delay_ms = config.backoff_base_ms
            for _ in range(row.attempts - 1):
                delay_ms *= config.backoff_multiplier
            delay_ms = int(min(delay_ms, config.backoff_max_ms))
        row.state, row.lease, row.member, row.deadline_ns = State.WAITING, 0, "", NEVER
        row.due_ns = self.now_ns + delay_ms * MS

    def extend(self, offset: int, ms: int) -> None:
        self.rows[offset].deadline_ns = self.now_ns + ms * MS

    def tick(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for offset in self.of(State.LEASED):
            if self.rows[offset].deadline_ns <= now_ns:
                self.fail(offset)
        self.wake()

    def wake(self) -> None:
        for offset in self.of(State.WAITING):
            if self.rows[offset].due_ns <= self.now_ns:
                row = self.rows[offset]
                row.state, row.due_ns = State.READY, NEVER

    def release(self, member: str) -> None:
        mine = [one for one in self.of(State.LEASED) if self.rows[one].member == member]
        if not mine:
            return
        oldest = min(mine, key=lambda one: (self.rows[one].lease, one))
        for offset in mine:
            row = self.rows[offset]
            is_last = self.config.max_retries >= 0 and row.attempts > self.config.max_retries
            if offset == oldest and is_last:
                self.finish(offset, State.DEAD)
                continue
            row.attempts -= offset != oldest
            row.state, row.lease, row.member, row.deadline_ns = State.READY, 0, "", NEVER

    def commit(self, offset: int) -> None:
        for one in self.of(State.READY, State.LEASED, State.WAITING):
            if one < offset:
                self.finish(one, State.ACKED)

    def lose(self, start: int) -> int:
        """The log starts later now. How many messages the group had not finished."""
        lost = [o for o in self.of(State.READY, State.LEASED, State.WAITING) if o < start]
        for offset in lost:
            self.finish(offset, State.ACKED)
        self.skipped += len(lost)
        return len(lost)

    def rewind(self, offset: int) -> None:
        self.acked.clear()
        for one in self.rows:
            self.rows[one] = Row(State.ACKED, is_new=False) if one < offset else Row()

    def reopen(self, offsets: set[int]) -> None:
        for offset in offsets:
            self.rows[offset] = Row(is_new=False)
