"""Sim: the world behind the ports, in memory, seeded, and misbehaving on purpose.

A disk that loses what was not synced, and everything that a power cut could leave of it. No real time, no files
of the system: the same seed gives the same run.
"""

from .clock import SimClock as SimClock
from .crash import CrashCounts as CrashCounts
from .crash import CrashState as CrashState
from .crash import CrashStates as CrashStates
from .crash import check_crashes as check_crashes
from .crash import power_cut as power_cut
from .damage import Kind as Kind
from .disk import SimDisk as SimDisk
from .durability import Model as Model
from .faults import ALWAYS as ALWAYS
from .faults import Call as Call
from .faults import Fault as Fault
from .faults import Misbehaviour as Misbehaviour
from .operations import Tree as Tree
