"""Two and three nodes that crash, are cut off and are promoted: nothing acknowledged is lost, nothing comes twice."""

import random
from collections.abc import Callable

import pytest

from penstock.errors import DiskFailed, Fenced, NoSpace, Refused
from penstock.replication.frames import LEVEL, Hello
from penstock.replication.replica import Replica
from penstock.replication.storage import Storage
from penstock.sim import SimDisk
from penstock.sim.cluster import ClusterResult, ClusterWorld, run_cluster
from penstock.sim.faults import Call, Fault, Misbehaviour
from penstock.sim.violation import Violation

from .planted import PLANTED, Plant, forced_epoch_not_told

_SECONDS = 6
_SHARDS = 4
Effort = Callable[..., int]


@pytest.mark.parametrize("seed", range(3))
def test_two_nodes(seed: int) -> None:
    result = run_cluster(seed, nodes=2, seconds=_SECONDS)
    assert result.acked > 0


@pytest.mark.parametrize(("seed", "min_isr"), [(1, 2), (3, 3)])
def test_three_nodes(seed: int, min_isr: int) -> None:
    result = run_cluster(seed, nodes=3, min_isr=min_isr, seconds=_SECONDS)
    assert result.acked > 0


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_many_seeds_of_two_and_three_nodes(shard: int, effort: Effort) -> None:
    for seed in range(9000 + shard, 9000 + effort(check=0, test=8, torture=1000), _SHARDS):
        run_cluster(seed, nodes=2 + seed % 2, min_isr=3 if seed % 6 == 5 else 2)


def test_nodes_come_together_after_forced_promotions_and_lose_nothing_since(
    effort: Effort,
) -> None:
    results = run_forced_seeds(range(effort(check=4, test=20, torture=400)))
    assert sum(result.forced for result in results) > 4


def test_a_forced_epoch_that_is_not_told_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forced_epoch_not_told(monkeypatch)
    with pytest.raises(Violation, match="HistoryLost"):
        run_forced_seeds(range(40))


# What reconciliation does to logs.
_CUTTING = ("cut", "begin", "forget_meta", "forget_unused_epochs")


class FullDisks:
    """Has the disk of a follower fill up while reconciliation cuts its logs; now and then the power fails then, too."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.entropy = random.Random(7)
        self.count = 0
        self.world = ClusterWorld(0)
        for name in _CUTTING:
            patch.setattr(Storage, name, self._full(getattr(Storage, name)))

    def _full(self, original: Callable[..., object]) -> Callable[..., object]:
        def full(storage: Storage, *arguments: object) -> object:
            # Before anything is acknowledged, operators of the simulation promote by force.
            if self.world.is_calm or not self.world.book.acked:
                return original(storage, *arguments)
            call = self.entropy.choice((Call.CREATE, Call.APPEND))
            nth = self.entropy.randint(1, 5)
            storage.disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth))
            try:
                return original(storage, *arguments)
            except NoSpace:
                self.count += 1
                if self.entropy.randint(0, 2) == 0:
                    raise DiskFailed("disk", "the power is off") from None
                raise
            finally:
                storage.disk.faults.clear()

        return full


def test_disks_that_fill_up_while_logs_are_cut_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    disks = FullDisks(monkeypatch)
    for seed in range(effort(check=3, test=12, torture=300)):
        disks.world = ClusterWorld(seed, nodes=2 + seed % 2, seconds=_SECONDS)
        disks.world.run()
    assert disks.count > 5


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        run_seeds()


def run_forced_seeds(seeds: range) -> list[ClusterResult]:
    return [
        run_cluster(seed, nodes=2 + seed % 2, seconds=_SECONDS, is_forced=True) for seed in seeds
    ]


def run_seeds() -> None:
    # The first one is the quickest in which a log is cut in one step where two are needed.
    for seed in (128, *range(100, 112)):
        run_cluster(seed, nodes=2 + seed % 2, seconds=_SECONDS)


def new_replica(disk: SimDisk) -> Replica:
    return Replica(disk, node=2, entropy=random.Random(7), cluster_id="c")


def leader_of(epoch: int, cluster_id: str = "c", level: int = LEVEL) -> Hello:
    return Hello(cluster_id, 1, 11, 12, level, epoch, "leader")


def test_promise_outlives_a_crash_and_fences_earlier_leaders() -> None:
    disk = SimDisk()
    new_replica(disk).promise(770)
    replica = new_replica(disk)
    with pytest.raises(Fenced, match="770"):
        replica.receive(leader_of(513))
    replica.receive(leader_of(770))


def test_empty_disk_is_not_whole() -> None:
    assert not new_replica(SimDisk()).is_whole


@pytest.mark.parametrize("hello", [leader_of(257, "other"), leader_of(257, level=LEVEL + 1)])
def test_another_cluster_or_level_is_refused(hello: Hello) -> None:
    with pytest.raises(Refused, match=rf"cluster 'other'|level {LEVEL + 1}"):
        new_replica(SimDisk()).receive(hello)
