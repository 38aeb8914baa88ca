"""The options of a consumer, checked once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..api.arguments import flag, plain_function, several, text, whole_number
from ..api.frames import ClientDefaults
from ..api.units import Duration, Moment, duration_s
from ..errors import PenstockError, Refused
from ..model import check_name

OnPartitions = Callable[[list[str]], Any]
"""Called with partitions, written as "orders/0". With asyncio it may be a coroutine function."""

MODES = ("shared", "assigned")
# The server forgets a member after a session without a heartbeat; a lost one or two do no harm.
_HEARTBEATS_A_SESSION = 3
BACKGROUND_S_MIN = 0.01
"""The background of a consumer does nothing more often than this."""


class ConsumerOptions(TypedDict, total=False):
    """The options of `client.consumer`; the guide says more (docs/client.md)."""

    mode: str
    start: Moment
    order: str | None
    assignor: str | None
    member: str
    in_rounds: bool
    session_timeout: Duration | None
    heartbeat_interval: Duration | None
    visibility_timeout: Duration | None
    max_poll: int
    priority: str | None
    auto_commit: bool
    extend_for: Duration
    patience: Duration
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    on_lost: OnPartitions | None
    on_error: Callable[[PenstockError], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """`mode`: shared (any member takes any message) or assigned (each partition has one member).

    `start`: where a group that is new begins: earliest, latest, an offset, a moment, or a span ("15m": so long ago).

    `in_rounds`: all that the consumer holds is one piece of work. If the consumer dies, no message has lost an attempt.
    While it lives its `member` name is not taken: to open another one raises AlreadyExists.

    `max_poll`: how many messages an iteration takes at once. `visibility_timeout`: how long a lease lasts (None: as the
    topic says); the consumer extends it up to `extend_for` after the poll that brought the message. `auto_commit`: a
    message is finished when the next one is asked for. `session_timeout` and `heartbeat_interval` None: as the broker
    is configured. `patience`: how long an iteration waits for a server that is
    away before it raises.
    """

    mode: str = "shared"
    start: Moment = "earliest"
    order: str | None = None
    assignor: str | None = None
    member: str = ""
    in_rounds: bool = False
    session_timeout: Duration | None = None
    heartbeat_interval: Duration | None = None
    visibility_timeout: Duration | None = None
    max_poll: int = 500
    priority: str | None = None
    auto_commit: bool = False
    extend_for: Duration = 600
    patience: Duration = 300
    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None
    on_error: Callable[[PenstockError], Any] | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Refused(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        whole_number("max_poll", self.max_poll, 1)
        if text("the name of a member", self.member):
            check_name(self.member, "member")
        flag("auto_commit", self.auto_commit)
        if flag("in_rounds", self.in_rounds) and self.is_assigned:
            raise Refused("in_rounds is for mode='shared'")
        for name in ("session_timeout", "heartbeat_interval", "visibility_timeout"):
            given = getattr(self, name)
            if given is not None and duration_s(given, name) <= 0:
                raise Refused(f"{name} must be above 0, got {given!r}")
        for name in ("extend_for", "patience"):
            duration_s(getattr(self, name), name)
        plain_function("on_error", self.on_error)
        if self.mode == "shared" and (self.order or self.assignor):
            raise Refused("order and assignor are for mode='assigned'")

    @property
    def is_assigned(self) -> bool:
        return self.mode == "assigned"

    def heartbeat_s(self, defaults: ClientDefaults) -> float:
        """How often to send a heartbeat, to a server that tells these defaults."""
        session, interval = self.session_timeout, self.heartbeat_interval
        session_s = defaults.session_timeout_ms / 1000 if session is None else duration_s(session)
        wished_s = (
            defaults.heartbeat_interval_ms / 1000 if interval is None else duration_s(interval)
        )
        return max(BACKGROUND_S_MIN, min(wished_s, session_s / _HEARTBEATS_A_SESSION))


def topics_of(topics: str | Sequence[str]) -> list[str]:
    """The names of topics, sorted. Refused if there is none, or if one is no name."""
    several_topics = [topics] if isinstance(topics, str) else several("topics", topics)
    found = {check_name(text("the name of a topic", one), "topic") for one in several_topics}
    if not found:
        raise Refused("a consumer needs at least one topic")
    return sorted(found)
