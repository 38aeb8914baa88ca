"""What batches say of delays: when messages are due, and which delayed messages have become these."""

import numpy as np
import numpy.typing as npt

from .blobs import Bools
from .body import DELAY_IDS, DELAY_KEYS, DUE_AT, EXPIRES_AT, Body
from .head import Head
from .numbers import as_array

Int64s = npt.NDArray[np.int64]


def due_times(body: Body) -> Int64s:
    """When each message of a delay log's batch is due, in ns since 1970."""
    return as_array(body.number(DUE_AT), body.count, np.int64)


def delay_keys(body: Body) -> list[bytes | None] | None:
    """The business key of each message; None if no message has one."""
    return body.blob(DELAY_KEYS).items(body.count) if DELAY_KEYS in body.blobs else None


def delay_ids(body: Body, head: Head) -> Int64s:
    """Which delayed message each message of a fired batch was."""
    distances = as_array(body.number(DELAY_IDS), body.count, np.int64)
    return distances + np.int64(head.origin_sequence)


def expired_among(body: Body, head: Head) -> Bools:
    """Which messages of a batch were too old for delivery when they were appended."""
    expires_at = as_array(body.number(EXPIRES_AT), body.count, np.int64)
    is_over: Bools = (expires_at != 0) & (expires_at <= head.append_time)
    return is_over
