"""What a follower finds when it starts: a crash while a log was made is no damage, what was synced and is gone is."""

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from penstock.codec import Columns, encode
from penstock.errors import FileMissing, NoSpace, PenstockError
from penstock.model import Epoch
from penstock.replication.frames import LEVEL, EpochAt, Hello, LogFacts
from penstock.replication.reconcile import META
from penstock.replication.replica import Replica
from penstock.replication.replica_file import ReplicaRecord, write_record
from penstock.replication.storage import Storage
from penstock.sim import SimDisk
from penstock.sim.crash import check_crashes
from penstock.sim.faults import ALWAYS, Call, Fault, Misbehaviour

PATH = "topics/default/orders/partition-0/state"
IDENTITY, SEGMENT = f"{PATH}/identity", f"{PATH}/00000000000000000000.log"
FACTS = LogFacts(PATH, 7, 0, 0, (EpochAt(257, 0),), 700, 128)


def made(*, is_written: bool) -> SimDisk:
    disk = SimDisk()
    log = Storage(disk).make(FACTS)
    if is_written:
        log.append(encode(Columns(values=[b"a"], timestamps=0)), now_ns=1)
        log.sync()
    log.discard()
    return disk


def tear(disk: SimDisk, path: str, size: int) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.sync()
    file.close()


@pytest.mark.parametrize("size", [0, 11])
def test_a_log_whose_identity_did_not_reach_the_disk_was_never_there(size: int) -> None:
    disk = made(is_written=False)
    tear(disk, IDENTITY, size)
    storage = Storage(disk)
    assert storage.open()
    assert not storage.aside
    # The leader sends it again.
    assert storage.make(FACTS).end_offset == 0


def test_a_log_whose_first_segment_did_not_reach_the_disk_is_empty() -> None:
    disk = made(is_written=False)
    disk.remove(SEGMENT)
    storage = Storage(disk)
    assert storage.open()
    assert not storage.aside
    assert storage.logs[PATH].end_offset == 0


def test_an_index_of_the_history_that_may_know_what_a_crash_took_goes() -> None:
    disk = made(is_written=True)
    index = SEGMENT.replace(".log", ".journeys")
    disk.create(index).close()
    disk.sync_directory(PATH)
    assert Storage(disk).open()
    assert not disk.exists(index)


def test_what_was_synced_and_is_gone_is_damage() -> None:
    without_segment, without_identity = made(is_written=True), made(is_written=True)
    without_segment.remove(SEGMENT)
    tear(without_identity, IDENTITY, 0)
    for disk in (without_segment, without_identity):
        storage = Storage(disk)
        assert not storage.open()
        assert [one.path for one in storage.aside] == [PATH]


def test_a_power_cut_at_any_moment_while_a_log_is_made_is_no_damage() -> None:
    def make(disk: SimDisk) -> None:
        Storage(disk).make(FACTS)

    def check(disk: SimDisk, marks: object) -> None:
        storage = Storage(disk)
        assert storage.open()
        assert not storage.aside

    check_crashes(make, check, entropy=random.Random(7))


def appended_to_many() -> Storage:
    """Forty logs and meta, with a batch each that no sync was asked for yet."""
    storage = Storage(SimDisk())
    paths = [f"topics/default/orders/partition-{number}/state" for number in range(40)]
    for path in (META, *paths):
        log = storage.make(msgspec.structs.replace(FACTS, path=path))
        log.append(encode(Columns(values=[b"a"], timestamps=0)), now_ns=1)
        storage.appended(log)
    return storage


class Rounds:
    """Calls the syncs of a plan in the wrong order, and notes the logs of each round."""

    def __init__(self) -> None:
        self.logs: list[set[str]] = []

    def run(self, syncs: Sequence[Callable[[], None]]) -> list[PenstockError | None]:
        self.logs.append({sync.__self__.directory for sync in syncs})
        found: list[PenstockError | None] = []
        for sync in reversed(syncs):
            try:
                found.insert(0, sync())
            except PenstockError as error:
                found.insert(0, error)
        return found


def test_all_logs_are_synced_together_and_meta_after_them() -> None:
    storage, rounds = appended_to_many(), Rounds()
    plan = storage.plan_sync(0, 0)
    plan.run(rounds.run)
    assert rounds.logs == [storage.logs.keys() - {META}, {META}]
    storage.synced(plan)
    assert all(log.durable_end == log.end_offset == 1 for log in storage.logs.values())


def test_a_log_that_cannot_be_synced_keeps_meta_from_it_and_no_other_log() -> None:
    storage, rounds = appended_to_many(), Rounds()
    plan = storage.plan_sync(0, 0)
    storage.disk.remove(storage.logs["topics/default/orders/partition-7/state"].segments[-1].path)
    with pytest.raises(FileMissing, match="partition-7/"):
        plan.run(rounds.run)
    assert rounds.logs == [storage.logs.keys() - {META}]


def without_its_last_batch() -> SimDisk:
    """A log of two batches that were synced. The second is damaged, and so is what says that it was durable."""
    disk = SimDisk()
    log = Storage(disk).make(FACTS)
    for value in (b"a", b"b"):
        log.append(encode(Columns(values=[value], timestamps=0)), now_ns=1)
    log.sync()
    log.discard()
    disk.remove(f"{PATH}/checkpoint")
    tear(disk, SEGMENT, disk.size(SEGMENT) - 1)
    return disk


