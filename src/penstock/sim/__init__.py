"""Runs a node on a simulated disk and a virtual clock, from one seed, with faults and crashes.

The disk loses what was not synced. Nothing here uses real time or real files, so the same seed gives the same run.
"""

from .crash import CrashCounts as CrashCounts
from .crash import CrashState as CrashState
from .crash import CrashStates as CrashStates
from .crash import check_crashes as check_crashes
from .crash import power_cut as power_cut
from .damage import CrashKind as CrashKind
from .disk import SimDisk as SimDisk
from .durability import Model as Model
from .faults import ALWAYS as ALWAYS
from .faults import Call as Call
from .faults import Fault as Fault
from .faults import Misbehaviour as Misbehaviour
from .operations import Tree as Tree
from .schedule import SimClock as SimClock
