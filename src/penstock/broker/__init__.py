"""Broker: topics, partitions and groups as one thing that a shell can drive.

Decides and records; owns no clock, no thread and no socket. `Node` is the way in: it is told the time, given a disk,
and asked for the plans that make things durable.
"""

from ..api.publish import Published as Published
from ..api.received import Received as Received
from .node import Node as Node
from .partition import Now as Now
from .partition import Partition as Partition
from .partition.consumption import Wanted as Wanted
