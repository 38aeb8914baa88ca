"""One partition: its logs, the state that they make up, and how commands change it.

Nothing in here knows the node, other topics or commands: handlers do.
"""

from .context import PartitionContext as PartitionContext
from .context import PartitionId as PartitionId
from .partition import FORMAT as FORMAT
from .partition import Now as Now
from .partition import Partition as Partition
from .partition import now_of as now_of
from .plan import PartitionPlan as PartitionPlan
