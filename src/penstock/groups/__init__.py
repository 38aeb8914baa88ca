"""Groups: which member of a group owns which partition, and how a partition moves to another member.

Works on members, partitions by name, and deadlines, without messages, leases or clocks. `commands` decide, `membership`
applies.
"""

from .commands import GroupTime as GroupTime
from .commands import JoinRequest as JoinRequest
from .membership import Member as Member
from .membership import Membership as Membership
from .records import GroupRecord as GroupRecord
