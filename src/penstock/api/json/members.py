"""Members of groups as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...config import SESSION_MS_MIN
from ...errors import BadRequest
from ...model import TopicPartition
from ..groups import Mode, Rebalance
from ..members import Assignor, JoinGroup, JoinReply
from ..units import time_text
from .messages import Int64, ReceivedOut, Strict
from .start import start_of
from .times import Span, span_ms

# A lost heartbeat or two do no harm.
HEARTBEATS_A_SESSION = 3
_ASSIGNORS = {one.value: one for one in Assignor}
_ORDERS = {"relaxed": Mode.RELAXED, "strict": Mode.STRICT}


class JoinIn(Strict):
    """A member, and what it wants to read. A `member_id` of before takes that member's place.

    `keeps_leases`: it is the same member after all, which has lost the broker for a while, with messages in its hands.
    `start` is where a group that is new begins: earliest, latest, an offset, or a time.
    """

    topics: list[str]
    client_id: str = "member"
    member_id: str = ""
    mode: str = "assigned"
    order: str | None = None
    assignor: str | None = None
    session_timeout: Span | None = None
    auto_commit: bool = False
    keeps_leases: bool = False
    start: str | Int64 = "earliest"


class JoinOut(msgspec.Struct):
    """`assigned_partitions` are to be read now; more may follow when others have let go.

    The broker misses a member that it has not heard of for `session_timeout_ms`, and asks for a heartbeat every
    `heartbeat_interval_ms`.
    """

    member_id: str
    generation: int
    leader: bool
    assigned_partitions: list[str]
    rebalance_required: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int


class MemberIn(Strict):
    member_id: str
    generation: Int64 | None = None


class HeartbeatOut(msgspec.Struct):
    """`partitions_assigned` is the whole assignment; what is in `partitions_to_revoke` has to be let go of.

    `changes` is another number whenever one of the two is.
    """

    state: str
    generation: int
    rebalance_required: bool
    partitions_to_revoke: list[str]
    partitions_assigned: list[str]
    changes: int = 0


class RevokeIn(Strict):
    """Partitions that the member has finished with, such as "orders/0"."""

    member_id: str
    partitions: list[str]
    generation: Int64 | None = None


class RevokeOut(msgspec.Struct):
    released: list[str]


class MemberPollQuery(Strict):
    """A poll of a member. It ends at once when the member has to let go of something or may take something.

    With the `changes` of its last heartbeat also if that happened before.
    """

    member_id: str
    max_messages: Int64 | None = None
    limit: Int64 | None = None
    timeout: Span = 30_000
    generation: Int64 | None = None
    visibility_timeout: Span | None = None
    priority: str | None = None
    request_id: str = ""
    changes: Int64 | None = None
    encoding: str | None = None


class MemberPollOut(msgspec.Struct):
    messages: list[ReceivedOut]
    generation: int
    rebalance_required: bool


class RebalancesOut(msgspec.Struct):
    """By group: why its assignment changed lately, newest last."""

    groups: dict[str, list[dict[str, Any]]]


def written(partitions: Sequence[TopicPartition]) -> list[str]:
    return [f"{one.topic}/{one.number}" for one in partitions]


def partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("/")
    if not (topic and number.isascii() and number.isdecimal() and len(number) <= 6):
        raise BadRequest(
            f'a partition looks like "orders/0", got {text[:60]!r}', field="partitions"
        )
    return TopicPartition(topic, int(number))


def session_ms_of(sent: JoinIn) -> int:
    """How long a session lasts; 0: as the broker is configured."""
    if sent.session_timeout is None:
        return 0
    session_ms = span_ms("session_timeout", sent.session_timeout)
    if session_ms < SESSION_MS_MIN:
        raise BadRequest("session_timeout must be at least 1s", field="session_timeout")
    return session_ms


def join_of(group: str, sent: JoinIn) -> JoinGroup:
    """The command to become a member of an assigned group. BadRequest names the field that does not fit."""
    if sent.mode != "assigned":
        raise BadRequest(f"mode must be assigned or shared, got {sent.mode[:40]!r}", field="mode")
    if sent.order is not None and sent.order not in _ORDERS:
        raise BadRequest(f"order must be relaxed or strict, got {sent.order[:40]!r}", field="order")
    if sent.assignor is not None and sent.assignor not in _ASSIGNORS:
        known = ", ".join(_ASSIGNORS)
        raise BadRequest(f"assignor must be one of {known}", field="assignor")
    return JoinGroup(
        group,
        sent.member_id,
        tuple(sent.topics),
        client=sent.client_id,
        session_ms=session_ms_of(sent),
        assignor=None if sent.assignor is None else _ASSIGNORS[sent.assignor],
        mode=None if sent.order is None else _ORDERS[sent.order],
        is_auto_commit=sent.auto_commit,
        keeps_leases=sent.keeps_leases,
        start=start_of(sent.start, "start"),
    )


def join_out(joined: JoinReply, session_ms: int, heartbeat_ms: int) -> JoinOut:
    standing = joined.standing
    return JoinOut(
        joined.member,
        standing.generation,
        joined.is_first,
        written(standing.assigned),
        bool(standing.to_release),
        session_ms,
        min(heartbeat_ms, session_ms // HEARTBEATS_A_SESSION),
    )


def rebalances_out(found: Mapping[str, Sequence[Rebalance]]) -> RebalancesOut:
    shown = {
        name: [
            {
                "generation": one.generation,
                "cause": one.cause.value,
                "members": list(one.members),
                "at": time_text(one.wall_ns),
                "partitions_passed": len(one.passed),
                "forced": one.forced,
                "took_ms": one.took_ms,
            }
            for one in some
        ]
        for name, some in found.items()
    }
    return RebalancesOut(shown)
