"""The leader's side: the streams to its followers, and what replies wait for."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from threading import Lock

from ...api.health import PASS, WARN, Check
from ...errors import LeaderUnknown, NoSpace, PenstockError, PromotionRaced, Unavailable
from ...ports import Disk
from ...replication.frames import Durable, Hello
from ...replication.lag import Lag
from ...replication.leader import Leader
from ...replication.replica_file import read_record, write_record
from ...replication.storage import ClosedStorage
from ...replication.stream import Stream, StreamState
from ...runtime.asynchronous import AsyncDriver
from ...runtime.commit_gate import CommitGate
from ...runtime.fatal import fatal_ends_process
from ..audit import AuditLog
from ..settings import Settings
from .link import HEARTBEAT_S, Alive, Introduction, Link, PeerFrame
from .membership import Membership
from .promotion import Role

_TAKE_BYTES = 1 << 20
_NOTE_S = 1.0
# So long a commit waits for the next batches to be told with. A follower that is promoted shows what it was told.
_TELL_S = 0.002
_HAND_OVER_S = 20.0
_LOOK_S = 0.002
# A timer is no more exact.
_PAUSE_S_MIN = 0.01


class LeaderRole:
    """One reign of this node: from when it opens its data until it is closed."""

    def __init__(
        self,
        membership: Membership,
        settings: Settings,
        disk: Disk,
        closed: ClosedStorage,
    ) -> None:
        """`closed`: the logs as they were before this reign."""
        self.membership, self._disk = membership, disk
        cluster = self._cluster = settings.cluster
        self.leader = Leader(
            membership.hello(),
            min_isr=membership.copies,
            committed=closed.committed,
            closed_logs=closed.closed_logs,
            window_bytes=cluster.window_bytes,
            asked=membership.asked,
        )
        self.gate = CommitGate(
            self.leader, membership.copies, cluster.ack_timeout_ms, time.monotonic_ns
        )
        # By number of the node.
        self.followers: dict[int, Follower] = {}
        self._tasks: list[asyncio.Task[None]] = []
        # Since when fewer machines are in sync than have to confirm, monotonic; None: enough are.
        self._short_at: float | None = time.monotonic()
        self._noting = Lock()
        self._is_flush_due = False

    def begin(self, driver: AsyncDriver, over: asyncio.Event, audit: AuditLog) -> None:
        """Take followers from now on. `over` is set when this node leads no longer."""
        self._driver, self._over = driver, over
        self.leader.closed_logs.clear()
        membership = self.membership
        membership.serve_follower, membership.hand_over = self.serve, self.hand_over
        membership.go_alone = self.go_alone
        peers = len(self._cluster.addresses)
        membership.has_all, membership.status = lambda: len(self.followers) >= peers, self.status
        membership.audit_to(partial(audit.note, "operator"))
        membership.on_stepped_down = self._stepped_down
        self.leader.on_event = self._flush_soon
        self._tasks = [driver.loop.create_task(one) for one in (self._beat(), self._note())]
        # Where this node is enough, all that it has is committed from here on.
        driver.confirmed()
        if membership.role is not Role.LEADING:
            # It was deposed while it opened its data.
            self._stepped_down(membership.refusal())
        else:
            membership.logger.info("no standby is in sync yet: %s", self.check().message)
            membership.look()

    async def end(self) -> None:
        """Take no followers any more, and let all go on that wait for one."""
        membership = self.membership
        membership.serve_follower = membership.hand_over = membership.go_alone = None
        membership.audit_to(None)
        membership.has_all = lambda: False
        for task in self._tasks:
            task.cancel()
        for follower in self.followers.values():
            follower.link.close()
        self.gate.fail("this node leads no longer")
        await self._driver.in_thread(self._note_committed)

    def _note_committed(self) -> None:
        """Write down how far everything is committed: that is shown to readers after a restart, and never cut."""
        # The last note, when the reign ends, may meet one of `_note` that is under way in another thread.
        with self._noting, fatal_ends_process(), suppress(NoSpace):
            with self._driver.driver.lock:
                ends = self.leader.known_ends()
            record = read_record(self._disk)
            if record is not None and ends != record.committed:
                record.committed, record.forced_epoch = ends, self.membership.facts.forced_epoch
                write_record(self._disk, record)

    @property
    def is_always_synced(self) -> bool:
        """Whether every reply waits for the disk here: what it promises is on two disks, now or when the others are
        back, and to sync here as seldom as a node alone would promise less."""
        return self._cluster.copies > 1

    async def go_alone(self) -> None:
        """Acknowledge without the others until enough of them have everything. PromotionRaced: one of them is there."""
        if self.gate.copies == 1:
            return
        if self.followers:
            nodes = ", ".join(str(node) for node in sorted(self.followers))
            raise PromotionRaced(f"standby {nodes} is connected, and is in sync or about to be")
        self.membership.acknowledge_alone(is_alone=True)
        self._require_copies(1)
        self.membership.logger.warning("this node acknowledges alone: a person said so")
        self._driver.confirmed()

    def _require_copies(self, copies: int) -> None:
        with self._driver.driver.lock:
            self.leader.min_isr = self.gate.copies = copies

    def _end_alone(self) -> None:
        """Enough followers have everything: from now on they confirm again what is acknowledged."""
        copies = self._cluster.copies
        if self.leader.in_sync < copies or not self.membership.facts.is_alone:
            return
        self._require_copies(copies)
        self.membership.acknowledge_alone(is_alone=False)
        for follower in self.followers.values():
            # Until it hears that, it leads by force only.
            follower.link.send(self.membership.introduction("follow"))
        self.membership.logger.info("this node acknowledges alone no longer")

    def _stepped_down(self, error: PenstockError) -> None:
        """Another node leads: nothing more is promised."""
        self.leader.is_over = True
        self.gate.close(error)
        self.gate.fail("this node leads no longer")
        self._over.set()

    def _flush_soon(self) -> None:
        """Called by any thread, with the lock held: followers get at once what they have to sync, while this
        node syncs it."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._driver.call_from_anywhere(self._flush)

    async def _beat(self) -> None:
        """Followers hear of their leader, and replies that wait too long are given up."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.gate.expire()
            self._note_short()
            for follower in [*self.followers.values()]:
                self._send_beat(follower)
                self._require_recent(follower)

    def _require_recent(self, follower: "Follower") -> None:
        """Lose a standby whose loop runs and whose disk does not: what waits for it is refused until it is level."""
        limit_s = self._cluster.replica_lag_ms / 1000
        if follower.stream.is_in_sync and follower.lag_s() > limit_s:
            follower.link.close()
            self._lose(follower, f"it has confirmed nothing for {limit_s:g} s")

    def _note_short(self) -> None:
        if self.leader.in_sync >= self.gate.copies:
            self._short_at = None
        elif self._short_at is None:
            self._short_at = time.monotonic()

    @property
    def is_writable(self) -> bool:
        """Whether clients that change something are well sent here: fewer machines than have to confirm were in sync
        for no longer than `cluster.replica_lag_ms`."""
        self._note_short()
        if self._short_at is None:
            return True
        return time.monotonic() - self._short_at <= self._cluster.replica_lag_ms / 1000

    def _send_beat(self, follower: "Follower") -> None:
        with self._driver.driver.lock:
            parts = follower.stream.beat()
        if parts is None:
            follower.link.send(Alive())
        else:
            follower.link.write_parts(parts)

    def _tell_committed_soon(self, follower: "Follower") -> None:
        """The next batches say what is committed; if none come soon, a frame of its own does."""
        committed = self.leader.committed
        if not follower.is_told_soon and committed > follower.stream.committed_told:
            follower.is_told_soon = True
            self._driver.loop.call_later(_TELL_S, self._tell_committed, follower, committed)

    def _tell_committed(self, follower: "Follower", committed: int) -> None:
        follower.is_told_soon = False
        if not self._is_there(follower):
            return
        if follower.stream.committed_told < committed:
            self._send_beat(follower)
        self._tell_committed_soon(follower)

    async def _note(self) -> None:
        """Not a part of `_beat`: a follower hears of a leader whose disk is slow, too."""
        while True:
            await asyncio.sleep(_NOTE_S)
            await self._driver.in_thread(self._note_committed)

    def status(self) -> dict[str, object]:
        """Lag of the standbys, in appends, bytes and seconds; `in_sync` counts this machine."""
        return {
            "sequence": self.leader.sequence,
            "committed": self.leader.committed,
            "in_sync": self.leader.in_sync,
            "standbys": [
                {
                    "node": follower.node,
                    "is_in_sync": follower.stream.is_in_sync,
                    "lag_bytes": self.lag_bytes(follower),
                    "lag_s": round(follower.lag_s(), 3),
                    "sent_bytes": follower.link.bytes_out,
                }
                for _, follower in sorted(self.followers.items())
            ],
        }

    def check(self) -> Check:
        """What a probe is told: how many machines are in sync, this one included, and how many are needed."""
        found, needed = self.leader.in_sync, self.gate.copies
        text = f"{found} machine{'s' if found != 1 else ''} in sync, {needed} needed"
        if found < needed:
            return Check(WARN, f"{text}: publishes, polls and acks are refused")
        if found == 1:
            return Check(WARN, f"{text}: what is acknowledged is on this one only")
        return Check(PASS, text)

    def _tell_in_sync(self, follower: "Follower", reason: str = "") -> None:
        """Log it once when a standby has come to be in sync, and once when it is so no longer, and why."""
        is_in_sync = follower.stream.is_in_sync
        if is_in_sync is follower.is_told_in_sync:
            return
        follower.is_told_in_sync = is_in_sync
        membership, node, text = self.membership, follower.node, self.check().message
        if is_in_sync:
            membership.logger.info("standby %d is in sync: %s", node, text)
        elif membership.serve_follower is not None and not self.leader.is_over:
            # Else this node stops, or leads no longer: its connections end with that.
            membership.logger.warning(
                "standby %d is no longer in sync (%s): %s", node, reason, text
            )

    def lag_bytes(self, follower: "Follower") -> int:
        """What was appended here and is not confirmed by a standby."""
        with self._driver.driver.lock:
            return follower.stream.lag_bytes

    async def serve(self, link: Link, told: Introduction) -> None:
        """Send a follower everything, until the connection ends."""
        hello: Hello = await link.expect(Hello)
        if (missed := self.followers.get(told.node)) is not None:
            # It came again before the old connection was missed.
            missed.link.close()
            self._lose(missed, "it connects again")
        with self._driver.driver.lock:
            stream = self.leader.follow(hello)
        follower = Follower(told, link, stream, Throttle(self._cluster.catch_up_bytes_per_s))
        self.followers[follower.node] = follower
        link.on_room = partial(self._send, follower)
        self._send(follower)
        try:
            # If it is silent it is cut off, or stopped: what waits for it is refused until it is back.
            silence_s = self._cluster.replica_lag_ms / 1000
            await link.deliver(partial(self._hear, follower), silence_s)
        except PenstockError as error:
            self._lose(follower, str(error))
            raise
        finally:
            self._lose(follower, "its connection is not served any more")

    def _hear(self, follower: "Follower", frame: PeerFrame, _payload: memoryview) -> None:
        with self._driver.driver.lock:
            follower.stream.receive(frame)  # type: ignore[arg-type]  # The stream refuses others.
        if self.leader.fenced_by:
            self.membership.step_down(f"a node follows epoch {self.leader.fenced_by}")
            follower.link.close()
            return
        if isinstance(frame, Durable):
            follower.lag.confirmed(frame.sequence)
            self._driver.confirmed()
            self._end_alone()
            self._tell_in_sync(follower)
            for one in self.followers.values():
                self._tell_committed_soon(one)
        # There may be room in its window.
        self._send(follower)

    def _lose(self, follower: "Follower", reason: str) -> None:
        if self._is_there(follower):
            del self.followers[follower.node]
            with self._driver.driver.lock:
                follower.stream.close()
            self._driver.confirmed()
            self.gate.give_up_alone()
            self._tell_in_sync(follower, reason)

    def _is_there(self, follower: "Follower") -> bool:
        return self.followers.get(follower.node) is follower

    def _flush(self) -> None:
        self._is_flush_due = False
        for follower in [*self.followers.values()]:
            self._send(follower)

    def _send(self, follower: "Follower") -> None:
        """Send what there is, as far as the connection and the window of a follower allow."""
        if not self._is_there(follower):
            return
        # Also of what has to wait here: it is behind by that as well.
        follower.lag.appended(self.leader.sequence, time.monotonic())
        if follower.link.is_full or follower.is_paused:
            return
        try:
            with self._driver.driver.lock:
                frames = follower.stream.take(_TAKE_BYTES)
                is_live = follower.stream.state is StreamState.LIVE
        except PenstockError:
            follower.link.close()
            return
        self._tell_in_sync(follower, "too slow: it catches up from files")
        if not frames:
            return
        parts = [part for frame in frames for part in frame]
        follower.link.write_parts(parts)
        size = sum(map(len, parts))
        if not is_live and (pause_s := follower.throttle.spend(size)):
            follower.is_paused = True
            self._driver.loop.call_later(pause_s, self._go_on, follower)
        elif not is_live or size >= _TAKE_BYTES:
            # The rest has a turn of its own: clients are served in between.
            self._driver.loop.call_soon(self._send, follower)

    def _go_on(self, follower: "Follower") -> None:
        follower.is_paused = False
        self._send(follower)

    async def hand_over(self, node: int = 0) -> None:
        """Stop, wait until a follower has everything, and let it lead: `node`, or with 0 any that is level.

        Unavailable: there is none.
        """
        level = [one for one in self.followers.values() if one.stream.is_in_sync]
        follower = next((one for one in level if node in {0, one.node}), None)
        if follower is None:
            raise Unavailable("there is no standby that is level with this node")
        self.gate.close(LeaderUnknown("this node is handing over", leader="", http="", epoch=0))
        deadline = time.monotonic() + _HAND_OVER_S
        try:
            while not self._has_handed_over(follower):
                if time.monotonic() > deadline or self.followers.get(follower.node) is not follower:
                    raise Unavailable("the standby did not confirm everything: this node leads on")
                # What was admitted before is still confirmed, and what is due by itself goes with it.
                await self._driver.in_thread(self._driver.driver.sync)
                await asyncio.sleep(_LOOK_S)
        except PenstockError:
            self.gate.reopen()
            raise
        self._flush()
        self.leader.is_over = True
        self.membership.handed_over(follower.copies)
        # The last frame is on its way: the connection is not to end before it.
        while self.followers.get(follower.node) is follower and time.monotonic() < deadline:  # noqa: ASYNC110 - a connection, not an event
            await asyncio.sleep(_LOOK_S)
        self._over.set()

    def _has_handed_over(self, follower: "Follower") -> bool:
        with self._driver.driver.lock:
            return follower.stream.hand_over()


class Follower:
    """One connection of a follower, as its leader sees it."""

    def __init__(
        self, told: Introduction, link: Link, stream: Stream, throttle: "Throttle"
    ) -> None:
        self.node, self.copies, self.link, self.stream = told.node, told.copies, link, stream
        self.throttle = throttle
        # The throttle has it wait.
        self.is_paused = False
        # A timer runs, at whose end it hears what is committed.
        self.is_told_soon = False
        # Whether it is in sync, as the log has it.
        self.is_told_in_sync = False
        self.lag = Lag()

    def lag_s(self) -> float:
        """For how long the oldest append waits that it has not confirmed."""
        return self.lag.seconds(time.monotonic())


class Throttle:
    """So many bytes a second, at most; below zero: as many as there are."""

    def __init__(self, bytes_per_s: int) -> None:
        self._rate, self._free_at = bytes_per_s, 0.0

    def spend(self, count: int) -> float:
        """Returns for how many seconds to wait, if so much was sent just now."""
        if self._rate <= 0:
            return 0.0
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        wait_s = self._free_at - now
        return wait_s if wait_s > _PAUSE_S_MIN else 0.0
