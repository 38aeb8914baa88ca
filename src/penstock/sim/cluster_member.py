"""One node of a simulated cluster: its disk through all its lives, and what runs on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..api.command import Command
from ..api.principals import LOCAL
from ..api.topics import FinishTopics
from ..broker.node import Node
from ..broker.partition import Now
from ..broker.walks import WAIT, Effect, Walk
from ..errors import Damaged, Fatal, Fenced, NoSpace, PenstockError, Refused
from ..log.closed import ClosedLogs
from ..model import Epoch
from ..replication.frames import (
    Frame,
    FrameReader,
    Hello,
    Refusal,
    decode_head,
    encode_frame,
)
from ..replication.leader import Leader
from ..replication.replica import Replica, as_leader
from ..replication.stream import Stream, StreamState
from .crash import aimed_power_cut, power_cut
from .disk import SimDisk
from .durability import Model
from .faults import Call, Fault, Misbehaviour
from .network import Connection
from .schedule import MS

if TYPE_CHECKING:
    from .cluster import ClusterWorld

_SYNC_MS_MAX = 10
_SLOW_SYNC_MS_MAX = 120
_CONNECT_MS = 60
_TAKE_BYTES = 1 << 16
_BEAT_MS = 200
_SLICE_MS, _FINISH_MS = 8, 100
_PARTITIONS_A_PIECE = 2
_CALLS = (Call.SYNC, Call.RENAME, Call.APPEND, Call.TRUNCATE, Call.SYNC_DIRECTORY, Call.CREATE)


class Member:
    """Down, a replica, or a leader. Every call that it leaves for later is void once it has crashed."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self.world, self.number = world, number
        self.disk = SimDisk()
        self.life = 0
        self.replica: Replica | None = None
        self.leader: Leader | None = None
        self.node: Node | None = None
        self.streams: dict[Connection, Stream] = {}
        self.following: Connection | None = None
        self.readers: dict[Connection, FrameReader[Frame]] = {}
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self._is_sync_planned = False
        self.faulty: PenstockError | None = None

    @property
    def epoch(self) -> int:
        """The highest that it knows; 0: it is down."""
        if self.leader is not None:
            return self.leader.epoch
        return 0 if self.replica is None else self.replica.epoch

    @property
    def is_up(self) -> bool:
        return self.replica is not None or self.leader is not None

    def later(self, ms_max: int, call: Callable[[], None]) -> None:
        self._after(self.world.entropy.randint(1, ms_max * MS), call)

    def walk_later(self, call: Callable[[], None], ms_max: int = _SLICE_MS) -> None:
        """Of what has to do with walks: drawn apart, so that all else goes on as it would without them."""
        self._after(self.world.topics.entropy.randint(1, ms_max * MS), call)

    def _after(self, delay_ns: int, call: Callable[[], None]) -> None:
        life = self.life

        def alive() -> None:
            if self.life == life:
                self.act(call)

        self.world.schedule.after(delay_ns, alive)

    def act(self, call: Callable[[], None]) -> None:
        """Run something of this node. A disk that fails takes the process with it."""
        try:
            call()
        except Fatal:
            self.crash()

    def now(self) -> Now:
        clock = self.world.clock
        return Now(clock.now_ns(), clock.monotonic_ns())

    def start(self, closed_logs: ClosedLogs | None = None) -> None:
        """Open what there is, and look for a leader."""
        self.life += 1
        self.faulty = None

        def begin() -> None:
            self.replica = Replica(
                self.disk,
                node=self.number,
                entropy=self.world.entropy,
                cluster_id="sim",
                closed_logs=closed_logs,
            )
            # No bit of these disks ever flips.
            self.world.expect_nothing_aside(self.replica)
            self.later(_CONNECT_MS, self._seek)
            self.later(1000, self._note)

        self.act(begin)

    def _note(self) -> None:
        if self.replica is not None:
            self.replica.note_committed()
            self.later(1000, self._note)

    def crash(self, *, is_empty: bool = False) -> None:
        """Stop at once. The disk keeps what a power cut leaves; or nothing, if it is lost."""
        self.life += 1
        entropy = self.world.entropy
        cut = aimed_power_cut if entropy.randint(0, 1) else power_cut
        left = cut(self.disk, Model.STRICT, entropy=entropy)
        self.disk = SimDisk() if is_empty else left
        self._over()
        self.world.crashed(self)

    def stop(self) -> None:
        """Close everything properly, and start again as a replica."""
        self.life += 1
        if self.replica is not None:
            self.act(self.replica.close)
        if self.node is not None:
            self.act(self.node.close)
        if self.is_up:
            closed_logs = None if self.leader is None else self.leader.closed_logs
            self._over()
            self.start(closed_logs)

    def _over(self) -> None:
        for connection in [*self.readers]:
            connection.close(self.number)
        self.readers.clear()
        self.streams.clear()
        self.replica = self.leader = self.node = self.following = None
        self.waiting = []
        self._is_sync_planned = False

    def fail_soon(self) -> None:
        """Have a call to the disk fail in the middle of whatever comes next."""
        entropy = self.world.entropy
        call = _CALLS[entropy.randint(0, len(_CALLS) - 1)]
        nth = entropy.randint(1, 6)
        self.disk.inject(Fault(call=call, does=Misbehaviour.DISK_FAILED, nth=nth))

    # As a follower.

    def _seek(self) -> None:
        """Try the other nodes in turn until one leads."""
        if self.replica is None:
            return
        if self.following is None and self.faulty is None:
            others = [one for one in self.world.members.values() if one is not self and one.is_up]
            if others:
                other = others[self.world.entropy.randint(0, len(others) - 1)]
                connection = self.world.network.connect(self.number, other.number)
                if connection is not None:
                    connection.peers = {self.number: self, other.number: other}
                    self.following = connection
                    self.readers[connection] = FrameReader(decode_head)
                    self._say(connection, self.replica.hello())
        self.later(_CONNECT_MS, self._seek)

    def _say(self, connection: Connection, frame: Frame) -> None:
        connection.send(self.number, b"".join(encode_frame(frame)))

    def heard(self, connection: Connection, data: bytes) -> None:
        self.act(lambda: self._heard(connection, data))

    def _heard(self, connection: Connection, data: bytes) -> None:
        reader = self.readers.setdefault(connection, FrameReader(decode_head))
        for frame, payload in reader.feed(data):
            if connection is self.following:
                self._follow(connection, frame, payload)
            else:
                self._serve(connection, frame)
            if not connection.is_open(self.number):
                return

    def hung_up(self, connection: Connection) -> None:
        self.readers.pop(connection, None)
        stream = self.streams.pop(connection, None)
        if stream is not None:
            stream.close()
        if connection is self.following:
            self.following = None
            if self.replica is not None:
                self.replica.disconnect()

    def _hang_up(self, connection: Connection) -> None:
        connection.close(self.number)
        self.hung_up(connection)

    def _follow(self, connection: Connection, frame: Frame, payload: memoryview) -> None:
        replica = self.replica
        assert replica is not None
        if isinstance(frame, Refusal):
            self._hang_up(connection)
            return
        try:
            answers = replica.receive(frame, payload)
        except (Refused, Damaged, NoSpace) as error:
            if self.world.is_unexpected(error):
                self.faulty = error
            code = Refusal(
                "FENCED" if isinstance(error, Fenced) else "BAD", str(error), replica.epoch
            )
            self._say(connection, code)
            self._hang_up(connection)
            return
        for answer in answers:
            self._say(connection, answer)
        if not self._is_sync_planned:
            self._is_sync_planned = True
            is_slow = self.world.entropy.randint(0, 1)
            self.later(_SLOW_SYNC_MS_MAX if is_slow else _SYNC_MS_MAX, self._sync_replica)

    def _sync_replica(self) -> None:
        self._is_sync_planned = False
        replica = self.replica
        if replica is None:
            return
        try:
            plan = replica.plan_sync()
            plan.run()
        except NoSpace:
            # What was made since the last sync is not there; it comes again with the next connection.
            if self.following is not None:
                self._hang_up(self.following)
            return
        durable = replica.synced(plan)
        if durable is not None and self.following is not None:
            self._say(self.following, durable)

    # As a leader.

    def lead(self, epoch: Epoch, min_isr: int, *, is_forced: bool = False) -> None:
        """Open the directory as the leader of an epoch."""
        replica = self.replica
        assert replica is not None
        if self.following is not None:
            self._hang_up(self.following)

        def begin() -> None:
            forced_epoch = epoch if is_forced else replica.record.forced_epoch
            closed = replica.lead(epoch, forced_epoch=forced_epoch)
            hello = as_leader(replica.hello(), epoch)
            self.replica = None
            self.leader = Leader(
                hello,
                min_isr=min_isr,
                committed=closed.committed,
                closed_logs=closed.closed_logs,
                memory_bytes=1 << 14,
                window_bytes=1 << 16,
            )
            self.node = Node(
                self.disk, now=self.now(), entropy=self.world.entropy, reign=self.leader
            )
            self.leader.closed_logs.clear()
            self.node.works.piece = _PARTITIONS_A_PIECE
            self.later(_SYNC_MS_MAX, self._sync_node)
            self.walk_later(self._finish_topics, _FINISH_MS)
            self.later(_CONNECT_MS, self._meet)
            self.later(_BEAT_MS, self._beat)

        self.act(begin)

    def _beat(self) -> None:
        if self.leader is None:
            return
        for connection, stream in self.streams.items():
            if (parts := stream.beat()) is not None:
                connection.send(self.number, b"".join(parts))
        self.later(_BEAT_MS, self._beat)

    def _meet(self) -> None:
        """Ask the others whether one of them leads in a later epoch."""
        for other in self.world.members.values():
            if self.leader is None or other is self or other.leader is None:
                continue
            connection = self.world.network.connect(self.number, other.number)
            if connection is not None:
                connection.peers = {self.number: self, other.number: other}
                self._say(connection, self.leader.hello_to())
        if self.leader is not None:
            self.later(_CONNECT_MS * 5, self._meet)

    def _sync_node(self) -> None:
        node, leader = self.node, self.leader
        if node is None or leader is None:
            return
        chance = self.world.entropy
        plans = [
            (one, plan if chance.randint(0, 9) else one.plan_snapshot())
            for one, plan in node.plan_sync()
        ]
        for _, plan in plans:
            plan.run()
        node.synced(plans, self.now())
        self._advance()
        self.later(_SYNC_MS_MAX, self._sync_node)

    def _advance(self) -> None:
        leader, node = self.leader, self.node
        assert leader is not None
        assert node is not None
        leader.advance()
        node.pump(self.now())
        while self.waiting and self.waiting[0][0] <= leader.committed:
            self.waiting.pop(0)[1]()
        for connection, stream in [*self.streams.items()]:
            for parts in stream.take(_TAKE_BYTES):
                connection.send(self.number, b"".join(parts))

    def _serve(self, connection: Connection, frame: Frame) -> None:
        leader = self.leader
        if leader is None:
            self._say(connection, Refusal("NOT_LEADER", "this node follows", 0))
            self._hang_up(connection)
            return
        try:
            if isinstance(frame, Refusal):
                leader.fenced_by = max(leader.fenced_by, frame.epoch)
            elif isinstance(frame, Hello):
                self.streams[connection] = leader.follow(frame)
            elif connection in self.streams:
                self.streams[connection].receive(frame)
        except Fenced:
            self._say(connection, Refusal("FENCED", "an epoch that is over", leader.epoch))
            self._hang_up(connection)
        if leader.fenced_by:
            # Deposed: what it is worth is decided by the one that leads now.
            self.crash()
            self.world.restart_soon(self)
            return
        for old, stream in [*self.streams.items()]:
            if stream.state is StreamState.CLOSED:
                self._hang_up(old)
        self._advance()

    def _finish_topics(self) -> None:
        if self.node is None:
            return
        if self.node.works.unattended() is not None:
            self.walk(Walk(FinishTopics(), LOCAL), lambda _reply: None)
        self.walk_later(self._finish_topics, _FINISH_MS)

    def walk(self, walk: Walk[Any], on_committed: Callable[[object], None]) -> None:
        """Carry out a walk, slice by slice, with whatever happens in between; the client may close it."""
        node, leader = self.node, self.leader
        if node is None or leader is None or walk.is_over:
            return
        done = node.go_on(walk, self.now(), self.world.topics.entropy.randint(1, 3))
        effect = walk.effect
        if done.more is None:
            if not isinstance(done.reply, PenstockError):
                reply = done.reply
                self.waiting.append((leader.sequence, lambda: on_committed(reply)))
        elif effect is None or effect is WAIT:
            self.walk_later(partial(self.walk, walk, on_committed))
        else:
            self.walk_later(partial(self._run_effect, effect, walk, on_committed))
        self._advance()

    def _run_effect(
        self, effect: Effect, walk: Walk[Any], on_committed: Callable[[object], None]
    ) -> None:
        """Also of a client that has left: its driver runs what it was handed."""
        effect.run()
        self.walk_later(partial(self.walk, walk, on_committed))

    def execute(self, command: Command[Any], on_committed: Callable[[object], None]) -> None:
        """Carry out a command of a client; the reply comes when all that it wrote is committed."""
        node, leader = self.node, self.leader
        assert node is not None
        assert leader is not None

        def run() -> None:
            if not (leader.has_quorum and leader.is_begun):
                return
            try:
                reply = node.execute(command, LOCAL, self.now()).outcome()
            except Fatal:
                raise
            except PenstockError:
                return
            self.waiting.append((leader.sequence, lambda: on_committed(reply)))
            self._advance()

        self.act(run)
