"""Transactions: what a coordinator knows of producers, and what a partition keeps for transactions that are open.

Pure machines. A coordinator is the state of a partition of the internal topic `__transactions`; stagings are the state
of the partition that they are to go to.
"""

from .commit_records import NamedCommitRecord as NamedCommitRecord
from .coordinator import Coordinator as Coordinator
from .names import CommitNames as CommitNames
from .records import TransactionRecord as TransactionRecord
from .stagings import Stagings as Stagings
from .states import TransactionState as TransactionState
