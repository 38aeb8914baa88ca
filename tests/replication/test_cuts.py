"""The connection between two brokers is cut under load, in one direction or both, with promotions meanwhile."""

import random

import pytest

from .cables import Cable
from .pairs import TOPIC, pair
from .test_pair import Load


@pytest.mark.tier("torture")
def test_cuts_in_one_direction_and_both_lose_nothing_and_no_node_acknowledges_alone(
    tmp_path, effort
):
    chance = random.Random(25)
    with pair(tmp_path, is_started=False) as nodes:
        cables = [Cable(nodes.second.peer), Cable(nodes.first.peer)]
        nodes.first.way_to_peer, nodes.second.way_to_peer = (one.port for one in cables)
        nodes.first.start()
        nodes.second.start("--follow", f"127.0.0.1:{cables[1].port}")
        leader, other = nodes.in_sync()
        assert leader.call("POST", "/topics", TOPIC).status == 201
        with Load(nodes) as load:
            for number in range(effort(check=1, test=1, torture=50)):
                load.until(10)
                # The one that follows has dialled: both directions of its cable, or one of them.
                cable = cables[other.number - 1]
                is_promoted = number % 5 == 4
                ways = [cable.there, cable.back]
                for way in ways if is_promoted else chance.sample(ways, chance.randint(1, 2)):
                    way.clear()
                leader.until(
                    lambda one=leader: one.call("GET", "/cluster").json["in_sync"] == 1, "alone"
                )
                if is_promoted:
                    cables[leader.number - 1].there.clear()
                    other.promote()
                    assert leader.publish("by the one that was left").status in {421, 503, 504}
                for cable in cables:
                    cable.heal()
                leader, other = nodes.in_sync()
        found = leader.values()
        assert [one for one in found if one in {*load.acknowledged}] == load.acknowledged
        assert len(found) == len({*found})
        for cable in cables:
            cable.close()
