"""What a consumer is made with, checked once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, TypedDict

from ..api.arguments import function, plain_function, several, text, whole_number
from ..api.units import Duration, duration_s
from ..errors import PenstockError, Refused
from ..model import check_name
from .membership import Joining

PartitionsTold = Callable[[list[str]], Any]
"""Hears of partitions, written as "orders/0". With asyncio it may be a coroutine function."""

MODES = ("shared", "assigned")
# As often as the server wants to hear of us at least; 3 chances before we are missed.
_BEATS_A_SESSION = 3


class ConsumerOptions(TypedDict, total=False):
    """What `client.consumer` takes by name; the guide says more (docs/client.md)."""

    mode: str
    order: str | None
    assignor: str | None
    member: str
    session_timeout: Duration
    heartbeat_interval: Duration
    visibility_timeout: Duration | None
    max_poll: int
    priority: str | None
    auto_commit: bool
    extend_for: Duration
    patience: Duration
    on_assigned: PartitionsTold | None
    on_revoked: PartitionsTold | None
    on_lost: PartitionsTold | None
    on_error: Callable[[PenstockError], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """`mode`: shared (any member takes any message) or assigned (each partition has one member).

    `max_poll`: messages in the hands of an iteration at once. `visibility_timeout`: how long a message is lent (the
    topic's, if not said); it is extended while we live, up to `extend_for` after the poll that brought it.
    `auto_commit`: a message is finished when the next one is asked for. `patience`: how long an iteration waits for a
    server that is away before it raises.
    """

    mode: str = "shared"
    order: str | None = None
    assignor: str | None = None
    member: str = ""
    session_timeout: Duration = 30
    heartbeat_interval: Duration = 3
    visibility_timeout: Duration | None = None
    max_poll: int = 500
    priority: str | None = None
    auto_commit: bool = False
    extend_for: Duration = 600
    patience: Duration = 300
    on_assigned: PartitionsTold | None = None
    on_revoked: PartitionsTold | None = None
    on_lost: PartitionsTold | None = None
    on_error: Callable[[PenstockError], Any] | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Refused(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        whole_number("max_poll", self.max_poll, 1)
        if text("the name of a member", self.member):
            check_name(self.member, "member")
        for name in ("session_timeout", "heartbeat_interval"):
            if duration_s(getattr(self, name), name) <= 0:
                raise Refused(f"{name} must be above 0, got {getattr(self, name)!r}")
        for name in ("extend_for", "patience"):
            if duration_s(getattr(self, name), name) < 0:
                raise Refused(f"{name} cannot be below 0, got {getattr(self, name)!r}")
        for name in ("on_assigned", "on_revoked", "on_lost"):
            function(name, getattr(self, name))
        plain_function("on_error", self.on_error)
        if self.mode == "shared" and (self.order or self.assignor):
            raise Refused("order and assignor are for mode='assigned'")

    @property
    def is_assigned(self) -> bool:
        return self.mode == "assigned"

    @property
    def heartbeat_s(self) -> float:
        longest_s = duration_s(self.session_timeout) / _BEATS_A_SESSION
        return min(duration_s(self.heartbeat_interval), longest_s)

    def joining(self, group: str, topics: Sequence[str]) -> Joining:
        """How to join for the first time: always under a name, so that a lost answer can be asked for again."""
        return Joining(
            check_name(text("the name of a group", group), "group"),
            topics,
            self.mode,
            self.member or f"member-{token_hex(6)}",
            self.order,
            self.assignor,
            self.session_timeout,
        )


def topics_of(topics: str | Sequence[str]) -> list[str]:
    several_topics = [topics] if isinstance(topics, str) else several("topics", topics)
    found = {check_name(text("the name of a topic", one), "topic") for one in several_topics}
    if not found:
        raise Refused("a consumer needs at least one topic")
    return sorted(found)
