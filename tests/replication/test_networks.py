"""Two brokers in two network namespaces, under load, through kills, stops and cuts, with promotions.

`Load` has producers, a shared and an assigned group, delays, dead letters and transactions; at the end both nodes, one
after the other, are compared with what its clients were told.
"""

import random
import signal
from collections.abc import Callable

import pytest

from . import disks
from .load import Load
from .networks import Network, networked_pair, why_not
from .pairs import Pair

pytestmark = pytest.mark.tier("test")
REPLICA_LAG_MS = 1000


class Rig:
    """A pair under load. Every misfortune leaves both nodes running and able to talk; `leader` may be another one."""

    def __init__(self, network: Network, nodes: Pair, load: Load) -> None:
        self.network, self.nodes, self.load = network, nodes, load
        self.leader, self.other = nodes
        self.chance = random.Random(25)

    def go_through(self, misfortune: Callable[["Rig"], None], progress: int = 3) -> None:
        misfortune(self)
        self.leader, self.other = self.nodes.in_sync()
        self.load.until(progress)

    def until_alone(self) -> None:
        self.leader.until(
            lambda: self.leader.call("GET", "/cluster").json["in_sync"] == 1, "one in sync"
        )


def kill_leader(rig: Rig) -> None:
    rig.leader.kill()
    rig.other.promote()
    rig.leader.start()


def kill_leader_which_leads_on(rig: Rig) -> None:
    rig.leader.kill()
    rig.leader.start()


def kill_follower(rig: Rig) -> None:
    rig.other.kill()
    rig.other.start()


def kill_both(rig: Rig) -> None:
    for one in (rig.leader, rig.other):
        one.kill()
    for one in (rig.leader, rig.other):
        one.start()


def stop_leader(rig: Rig) -> None:
    """Stopped, another one promoted, and awake again: it does not know that it leads no longer."""
    rig.leader.signal(signal.SIGSTOP)
    try:
        rig.other.promote()
    finally:
        rig.leader.signal(signal.SIGCONT)
    rig.leader.until_role("following")


def stop_follower(rig: Rig) -> None:
    rig.other.signal(signal.SIGSTOP)
    try:
        rig.until_alone()
    finally:
        rig.other.signal(signal.SIGCONT)


def cut_both_ways(rig: Rig) -> None:
    rig.network.cut(1, 2)
    rig.until_alone()
    rig.network.heal()


def cut_one_way(rig: Rig) -> None:
    rig.network.cut(rig.chance.randint(1, 2))
    rig.until_alone()
    rig.network.heal()


def cut_and_promote(rig: Rig) -> None:
    """Two nodes that both think that they lead, for as long as the line is cut: neither acknowledges anything."""
    rig.network.cut(1, 2)
    rig.other.promote()
    for one in rig.nodes:
        refused = one.publish("by one alone", topic="jobs")
        assert refused.status in {421, 503, 504}, refused
    rig.network.heal()
    rig.leader.until_role("following")


def lose_packets(rig: Rig) -> None:
    with rig.network.flapping(rig.chance):
        rig.load.until(5)


def slow_line(rig: Rig) -> None:
    with rig.network.slow(1, 2):
        rig.load.until(2)


def switch_over(rig: Rig) -> None:
    rig.other.promote()
    rig.leader.until_role("following")


def fail_disk_of_leader(rig: Rig) -> None:
    """One sync fails, and the next would succeed. The leader ends, and does not say what it cannot know."""
    disks.fail_sync(rig.leader)
    rig.other.promote()
    rig.leader.start()


def fail_disk_of_follower(rig: Rig) -> None:
    # One that ran on would end with the next sync of another thread.
    told = disks.fail_sync(rig.other)
    assert all(line.endswith("; the process stops") for line in told), told
    rig.until_alone()
    rig.other.start()


def slow_disk_of_leader(rig: Rig) -> None:
    with disks.slow_syncs(rig.leader, rig.chance.randint(10, 100)):
        rig.load.until(2)


def slow_disk_of_follower(rig: Rig) -> None:
    with disks.slow_syncs(rig.other, rig.chance.randint(10, 100)):
        rig.load.until(2)


KILLS = [kill_leader, kill_follower]
STOPS = [stop_leader, stop_follower]
CUTS = [cut_both_ways, cut_one_way, cut_and_promote, lose_packets, slow_line]
DISKS = [
    slow_disk_of_leader,
    fail_disk_of_follower,
    slow_disk_of_follower,
    fail_disk_of_leader,
]
EVERY = [*KILLS, *STOPS, *CUTS, kill_both, kill_leader_which_leads_on, switch_over]


@pytest.fixture(autouse=True, scope="module")
def namespaces():
    if reason := why_not():
        pytest.skip(reason)


def run(directory, misfortunes) -> None:
    settings = {"cluster__replica_lag_ms": str(REPLICA_LAG_MS)}
    with networked_pair(directory, **settings) as (network, nodes):
        with Load(nodes) as load:
            load.until(3)
            rig = Rig(network, nodes, load)
            for misfortune in misfortunes:
                rig.go_through(misfortune)
        # Both have everything: the standby is asked when it leads.
        load.check(rig.leader)
        rig.other.promote()
        rig.other.until_in_sync()
        load.check(rig.other)


def test_cuts_lost_packets_and_a_kill_under_every_kind_of_load(tmp_path):
    run(tmp_path, [cut_one_way, cut_and_promote, lose_packets, slow_line, kill_leader])


def test_slow_and_failing_syncs_of_either_side(tmp_path, effort):
    if reason := disks.why_not():
        pytest.skip(reason)
    run(tmp_path, DISKS * effort(check=1, test=1, torture=10))


@pytest.mark.tier("torture")
@pytest.mark.parametrize(
    ("misfortunes", "times"), [(KILLS, 100), (STOPS, 50), (CUTS, 50), (EVERY, 36)]
)
def test_many(tmp_path, misfortunes, times):
    run(tmp_path, [misfortunes[number % len(misfortunes)] for number in range(times)])
