"""Delivery: who holds which message until when, and what happens if they never answer.

Knows offsets, deadlines and attempts of one group on one partition. Does not know topics, bytes, other groups or
clocks. `commands` decide, `machine` applies.
"""

from .commands import Answered as Answered
from .commands import Choice as Choice
from .commands import Failing as Failing
from .commands import Grant as Grant
from .commands import Granted as Granted
from .commands import Unfit as Unfit
from .machine import Delivery as Delivery
from .records import DeadReason as DeadReason
from .records import DeliveryRecord as DeliveryRecord
from .states import State as State
