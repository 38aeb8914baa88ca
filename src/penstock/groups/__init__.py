"""Groups: which member of a group may read which partition, and how that right passes from one to the next.

Knows members, partitions by name, and deadlines. Does not know messages, leases or clocks. `commands` decide,
`membership` applies.
"""

from .commands import Joining as Joining
from .commands import Moment as Moment
from .membership import Member as Member
from .membership import Membership as Membership
from .records import GroupRecord as GroupRecord
