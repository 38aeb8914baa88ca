"""Kafka's error codes, and which of them stands for which of our errors."""

from collections import Counter
from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import TypeVar

from ...errors import (
    AlreadyExists,
    BacklogFull,
    ChecksumMismatch,
    Damaged,
    Draining,
    Forbidden,
    GroupBusy,
    InvalidConfig,
    InvalidName,
    MalformedBatch,
    ModeConflict,
    NoSpace,
    NotEnoughReplicas,
    NotFound,
    NotLeader,
    NotOwner,
    OffsetOutOfRange,
    OutOfSequence,
    PartitionFaulty,
    PenstockError,
    ProducerFenced,
    Refused,
    SchemaViolation,
    ShareFull,
    StaleGeneration,
    TooLarge,
    TooManyGroups,
    TooManyRequests,
    TransactionEnded,
    TransactionInProgress,
    Unavailable,
    Unconfirmed,
    UnknownMember,
    UnsupportedFormat,
)
from ...groups.classic import FencedMember, ProtocolConflict, RebalanceInProgress
from .wire import Values

K = TypeVar("K", bound=Hashable)


class Code(IntEnum):
    """Kafka's numbers for what went wrong, as far as the server says them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


# The first that fits: more special errors come first.
_CODES: tuple[tuple[type[PenstockError], Code], ...] = (
    (UnknownMember, Code.UNKNOWN_MEMBER_ID),
    (NotFound, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (OffsetOutOfRange, Code.OFFSET_OUT_OF_RANGE),
    (Forbidden, Code.TOPIC_AUTHORIZATION_FAILED),
    (TooLarge, Code.MESSAGE_TOO_LARGE),
    (ChecksumMismatch, Code.CORRUPT_MESSAGE),
    (UnsupportedFormat, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (MalformedBatch, Code.INVALID_RECORD),
    (SchemaViolation, Code.INVALID_RECORD),
    (AlreadyExists, Code.TOPIC_ALREADY_EXISTS),
    (InvalidName, Code.INVALID_TOPIC_EXCEPTION),
    (InvalidConfig, Code.INVALID_CONFIG),
    (GroupBusy, Code.NON_EMPTY_GROUP),
    (TooManyGroups, Code.POLICY_VIOLATION),
    (ShareFull, Code.POLICY_VIOLATION),
    (StaleGeneration, Code.ILLEGAL_GENERATION),
    (NotOwner, Code.ILLEGAL_GENERATION),
    (RebalanceInProgress, Code.REBALANCE_IN_PROGRESS),
    (ProtocolConflict, Code.INCONSISTENT_GROUP_PROTOCOL),
    (FencedMember, Code.FENCED_INSTANCE_ID),
    (ModeConflict, Code.INCONSISTENT_GROUP_PROTOCOL),
    (ProducerFenced, Code.INVALID_PRODUCER_EPOCH),
    (TransactionInProgress, Code.CONCURRENT_TRANSACTIONS),
    (TransactionEnded, Code.INVALID_TXN_STATE),
    (Refused, Code.INVALID_REQUEST),
    (NoSpace, Code.KAFKA_STORAGE_ERROR),
    (PartitionFaulty, Code.KAFKA_STORAGE_ERROR),
    (BacklogFull, Code.THROTTLING_QUOTA_EXCEEDED),
    (TooManyRequests, Code.THROTTLING_QUOTA_EXCEEDED),
    (Draining, Code.COORDINATOR_NOT_AVAILABLE),
    (NotLeader, Code.NOT_LEADER_OR_FOLLOWER),
    (NotEnoughReplicas, Code.NOT_ENOUGH_REPLICAS),
    (Unconfirmed, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    (Unavailable, Code.REQUEST_TIMED_OUT),
    (Damaged, Code.CORRUPT_MESSAGE),
)
_OK = "ok"
_ERROR_FIELDS = ("error_code", "acknowledge_error_code", "partition_error_code")
# The same error means another thing where a group, and no topic, was asked for.
_CODES_OF_GROUPS = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.GROUP_ID_NOT_FOUND,
    Code.TOPIC_AUTHORIZATION_FAILED: Code.GROUP_AUTHORIZATION_FAILED,
    Code.INVALID_TOPIC_EXCEPTION: Code.INVALID_GROUP_ID,
}


def repeats(keys: Iterable[K]) -> set[K]:
    """What a request names more than once: Kafka refuses each of them with INVALID_REQUEST."""
    return {key for key, count in Counter(keys).items() if count > 1}


def code_of(error: PenstockError) -> Code:
    """The code of an error that was met with a topic."""
    if isinstance(error, OutOfSequence):
        return _sequence_code(error)
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), Code.UNKNOWN_SERVER_ERROR
    )


def group_code_of(error: PenstockError) -> Code:
    """The code of an error that was met with a group."""
    code = code_of(error)
    return _CODES_OF_GROUPS.get(code, code)


def _sequence_code(error: OutOfSequence) -> Code:
    if error.fields.get("next_sequence") is not None:
        return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    # A producer that this partition does not know, or forgot; or one that another took the place of.
    is_replaced = "replaced" in str(error)
    return Code.INVALID_PRODUCER_EPOCH if is_replaced else Code.UNKNOWN_PRODUCER_ID


def outcome_of(values: Values) -> str:
    """The name of the first error in a response, in small letters; `ok` if there is none."""
    code = _first_error(values)
    if not code:
        return _OK
    return Code(code).name.lower()


def _first_error(values: Values) -> int:
    for name, value in values.items():
        if name in _ERROR_FIELDS and value:
            return int(value)
        if isinstance(value, dict):
            found = _first_error(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found = next((code for one in value if (code := _first_error(one))), 0)
        else:
            continue
        if found:
            return found
    return 0
