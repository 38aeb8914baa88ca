"""A pair with 200 partitions under load, either side of which is killed again and again."""

import random

import pytest

from .load import Load
from .pairs import Node, pair

# Of each of three topics; with those of transactions and dead letters there are some 200.
PARTITIONS = 66
_CHANCE = random.SystemRandom()


def kill_follower(other: Node) -> None:
    """Now and then once more, while it catches up."""
    other.kill()
    while _CHANCE.random() < 0.3:
        other.start()
        other.kill()
    other.start()


@pytest.mark.tier("test")
def test_kills_of_either_side_lose_nothing_and_store_nothing_twice(tmp_path, effort):
    with pair(tmp_path) as nodes:
        leader, other = nodes
        with Load(nodes, partitions=PARTITIONS) as load:
            for _ in range(effort(check=2, test=4, torture=200)):
                load.until(_CHANCE.randint(1, 8))
                if _CHANCE.random() < 0.5:
                    leader.kill()
                    other.promote()
                    leader.start()
                    leader, other = other, leader
                else:
                    kill_follower(other)
                leader.until_in_sync()
            load.until(3)
        # Both have everything: the standby is asked when it leads.
        load.check(leader)
        other.promote()
        other.until_in_sync()
        load.check(other)
