"""Delivery: which member holds which message until when, and what happens if it never answers.

Works on offsets, deadlines and attempts of one group on one partition, without topics, bytes, other groups or clocks.
`commands` decide, `machine` applies.
"""

from .commands import AnswerResult as AnswerResult
from .commands import Choice as Choice
from .commands import FailureRules as FailureRules
from .commands import GrantedLease as GrantedLease
from .commands import LeaseRequest as LeaseRequest
from .commands import Undeliverable as Undeliverable
from .machine import Delivery as Delivery
from .records import DeadReason as DeadReason
from .records import DeliveryRecord as DeliveryRecord
