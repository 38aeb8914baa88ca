"""Transactions: what a coordinator knows of producers, and what a partition keeps for transactions that are open.

Pure machines. A coordinator is the state of a partition of the internal topic `__transactions`; stagings are the state
of the partition that they are to go to.
"""

from .coordinator import Coordinator as Coordinator
from .records import TransactionRecord as TransactionRecord
from .stagings import Stagings as Stagings
from .states import TransactionState as TransactionState
