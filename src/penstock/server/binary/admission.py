"""What a command may ask for over the network, and what a key with prefixes sees."""

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from msgspec.structs import replace

from ...api.answers import MESSAGES_MAX, Answer, AnswerOffset, TakeBack, checked_reason
from ...api.command import Command, ScopedCommand
from ...api.commits import ListCommitNames, StageNamed, StageNamedAnswers
from ...api.consume import Poll
from ...api.dead_letters import BrowseDeadLetters
from ...api.delays import DescribeDelays, ListDelayed
from ...api.fetch import Fetch, Peek, Read
from ...api.health import Health
from ...api.journeys import SEARCH_BYTES, FindTrace, ListJourneys, SearchJourneys
from ...api.keys import CreateKey, DescribeKey, ListKeys, RevokeKey, RotateKey
from ...api.members import JoinGroup, PollMember
from ...api.principals import Principal
from ...api.publish import Publish, PublishEach, PublishValues, Schedule, ScheduleValues
from ...api.queries import HoldFiles, QueryStart
from ...api.schemas import DecodeContent, DescribeSchema, ListSubjects, ListUses
from ...api.topics import (
    CreateTopic,
    ListTopics,
)
from ...api.transaction_answers import StageAnswers, StageOffsets
from ...api.transactions import ListTransactions, Stage
from ...api.units import DURATION_NS_MAX
from ...config import SESSION_MS_MIN
from ...errors import Forbidden, Refused, TooLarge
from ..leased_parts import OPENED_BYTES
from ..settings import Settings

FETCH_BYTES_MAX = 16 << 20
_READ_LIMIT_MAX = 10_000
_PAGE_LIMIT_MAX = 1000
_REQUEST_ID_CHARACTERS_MAX = 128
_HOLD_MS_MAX = 3_600_000
_MS_NS = 1_000_000

Rule = Callable[[Any, Settings], Command[Any]]


def admitted(
    command: Command[Any], principal: Principal, settings: Settings, is_tls: bool
) -> Command[Any]:
    """The command as it is carried out: limits cut down to those of the server. Refused, TooLarge: it may not be."""
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
    _at_most("request_id in characters", len(command.request_id), _REQUEST_ID_CHARACTERS_MAX)
    bytes_max = OPENED_BYTES if command.bytes_max is None else command.bytes_max
    _at_least("bytes_max", bytes_max, 1)
    limit = min(command.limit, settings.consumer.max_poll_records_binary)
    return replace(command, limit=limit, bytes_max=min(bytes_max, OPENED_BYTES))


def _fetch(command: Fetch, _settings: Settings) -> Fetch:
    if command.bytes_max <= FETCH_BYTES_MAX:
        return command
    return replace(command, bytes_max=FETCH_BYTES_MAX)


def _read(command: Read, _settings: Settings) -> Read:
    _at_least("limit", command.limit, 1)
    return replace(
        command,
        limit=min(command.limit, _READ_LIMIT_MAX),
        bytes_max=min(command.bytes_max, FETCH_BYTES_MAX),
    )


def _page(command: Any, _settings: Settings) -> Any:
    _at_least("limit", command.limit, 1)
    return replace(command, limit=min(command.limit, _PAGE_LIMIT_MAX))


def _search(command: Any, settings: Settings) -> Any:
    _at_least("bytes_max", command.bytes_max, 1)
    found = command if isinstance(command, FindTrace) else _page(command, settings)
    return replace(found, bytes_max=min(command.bytes_max, SEARCH_BYTES))


def _some(what: str, count: int) -> None:
    if not 0 < count <= MESSAGES_MAX:
        _at_least(what, count, 1)
        _at_most("messages in one request", count, MESSAGES_MAX)


def _messages(command: Any, _settings: Settings) -> Any:
    _some("messages", len(command.messages))
    return command


def _staged(command: Any, _settings: Settings) -> Any:
    _some("messages", len(command.messages) + len(command.delayed))
    return command


def _values(command: Any, _settings: Settings) -> Any:
    _some("values", len(command.values))
    return command


def _schedule(command: Schedule, _settings: Settings) -> Schedule:
    _some("delayed", len(command.delayed))
    return command


def _answer(command: Any, _settings: Settings) -> Any:
    count = sum(len(one.offsets) for one in command.answers)
    _at_most("messages in one request", max(count, len(command.answers)), MESSAGES_MAX)
    for one in command.answers:
        checked_reason(one.reason)
    return command


def _staged_offsets(command: StageOffsets, _settings: Settings) -> StageOffsets:
    _at_most("offsets in one request", len(command.offsets), MESSAGES_MAX)
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


def _hold(command: HoldFiles, _settings: Settings) -> HoldFiles:
    _at_least("hold_ms", command.hold_ms, 0)
    _at_most("hold_ms", command.hold_ms, _HOLD_MS_MAX)
    return command


def _join(command: JoinGroup, settings: Settings) -> JoinGroup:
    _at_least("topic_names", len(command.topic_names), 1)
    if command.session_ms == 0:
        return replace(command, session_ms=settings.consumer.session_timeout_ms)
    _at_least("session_ms", command.session_ms, SESSION_MS_MIN)
    return command


_RULES: Mapping[type[Command[Any]], Rule] = {
    Poll: _poll,
    PollMember: _poll,
    Fetch: _fetch,
    Read: _read,
    Peek: _page,
    ListDelayed: _page,
    BrowseDeadLetters: _page,
    ListJourneys: _page,
    SearchJourneys: _search,
    FindTrace: _search,
    Publish: _messages,
    PublishEach: _messages,
    Stage: _staged,
    ListTransactions: _page,
    StageNamed: _staged,
    ListCommitNames: _page,
    PublishValues: _values,
    ScheduleValues: _values,
    Schedule: _schedule,
    Answer: _answer,
    TakeBack: _answer,
    StageAnswers: _answer,
    StageNamedAnswers: _answer,
    StageOffsets: _staged_offsets,
    AnswerOffset: _answer_offset,
    CreateTopic: _create_topic,
    CreateKey: _create_key,
    RotateKey: _rotate_key,
    HoldFiles: _hold,
    JoinGroup: _join,
}


def visible(reply: Any, command: Command[Any], principal: Principal) -> Any:
    """Of a reply what the principal may see. Forbidden: nothing of it."""
    if not principal.prefixes:
        return reply
    if isinstance(reply, Health):
        return replace(reply, findings=reply.findings.seen_by(principal))
    if isinstance(reply, QueryStart) and not all(map(principal.reaches, reply.topics())):
        raise Forbidden(
            f"{principal.name} does not reach the topics of query {reply.query[:60]}",
            principal=principal.name,
        )
    if isinstance(command, DescribeDelays):
        return {topic: one for topic, one in reply.items() if principal.reaches(topic)}
    return reply
