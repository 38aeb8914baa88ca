"""Groups: which member of a group may read which partition, and how that right passes from one to the next.

Knows members, partitions by name, and deadlines. Does not know messages, leases or clocks. `commands` decide,
`membership` applies.
"""

from .assignors import Assignor as Assignor
from .assignors import TopicPartition as TopicPartition
from .commands import Joining as Joining
from .commands import Moment as Moment
from .commands import Standing as Standing
from .membership import Member as Member
from .membership import Membership as Membership
from .membership import Rebalance as Rebalance
from .modes import Mode as Mode
from .records import Cause as Cause
from .records import GroupRecord as GroupRecord
