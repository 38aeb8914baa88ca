"""Kernel: the shape that every capability has. Decide, record, apply.

Knows no capability. A command is a method that reads state and returns an `Outcome`, or refuses by raising
from `penstock.errors`; only `Machine.apply` changes state.
"""

from .machine import Machine as Machine
from .outcome import Outcome as Outcome
from .owner_counts import OwnerCounts as OwnerCounts
