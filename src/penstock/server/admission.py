"""What a command may ask for over the network, on any port, and what a key with prefixes sees."""

from secrets import token_hex
from typing import Any

from msgspec.structs import replace

from ..api.bounds import POLL_BYTES_MAX, within_bounds
from ..api.command import Command
from ..api.consume import Poll
from ..api.delays import DescribeDelays
from ..api.fetch import Fetch
from ..api.health import Health
from ..api.keys import CreateKey
from ..api.members import JoinGroup, PollMember
from ..api.principals import Principal
from ..api.topics import CreateTopic
from .settings import Settings


def admitted(
    command: Command[Any], principal: Principal, settings: Settings, is_tls: bool
) -> Command[Any]:
    """The command as it is carried out: within its bounds, and with what the settings say of what it leaves open.

    Refused, TooLarge: it may not be.
    """
    command = within_bounds(command)
    if command.is_completed:
        command = _completed(command, settings)
    if is_tls and isinstance(command, Fetch) and not command.is_checked:
        # It has to be read in any case.
        command = replace(command, is_checked=True)
    return _scoped(command, principal.prefixes) if principal.prefixes else command


def _scoped(command: Command[Any], prefixes: tuple[str, ...]) -> Command[Any]:
    """Of commands that are asked of all topics, keys or schemas, a principal with prefixes asks for its own."""
    field = command.scope_field
    if not field or getattr(command, field) or getattr(command, "topic", None) is not None:
        return command
    return replace(command, **{field: prefixes})


def _completed(command: Command[Any], settings: Settings) -> Command[Any]:
    """What the command leaves open is as the settings say, and its limits are theirs."""
    if isinstance(command, Poll | PollMember):
        limit = min(command.limit, settings.consumer.max_poll_records_binary)
        return replace(command, limit=limit, bytes_max=command.bytes_max or POLL_BYTES_MAX)
    if isinstance(command, CreateTopic):
        return replace(
            command,
            partitions=command.partitions or settings.topic.num_partitions,
            settings={**settings.topic_defaults(), **command.settings},
        )
    if isinstance(command, CreateKey) and not command.key_id:
        # Named before it is made, so that the audit log can say which.
        return replace(command, key_id=f"pk-{token_hex(6)}")
    if isinstance(command, JoinGroup) and command.session_ms == 0:
        return replace(command, session_ms=settings.consumer.session_timeout_ms)
    return command


def visible(reply: Any, command: Command[Any], principal: Principal) -> Any:
    """Of a reply what the principal may see."""
    if not principal.prefixes:
        return reply
    if isinstance(reply, Health):
        return replace(reply, findings=reply.findings.seen_by(principal))
    if isinstance(command, DescribeDelays):
        return {topic: one for topic, one in reply.items() if principal.reaches(topic)}
    return reply
