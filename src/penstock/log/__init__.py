"""Log: batches in segments, found by offset and by time, kept through crashes.

Works on the `Disk` port and owns no clock. Works on batches and offsets, without topics, groups or readers.
"""

from .log import AppendResult as AppendResult
from .log import Log as Log
from .log import Run as Run
from .opening import Recovery as Recovery
from .opening import open_log as open_log
from .sync_plan import SyncPlan as SyncPlan
