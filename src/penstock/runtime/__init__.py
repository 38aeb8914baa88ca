"""Runtime: the real world behind the ports. Disk, clock, and the lock of a data directory.

Knows the operating system and nothing of what is stored. `penstock.sim` is its twin that misbehaves on purpose.
"""

from .clock import SystemClock as SystemClock
from .disk import RealDisk as RealDisk
