"""One partition: its logs, the state that they make up, and how commands change it.

Nothing in here knows the node, other topics or commands: handlers do.
"""

from .partition import FORMAT as FORMAT
from .partition import Now as Now
from .partition import Partition as Partition
from .partition import now_of as now_of
from .plan import PartitionPlan as PartitionPlan
from .setting import PartitionId as PartitionId
from .setting import Setting as Setting
