"""Bugs that a replication is known to have had, planted one at a time."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest

from penstock.broker import leftovers, topic_works
from penstock.broker.catalogue import Catalogue
from penstock.broker.node import Node
from penstock.broker.partition import PartitionId
from penstock.broker.partition.outbox import Channel
from penstock.codec import Head
from penstock.log import Log
from penstock.log.reign import FollowingReign
from penstock.model import Buffer, Epoch, LogEnd
from penstock.replication import replica, storage
from penstock.replication.frames import Durable
from penstock.replication.leader import Leader
from penstock.replication.stream import Stream
from penstock.sim.cluster_member import Member

Plant = Callable[[pytest.MonkeyPatch], None]


def reply_before_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "committed", property(lambda leader: leader.watermark.sequence))


def commit_counts_too_few(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "has_quorum", property(lambda leader: not leader.fenced_by))


def epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "epoch_for", lambda leader, log: log.epoch)
    patch.setattr(Leader, "next_epoch", lambda leader, epoch: max(epoch, Epoch(257)))


def truncation_by_watermark(patch: pytest.MonkeyPatch) -> None:
    opened = storage.Storage.open

    def cut(
        self: storage.Storage, committed: Mapping[str, int], on_damage: Callable[[], None]
    ) -> bool:
        found = opened(self, committed, on_damage)
        record = replica.read_record(self.disk)
        for path, log in self.logs.items():
            known = record.committed.get(path, 0) if record is not None else 0
            self.cut(log, min(max(known, log.first_base), log.end_offset), "above the watermark")
        self.aside.clear()
        return found

    patch.setattr(storage.Storage, "open", cut)


def joins_early(patch: pytest.MonkeyPatch) -> None:
    def confirmed(self: Stream, frame: Durable) -> None:
        self.received_bytes = frame.received_bytes
        self.durable, self.is_in_sync = max(frame.sequence, self.leader.sequence), True

    patch.setattr(Stream, "_confirmed", confirmed)


def local_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowingReign, "next_epoch", lambda self, epoch: Epoch(epoch + 1))
    patch.setattr(storage.Storage, "forget_unused_epochs", lambda self, log, leader: None)


def poll_before_commit(patch: pytest.MonkeyPatch) -> None:
    executed = Member.execute

    def execute(self: Member, command, on_committed) -> None:
        waiting = len(self.waiting)
        executed(self, command, on_committed)
        if type(command).__name__ == "Poll" and len(self.waiting) > waiting:
            self.waiting.pop()[1]()

    patch.setattr(Member, "execute", execute)


def durable_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage.StoragePlan, "run", lambda plan: None)


def state_before_its_messages(patch: pytest.MonkeyPatch) -> None:
    appended = Leader.appended
    held: list[tuple[Leader, Log, Head, list[Buffer]]] = []

    def later(self: Leader, log: Log, head: Head, parts: list[Buffer]) -> None:
        if log.directory.endswith("/messages"):
            held.append((self, log, head, [b"".join(parts)]))
            return
        appended(self, log, head, parts)
        for one in held:
            if one[0] is self:
                appended(*one)
        held.clear()

    patch.setattr(Leader, "appended", later)


def dead_letter_sent_twice(patch: pytest.MonkeyPatch) -> None:
    opened = Node.__init__

    def forget_arrivals(self: Node, *arguments, **options) -> None:
        opened(self, *arguments, **options)
        for one in self.partitions():
            one.machine.arrived[Channel.MESSAGES].clear()

    patch.setattr(Node, "__init__", forget_arrivals)


def piece_of_a_topic_lost(patch: pytest.MonkeyPatch) -> None:
    pieces = topic_works._Planned.pieces

    def some(planned: topic_works._Planned, size: int) -> Iterator[dict[str, PartitionId]]:
        return (piece for at, piece in enumerate(pieces(planned, size)) if at != 1)

    patch.setattr(topic_works._Planned, "pieces", some)


def intent_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leftovers, "_begin_removal", lambda catalogue, plan, now: None)


def files_of_deleted_topic_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "removed", lambda self, directory: None)


def forced_epoch_not_told(patch: pytest.MonkeyPatch) -> None:
    hello_to = Leader.hello_to
    patch.setattr(
        Leader, "hello_to", lambda self: msgspec.structs.replace(hello_to(self), forced_epoch=0)
    )


def reign_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Catalogue, "_record_reign", lambda node, epoch, now: None)


def state_decided_in_an_epoch_without_a_batch(patch: pytest.MonkeyPatch) -> None:
    def end(log: Log) -> LogEnd:
        return LogEnd(Epoch(max(log.epoch, log.reign.epoch)), log.end_offset)

    patch.setattr(Log, "end", property(end))


def checkpoints_know_a_meta_that_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage.Storage, "forget_meta", lambda self, end: None)


PLANTED: tuple[Plant, ...] = (
    reply_before_commit,
    commit_counts_too_few,
    epoch_not_raised,
    truncation_by_watermark,
    joins_early,
    local_epoch,
    poll_before_commit,
    durable_before_sync,
    state_before_its_messages,
    dead_letter_sent_twice,
    piece_of_a_topic_lost,
    intent_forgotten,
    files_of_deleted_topic_kept,
)
