"""The follower's side: stores what the leader sends, syncs, and says how far it is durable."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from random import SystemRandom
from typing import TypeVar

import msgspec

from ...api.health import Sample
from ...errors import Damaged, PenstockError
from ...log.closed import ClosedLogs
from ...model import Buffer, Epoch
from ...observability.prometheus import render
from ...replication.frames import (
    Frame,
    HandOver,
    Hello,
    Level,
    LogFacts,
    Parted,
    Refusal,
    encode_frame,
)
from ...replication.replica import Replica
from ...replication.storage import ClosedStorage, SetAside
from ...runtime import RealDisk
from ...runtime.clock import SystemClock
from ...runtime.fatal import fatal_ends_process
from ...runtime.sync_threads import SyncThreads
from .link import HEARTBEAT_S, Alive, Introduction, Link, PeerFrame, PeerRefused
from .membership import Membership
from .promotion import Peer

T = TypeVar("T")
# As often it is written down how far everything is known to be committed.
_NOTE_S = 1.0
# What is stored is read once after a start and then once a day, at most so fast: damage is to be found while the leader
# still has what is damaged here, and not when this node is to lead.
_WAIT_S_MIN = 0.001
_SCRUB_AGAIN_S = 86_400.0
_SCRUB_BYTES_PER_S = 64 << 20
_ASIDE_SHOWN_MAX = 100


class FollowerRole:
    """The logs of this data directory while another node leads. One thread, `storage`, touches them."""

    def __init__(
        self,
        disk: RealDisk,
        membership: Membership,
        storage: ThreadPoolExecutor,
        logger: logging.Logger,
    ) -> None:
        self._disk, self._membership, self._logger = disk, membership, logger
        self._storage, self._sync_threads = storage, SyncThreads(SystemClock())
        self._replica: Replica | None = None
        # As they were when this node led last, until they are opened again.
        self.closed_logs: ClosedLogs | None = None
        # Frames of the leader, for the storage thread; None: there will be no more.
        self._received: SimpleQueue[tuple[Frame, memoryview] | None] = SimpleQueue()
        self._link: Link | None = None
        # What the leader had when it was heard last, and what of that is durable here.
        self._announced = self._durable = 0
        self._level_at = self._note_at = 0.0
        self._aside_told = 0
        # What was cut or set aside since the start; the last of it for a person who looks.
        self._aside_count = 0
        self._aside: deque[SetAside] = deque(maxlen=_ASIDE_SHOWN_MAX)
        self._scrub_at = 0.0

    async def _in_storage(self, work: Callable[[], T]) -> T:
        """What the storage thread returns. A failed disk ends the process, as it does for a node that leads."""
        with fatal_ends_process():
            return await asyncio.get_running_loop().run_in_executor(self._storage, work)

    async def run(self, link: Link, peer: Peer) -> None:
        """Copy a leader until the connection ends, or it hands over. Raises why it cannot be copied."""
        await self.open()
        replica = await self._in_storage(self._opened)
        hello = replica.hello()
        link.send(msgspec.structs.replace(hello, cluster_id=self._membership.facts.cluster_id))
        self._received = SimpleQueue()
        self._link, self._announced, self._durable = link, -1, -1
        loop, silence_s = asyncio.get_running_loop(), self._membership.cluster.replica_lag_ms / 1000
        storing = loop.create_task(self._in_storage(partial(self._store, replica, loop)))
        receiving = loop.create_task(link.deliver(self._receive, silence_s))
        beating = loop.create_task(_beat(link))
        try:
            await asyncio.wait((storing, receiving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            beating.cancel()
            receiving.cancel()
            self._received.put(None)
            await asyncio.wait((storing, receiving))
            await self._in_storage(self._disconnect)
        try:
            hand_over = storing.result()
            if hand_over is None:
                receiving.result()
                return
        except PenstockError as error:
            if isinstance(error, Damaged) or not replica.is_whole:
                # At once: if the leader is lost before it is heard again, this node may not take its place.
                self._membership.is_whole = False
            raise
        self._logger.info("node %d has handed over", peer.node)
        self._membership.take_hand_over(hand_over.epoch)

    async def open(self) -> None:
        """Open the logs, so that it is known what they are."""
        replica = await self._in_storage(self._opened)
        self._membership.disk_id = replica.record.disk_id
        self._membership.written_epoch = replica.epoch
        self._membership.handed_over_epoch = replica.record.handed_over
        self._membership.is_whole = replica.is_whole
        self._membership.survey, self._membership.aside = self.survey, self.aside
        self._tell_aside(replica)

    async def survey(self) -> tuple[bool, Mapping[str, LogFacts]]:
        """Whether no log is known to lack what was there, and what the logs have."""

        def look() -> tuple[bool, Mapping[str, LogFacts]]:
            replica = self._opened()
            return replica.is_whole, replica.inventory()

        return await self._in_storage(look)

    def _opened(self) -> Replica:
        if self._replica is None:
            membership = self._membership
            self._replica = Replica(
                self._disk,
                node=membership.node,
                entropy=SystemRandom(),
                cluster_id=membership.facts.cluster_id,
                closed_logs=self.closed_logs,
            )
            self.closed_logs = None
        return self._replica

    def _disconnect(self) -> None:
        if self._replica is not None:
            self._replica.disconnect()

    def _receive(self, frame: PeerFrame, payload: memoryview) -> None:
        if isinstance(frame, Refusal):
            raise PeerRefused(frame)
        if isinstance(frame, Introduction):
            self._membership.told_copies(frame.copies)
            return
        self._announced = max(self._announced, getattr(frame, "sequence", -1))
        self._received.put((frame, payload))  # type: ignore[arg-type]  # The replica refuses others.

    def _store(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> HandOver | None:
        """Store and sync what has come, all of it at once, and answer; in the storage thread, until the connection
        has ended or the leader hands over. Returns with what it did that."""
        is_over, scrub = False, self._scrub(replica)
        while not is_over:
            received = [self._next(scrub)]
            while not self._received.empty():
                received.append(self._received.get())
            frames = [one for one in received if one is not None]
            # Frames that came while the connection was given up may lie behind its end.
            is_over = len(frames) < len(received)
            answers = self._store_all(replica, frames)
            levels = [frame for frame, _ in frames if isinstance(frame, Level)]
            loop.call_soon_threadsafe(self._stored, answers, levels[-1] if levels else None)
            for frame, _ in frames:
                if isinstance(frame, HandOver):
                    return frame
        return None

    def _next(self, scrub: Iterator[float]) -> tuple[Frame, memoryview] | None:
        """What comes next from the leader; what is stored is read meanwhile."""
        while True:
            if time.monotonic() >= self._scrub_at:
                self._scrub_at = time.monotonic() + next(scrub)
            with suppress(Empty):
                return self._received.get(
                    timeout=max(_WAIT_S_MIN, self._scrub_at - time.monotonic())
                )

    def _store_all(
        self, replica: Replica, received: list[tuple[Frame, memoryview]]
    ) -> list[Buffer]:
        """In the storage thread: frames to answer with, the last of them what is durable now."""
        answers: list[Buffer] = []
        try:
            for frame, payload in received:
                for answer in replica.receive(frame, payload):
                    answers += encode_frame(answer)
            plan = replica.plan_sync()
            plan.run(self._sync_threads.run)
            durable = replica.synced(plan)
        except Damaged:
            # Opened once more, what is damaged is set aside, and comes again from the leader.
            self._replica = None
            self._aside_told = 0
            replica.discard()
            raise
        self._tell_aside(replica)
        if durable is not None and durable.sequence >= 0:
            self._durable = durable.sequence
        if durable is not None and replica.leader is not None and not _is_talking(received):
            answers += encode_frame(durable)
        if time.monotonic() >= self._note_at:
            self._note_at = time.monotonic() + _NOTE_S
            replica.note_committed()
        return answers

    def _tell_aside(self, replica: Replica) -> None:
        for one in replica.aside[self._aside_told :]:
            self._logger.warning("set aside: %s in %s: %s", one.path, one.kept_in, one.reason)
            self._aside.append(one)
            self._aside_count += 1
        self._aside_told = len(replica.aside)

    def _scrub(self, replica: Replica) -> Iterator[float]:
        """Read what is stored, between what comes from the leader: each time a piece, and how long to wait after it.

        Damaged: something is, and was set aside.
        """
        while True:
            total = 0
            for size in replica.scrub():
                total += size
                yield size / _SCRUB_BYTES_PER_S
            self._logger.info("all that is stored was read, and is whole: %d bytes", total)
            yield _SCRUB_AGAIN_S

    def _stored(self, answers: list[Buffer], level: Level | None) -> None:
        """In the loop, after a sync."""
        assert self._link is not None
        self._link.write_parts(answers)
        if self._durable >= self._announced:
            self._level_at = time.monotonic()
        if level is not None and self._durable >= level.sequence >= 0:
            self._membership.leveled()
            if self._replica is not None:
                self._membership.is_whole = self._replica.is_whole

    @property
    def bytes_in(self) -> int:
        """What came over the last connection with a leader."""
        return self._link.bytes_in if self._link is not None else 0

    def status(self) -> dict[str, object]:
        """How far this node is behind its leader, in appends and in seconds."""
        behind = max(0, self._announced - self._durable)
        lag_s = time.monotonic() - self._level_at if self._level_at else -1.0
        return {
            "lag_appends": behind,
            "lag_s": round(lag_s, 3) if behind or lag_s < 0 else 0.0,
            "received_bytes": self.bytes_in,
            "set_aside": self._aside_count,
        }

    def aside(self) -> list[str]:
        """What was cut or set aside last since the start: the log, its offsets, and the file that keeps them."""
        return [
            f"{one.path} {one.offsets.start}..{one.offsets.stop} in {one.kept_in}"
            for one in [*self._aside]
        ]

    def metrics(self) -> bytes:
        """For Prometheus, while no data is open."""
        membership = self._membership
        lag_s = float(str(self.status()["lag_s"]))
        code = membership.problem.code if membership.problem else ""
        return render(
            [
                Sample("penstock_replication_role", {"role": membership.role.value}, 1),
                Sample("penstock_replication_epoch", {}, membership.epoch),
                Sample(
                    "penstock_replication_lag_seconds", {"standby": str(membership.node)}, lag_s
                ),
                Sample("penstock_replication_received_bytes_total", {}, self.bytes_in),
                Sample("penstock_replication_forced_epoch", {}, membership.facts.forced_epoch),
                Sample("penstock_replication_set_aside_total", {}, self._aside_count),
                Sample("penstock_replication_problem", {"code": code}, 1.0 if code else 0.0),
            ],
            is_whole=False,
        )

    async def lead(self, epoch: int, forced_epoch: int) -> ClosedStorage:
        """Give the logs back so that a node opens them to lead; returns what is known of them."""

        def begin() -> ClosedStorage:
            replica = self._opened()
            closed = replica.lead(Epoch(epoch), forced_epoch=forced_epoch)
            self._replica, self._aside_told = None, 0
            self._sync_threads.close()
            # All of it is read when it follows again: what is handed over is not.
            self._scrub_at = 0.0
            return closed

        return await self._in_storage(begin)

    async def close(self) -> None:
        """Give the logs back."""

        def end() -> None:
            replica, self._replica, self._aside_told = self._replica, None, 0
            if replica is not None:
                replica.close()
            self._sync_threads.close()

        await self._in_storage(end)


async def _beat(link: Link) -> None:
    """Have the leader know that this node is there while the storage thread is busy."""
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        link.send(Alive())


def _is_talking(received: list[tuple[Frame, memoryview]]) -> bool:
    """Whether the two nodes are still finding out where their histories part: nothing is confirmed yet."""
    return any(isinstance(frame, Hello | Parted) for frame, _ in received)
