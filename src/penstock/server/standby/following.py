"""The follower's side: stores what the leader sends, syncs, and says how far it is durable."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from random import SystemRandom
from typing import TypeVar

import msgspec

from ...api.health import Sample
from ...errors import Damaged
from ...model import Buffer, Epoch
from ...observability.prometheus import render
from ...replication.frames import Frame, HandOver, Hello, Level, Parted, Refusal, encode_frame
from ...replication.replica import Replica
from ...runtime import RealDisk
from ...runtime.fatal import fatal_ends_process
from .link import Link, PeerFrame, PeerRefused
from .membership import Membership
from .promotion import Peer

T = TypeVar("T")
# As often it is written down how far everything is known to be committed.
_NOTE_S = 1.0


class Following:
    """The logs of this data directory while another node leads. One thread, `storage`, touches them."""

    def __init__(
        self,
        disk: RealDisk,
        membership: Membership,
        storage: ThreadPoolExecutor,
        logger: logging.Logger,
    ) -> None:
        self._disk, self._membership, self._logger = disk, membership, logger
        self._storage = storage
        self._replica: Replica | None = None
        # Frames of the leader, for the storage thread; None: there will be no more.
        self._received: SimpleQueue[tuple[Frame, memoryview] | None] = SimpleQueue()
        self._link: Link | None = None
        # What the leader had when it was heard last, and what of that is durable here.
        self._announced = self._durable = 0
        self._level_at = self._note_at = 0.0
        self._aside_told = 0

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
        try:
            await asyncio.wait((storing, receiving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiving.cancel()
            self._received.put(None)
            await asyncio.wait((storing, receiving))
            await self._in_storage(self._disconnect)
        if (hand_over := storing.result()) is None:
            receiving.result()
        else:
            self._logger.info("node %d has handed over", peer.node)
            self._membership.take_hand_over(hand_over.epoch)

    async def open(self) -> None:
        """Open the logs, so that it is known what they are."""
        replica = await self._in_storage(self._opened)
        self._membership.disk_id = replica.record.disk_id
        self._membership.written_epoch = replica.epoch
        self._membership.handed_over_epoch = replica.record.handed_over
        if not replica.is_whole:
            # A log was damaged, and is set aside.
            self._membership.fell_behind()

    def _opened(self) -> Replica:
        if self._replica is None:
            membership = self._membership
            self._replica = Replica(
                self._disk,
                node=membership.node,
                entropy=SystemRandom(),
                cluster_id=membership.facts.cluster_id,
            )
        return self._replica

    def _disconnect(self) -> None:
        if self._replica is not None:
            self._replica.disconnect()

    def _receive(self, frame: PeerFrame, payload: memoryview) -> None:
        if isinstance(frame, Refusal):
            raise PeerRefused(frame)
        self._announced = max(self._announced, getattr(frame, "sequence", -1))
        self._received.put((frame, payload))  # type: ignore[arg-type]  # The replica refuses others.

    def _store(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> HandOver | None:
        """Store and sync what has come, all of it at once, and answer; in the storage thread, until the connection
        has ended or the leader hands over. Returns with what it did that."""
        is_over = False
        while not is_over:
            received = [self._received.get()]
            while not self._received.empty():
                received.append(self._received.get())
            is_over = received[-1] is None
            frames = [one for one in received if one is not None]
            answers = self._store_all(replica, frames)
            levels = [frame for frame, _ in frames if isinstance(frame, Level)]
            loop.call_soon_threadsafe(self._stored, answers, levels[-1] if levels else None)
            for frame, _ in frames:
                if isinstance(frame, HandOver):
                    return frame
        return None

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
            plan.run()
            durable = replica.synced(plan)
        except Damaged:
            # Opened once more, what is damaged is set aside, and comes again from the leader.
            self._replica = None
            replica.discard()
            raise
        for one in replica.aside[self._aside_told :]:
            self._logger.warning("set aside: %s in %s: %s", one.path, one.kept_in, one.reason)
        self._aside_told = len(replica.aside)
        if durable is not None and durable.sequence >= 0:
            self._durable = durable.sequence
        if durable is not None and replica.leader is not None and not _is_talking(received):
            answers += encode_frame(durable)
        if time.monotonic() >= self._note_at:
            self._note_at = time.monotonic() + _NOTE_S
            replica.note_committed()
        return answers

    def _stored(self, answers: list[Buffer], level: Level | None) -> None:
        """In the loop, after a sync."""
        assert self._link is not None
        self._link.write_parts(answers)
        if self._durable >= self._announced:
            self._level_at = time.monotonic()
        if level is not None and self._durable >= level.sequence >= 0:
            self._membership.leveled()

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
        }

    def metrics(self) -> bytes:
        """For Prometheus, while no data is open."""
        lag_s = float(str(self.status()["lag_s"]))
        return render(
            [
                Sample("penstock_replication_role", {"role": self._membership.role.value}, 1),
                Sample("penstock_replication_epoch", {}, self._membership.epoch),
                Sample("penstock_replication_lag_seconds", {}, lag_s),
                Sample("penstock_replication_received_bytes_total", {}, self.bytes_in),
            ]
        )

    async def lead(self, epoch: int) -> dict[str, int]:
        """Give the logs back so that a node opens them to lead; returns the ends that are known to be committed."""

        def begin() -> dict[str, int]:
            replica = self._opened()
            committed = replica.lead(Epoch(epoch))
            self._replica = None
            return committed

        return await self._in_storage(begin)

    async def close(self) -> None:
        """Give the logs back."""

        def end() -> None:
            replica, self._replica = self._replica, None
            if replica is not None:
                replica.close()

        await self._in_storage(end)


def _is_talking(received: list[tuple[Frame, memoryview]]) -> bool:
    """Whether the two nodes are still finding out where their histories part: nothing is confirmed yet."""
    return any(isinstance(frame, Hello | Parted) for frame, _ in received)