def test_a_damaged_end_is_told_where_it_is_known_to_be_committed() -> None:
    torn, damaged = Storage(without_its_last_batch()), Storage(without_its_last_batch())
    # Nothing says that the second batch was durable.
    assert torn.open({PATH: 1})
    assert not torn.aside
    assert not damaged.open({PATH: 2})
    ((path, kept_in, reason, offsets),) = damaged.aside
    assert (path, offsets) == (PATH, range(1, 2))
    assert damaged.disk.exists(kept_in)
    assert reason == "it ends at offset 1, and was committed to 2"
    # The leader sends what is missing.
    assert damaged.logs[PATH].end_offset == 1


def test_a_replica_with_a_damaged_end_does_not_lead_before_it_is_level_or_by_force() -> None:
    disk = without_its_last_batch()
    write_record(disk, ReplicaRecord(1, "c", committed={PATH: 2}))
    replica = Replica(disk, node=2, entropy=random.Random(7))
    assert not replica.is_whole
    assert [one.path for one in replica.aside] == [PATH]
    # By force: what is missing is in no history any more, and is not missed at the next start.
    assert replica.lead(Epoch(514)).committed == {PATH: 1}
    again = Replica(disk, node=2, entropy=random.Random(7))
    assert again.is_whole
    assert not again.aside


FULL = Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, times=ALWAYS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_logs_that_are_made_together_there_is_room_for_all_or_none(count: int) -> None:
    disk = SimDisk()
    storage = Storage(disk)
    some = [
        msgspec.structs.replace(FACTS, path=f"{PATH}-{number}", log_id=number + 7)
        for number in range(count)
    ]
    for facts in some[:-1]:
        storage.begin(facts)
    disk.inject(FULL)
    with pytest.raises(NoSpace):
        storage.begin(some[-1])
    disk.faults.clear()
    assert not storage.logs
    assert not any(disk.list(facts.path) for facts in some if disk.exists(facts.path))
    for facts in some:
        storage.begin(facts)
    storage.settle()
    storage.discard()
    assert storage.open()
    assert {*storage.logs} == {facts.path for facts in some}


def test_an_unused_epoch_is_forgotten_durably_or_not_at_all() -> None:
    disk = made(is_written=True)
    storage = Storage(disk)
    assert storage.open()
    log = storage.logs[PATH]
    log.begin_epoch(Epoch(770))
    log.sync(with_checkpoint=True)
    disk.inject(FULL)
    with pytest.raises(NoSpace):
        storage.forget_unused_epochs(log, FACTS)
    # The leader's next batch may be of an earlier one. It must not be taken as long as a restart would cut it.
    assert log.epoch == 770
    disk.faults.clear()
    storage.forget_unused_epochs(log, FACTS)
    storage.discard()
    assert storage.open()
    assert storage.logs[PATH].epoch == 257


def test_what_does_not_fit_beside_a_log_is_not_cut_and_listed_once_when_it_does() -> None:
    disk = made(is_written=True)
    storage = Storage(disk)
    assert storage.open()
    log = storage.logs[PATH]
    log.append(encode(Columns(values=[b"b"], timestamps=0)), now_ns=9)
    disk.inject(FULL)
    with pytest.raises(NoSpace):
        storage.cut(log, 1, "not in the history")
    assert (log.end_offset, log.append_time, storage.aside) == (2, 9, [])
    disk.faults.clear()
    # The copy fits now, and the checkpoint after it does not.
    disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part="checkpoint"))
    with pytest.raises(NoSpace):
        storage.cut(log, 1, "not in the history")
    assert (log.end_offset, log.append_time, storage.aside) == (2, 9, [])
    storage.cut(log, 1, "not in the history")
    assert (log.end_offset, log.append_time) == (1, 1)
    (one,) = storage.aside
    assert one.offsets == range(1, 2)
    assert [name for name in disk.list(PATH) if "cut" in name] == [one.kept_in.rpartition("/")[2]]


def test_a_promise_that_is_not_durable_is_none() -> None:
    disk = SimDisk()
    replica = Replica(disk, node=2, entropy=random.Random(7), cluster_id="c")
    disk.inject(FULL)
    hello = Hello("c", 1, 11, 12, LEVEL, 770, "leader")
    for _ in range(2):
        with pytest.raises(NoSpace):
            replica.receive(hello)
    disk.faults.clear()
    replica.receive(hello)
    assert Replica(disk, node=2, entropy=random.Random(8)).record.promised == 770


def test_damage_on_a_full_disk_is_not_set_aside_before_that_is_noted() -> None:
    disk = made(is_written=True)
    write_record(disk, ReplicaRecord(1, "c"))
    disk.remove(SEGMENT)
    disk.inject(FULL)
    with pytest.raises(NoSpace):
        Replica(disk, node=2, entropy=random.Random(7))
    assert disk.list(PATH)
    disk.faults.clear()
    assert not Replica(disk, node=2, entropy=random.Random(7)).is_whole
