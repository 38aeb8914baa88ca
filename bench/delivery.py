"""The cases of the benches that are about delivery."""

from . import delays, lanes, partitions, rebalance

CASES = (*delays.CASES, *lanes.CASES, *partitions.CASES, *rebalance.CASES)
