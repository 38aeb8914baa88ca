"""Log: batches in segments, found by offset and by time, kept through crashes.

Works on the `Disk` port and owns no clock. Knows batches and offsets; does not know topics, groups or who reads.
"""

from .log import Appended as Appended
from .log import Log as Log
from .log import Run as Run
from .log import SyncPlan as SyncPlan
from .opening import Recovery as Recovery
from .opening import open_log as open_log
from .opening import opening as opening
