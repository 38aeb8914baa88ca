"""A command on its way to a server. No I/O."""

from typing import Any, NamedTuple

from ..api.command import Command
from ..api.contents import LIMITS
from ..api.frames import HelloReply, Limits
from ..api.publish import Acks
from ..api.wire import encode_command
from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Buffer
from .commands import acks_of

# What a frame has beside the body that is checked against the server's limit.
_HEADER_BYTES = 10
WAIT_S_MAX = ((1 << 32) - 1) / 1000


def limits_of(server: Limits) -> LimitsConfig:
    """The limits of messages: those of the server where they are lower than `LIMITS`, otherwise `LIMITS` itself."""
    found = LimitsConfig(
        value_bytes_max=min(server.value_bytes_max, LIMITS.value_bytes_max),
        key_bytes_max=min(server.key_bytes_max, LIMITS.key_bytes_max),
        headers_bytes_max=min(server.headers_bytes_max, LIMITS.headers_bytes_max),
        batch_bytes_max=min(server.batch_bytes_max, LIMITS.batch_bytes_max),
    )
    return LIMITS if found == LIMITS else found


class Call(NamedTuple):
    """A command, what its publish waits for, and how long the server may wait for messages."""

    command: Command[Any]
    # None: as the server says in hello.
    acks: Acks | None = Acks.LEADER
    wait_s: float = 0.0

    def encoded(self, server: HelloReply) -> list[Buffer]:
        """The body of a request. Refused if a field cannot be sent, TooLarge if the server does not take it."""
        acks = acks_of(server.defaults.ack_mode) if self.acks is None else self.acks
        try:
            body = encode_command(self.command, acks, round(min(self.wait_s, WAIT_S_MAX) * 1000))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Refused(f"this cannot be sent: {error}"[:300]) from None
        size, limit = sum(map(len, body)), server.limits.frame_bytes_max
        if size + _HEADER_BYTES > limit:
            raise TooLarge("a request in bytes", found=size, limit=limit)
        return body
