"""The cases of the benches that are about delivery."""

from . import delays, lanes, rebalance

CASES = (*delays.CASES, *lanes.CASES, *rebalance.CASES)
