"""What a command may ask for over the network, on any port, and what a key with prefixes sees."""

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from msgspec.structs import replace

from ..api.answers import Answer, AnswerOffset, TakeBack, checked_reason
from ..api.bounds import MESSAGES_MAX, PUBLISH_MESSAGES_MAX, within_bounds
from ..api.command import Command, ScopedCommand
from ..api.commits import StageNamed, StageNamedAnswers
from ..api.consume import Poll
from ..api.delays import DescribeDelays
from ..api.fetch import Fetch
from ..api.health import Health
from ..api.keys import CreateKey, DescribeKey, ListKeys, RevokeKey, RotateKey
from ..api.members import JoinGroup, PollMember
from ..api.principals import Principal
from ..api.schemas import DecodeContent, DescribeRegistry, DescribeSchema, ListSubjects, ListUses
from ..api.topics import CreateTopic, ListTopics
from ..api.transaction_answers import StageAnswers
from ..api.transactions import Stage
from ..api.units import DURATION_NS_MAX
from ..config import SESSION_MS_MIN
from ..errors import Refused, TooLarge
from .leased_parts import OPENED_BYTES
from .settings import Settings

_MS_NS = 1_000_000

Rule = Callable[[Any, Settings], Command[Any]]


def admitted(
    command: Command[Any], principal: Principal, settings: Settings, is_tls: bool
) -> Command[Any]:
    """The command as it is carried out: within its bounds, and with what the settings say of what it leaves open.

    Refused, TooLarge: it may not be.
    """
    command = within_bounds(command)
    rule = _RULES.get(type(command))
    if rule is not None:
        command = rule(command, settings)
    if is_tls and isinstance(command, Fetch) and not command.is_checked:
        # It has to be read in any case.
        command = replace(command, is_checked=True)
    return _scoped(command, principal.prefixes) if principal.prefixes else command


_WITHIN = (
    DescribeKey,
    ListKeys,
    RevokeKey,
    RotateKey,
    DescribeSchema,
    ListSubjects,
    ListUses,
    DecodeContent,
    DescribeRegistry,
)


def _scoped(command: Command[Any], prefixes: tuple[str, ...]) -> Command[Any]:
    """Of commands that are asked of all topics, keys or schemas, a principal with prefixes asks for its own."""
    if isinstance(command, ScopedCommand):
        is_bare = command.topic is None and not command.prefixes
        return replace(command, prefixes=prefixes) if is_bare else command
    if isinstance(command, ListTopics) and not command.prefixes:
        return replace(command, prefixes=prefixes)
    if isinstance(command, _WITHIN) and not command.within:
        return replace(command, within=prefixes)
    return command


def _at_most(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise TooLarge(what, found=found, limit=limit)


def _at_least(what: str, found: int, least: int) -> None:
    if found < least:
        raise Refused(f"{what} must be at least {least}, got {found}", field=what)


def _poll(command: Any, settings: Settings) -> Any:
    _at_least("limit", command.limit, 0)
    bytes_max = OPENED_BYTES if command.bytes_max is None else command.bytes_max
    _at_least("bytes_max", bytes_max, 1)
    limit = min(command.limit, settings.consumer.max_poll_records_binary)
    return replace(command, limit=limit, bytes_max=min(bytes_max, OPENED_BYTES))


def _staged(command: Any, _settings: Settings) -> Any:
    count = len(command.messages) + len(command.delayed)
    _at_least("messages", count, 1)
    _at_most("messages in one request", count, PUBLISH_MESSAGES_MAX)
    return command


def _answer(command: Any, _settings: Settings) -> Any:
    _at_most(
        "messages in one request",
        sum(len(answer.offsets) for answer in command.answers),
        MESSAGES_MAX,
    )
    for answer in command.answers:
        checked_reason(answer.reason)
    return command


def _answer_offset(command: AnswerOffset, _settings: Settings) -> AnswerOffset:
    checked_reason(command.reason)
    return command


def _create_topic(command: CreateTopic, settings: Settings) -> CreateTopic:
    """What the command does not say is as the broker's file says; 0 partitions are as many as it says."""
    return replace(
        command,
        partitions=command.partitions or settings.topic.num_partitions,
        settings={**settings.topic_defaults(), **command.settings},
    )


def _create_key(command: CreateKey, _settings: Settings) -> CreateKey:
    if command.lifetime_ms:
        _span_ms("lifetime_ms", command.lifetime_ms)
    # Named before it is made, so that the audit log can say which.
    return command if command.key_id else replace(command, key_id=f"pk-{token_hex(6)}")


def _rotate_key(command: RotateKey, _settings: Settings) -> RotateKey:
    if command.grace_ms:
        _span_ms("grace_ms", command.grace_ms)
    return command


def _span_ms(what: str, found: int) -> None:
    """A second or more: what is less was mostly meant to be seconds, and would end a key at once."""
    _at_least(what, found, 1000)
    _at_most(what, found, DURATION_NS_MAX // _MS_NS)


def _join(command: JoinGroup, settings: Settings) -> JoinGroup:
    if command.session_ms == 0:
        return replace(command, session_ms=settings.consumer.session_timeout_ms)
    _at_least("session_ms", command.session_ms, SESSION_MS_MIN)
    return command


_RULES: Mapping[type[Command[Any]], Rule] = {
    Poll: _poll,
    PollMember: _poll,
    Stage: _staged,
    StageNamed: _staged,
    Answer: _answer,
    TakeBack: _answer,
    StageAnswers: _answer,
    StageNamedAnswers: _answer,
    AnswerOffset: _answer_offset,
    CreateTopic: _create_topic,
    CreateKey: _create_key,
    RotateKey: _rotate_key,
    JoinGroup: _join,
}


def visible(reply: Any, command: Command[Any], principal: Principal) -> Any:
    """Of a reply what the principal may see."""
    if not principal.prefixes:
        return reply
    if isinstance(reply, Health):
        return replace(reply, findings=reply.findings.seen_by(principal))
    if isinstance(command, DescribeDelays):
        return {topic: one for topic, one in reply.items() if principal.reaches(topic)}
    return reply
