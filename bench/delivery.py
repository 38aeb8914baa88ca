"""What becomes of messages after they were stored: who gets them, when, and what that costs. Gathers the cases."""

from . import delays, lanes, rebalance

CASES = (*delays.CASES, *lanes.CASES, *rebalance.CASES)
