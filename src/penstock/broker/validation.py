"""Topics that ask for schemas: what they are bound to, and what becomes of messages that do not fit."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..api.publish import (
    Publish,
    PublishBatch,
    PublishEach,
    PublishRecords,
    PublishValues,
    Schedule,
    ScheduleValues,
    StoreMessages,
    Verdict,
)
from ..codec import verify
from ..codec.body import Body, Column
from ..codec.decode import headers_of, open_body
from ..codec.kafka_header import read_header
from ..codec.schema_id import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, joined_all
from ..codec.verbatim import records_of
from ..config import LimitsConfig, Validation
from ..errors import SchemaViolation
from ..model import Buffer, Headers, Message
from ..schemas.validation import Binding, Contents, ReadSchema, bind, verdict_on

if TYPE_CHECKING:
    from .node import Node

_NONE_WRONG: Mapping[int, SchemaViolation] = {}


class ViolationLedger:
    """Messages that did not fit, by topic and by what became of them. Belongs to a node.

    `on_found` is set by the driver and called with its lock held: with the first message of a command that does not
    fit, how many there are, and whether they are refused.
    """

    def __init__(self) -> None:
        self.messages: Counter[tuple[str, Validation]] = Counter()
        self.on_found: Callable[[SchemaViolation, int, Validation], None] = _ignore

    def add(self, binding: Binding, verdict: Verdict) -> None:
        """Count the messages of a command that do not fit."""
        self.messages[binding.topic, binding.validation] += verdict.count
        first = next(iter(verdict.wrong.values()))
        self.on_found(first, verdict.count, binding.validation)

    def forget(self, topic: str) -> None:
        """A topic was deleted."""
        for validation in Validation:
            del self.messages[topic, validation]


def _ignore(_first: SchemaViolation, _count: int, _validation: Validation) -> None:
    return


def bind_topic(node: "Node", name: str) -> None:
    """Take note of the schemas that a topic asks for, as they are now."""
    topic = node.open.get(name)
    found = None
    if topic is not None:
        config = topic.facts.config
        subjects = (config.key_subject, config.value_subject)
        found = bind(name, config.validation, subjects, node.schemas)
    else:
        node.violations.forget(name)
    if found is not None:
        node.bindings[name] = found
    else:
        node.bindings.pop(name, None)


def bind_again(node: "Node", subjects: Collection[str]) -> None:
    """Take note of subjects that have changed, for every topic that asks for their schemas."""
    for binding in [*node.bindings.values()]:
        if any(map(binding.names, subjects)):
            bind_topic(node, binding.topic)


def verdict_of(
    binding: Binding, command: StoreMessages[Any], limits: LimitsConfig, read: ReadSchema
) -> Verdict:
    """Which messages of a command do not fit. Raises what is wrong with a batch that cannot be read."""
    contents = contents_of(command, limits)
    return verdict_on(binding, contents, read, is_each_answered=command.is_each_answered)


def contents_of(command: StoreMessages[Any], limits: LimitsConfig) -> Contents:
    """Keys and values of the messages of a command. Raises what is wrong with a batch that cannot be read."""
    match command:
        case PublishValues() | ScheduleValues():
            return Contents(None, command.values)
        case Publish() | PublishEach():
            return _of_messages([*command.messages])
        case Schedule():
            return _of_messages([one.message for one in command.delayed])
        case PublishBatch():
            head = verify(command.batch)
            body = open_body(command.batch, head, size_max=limits.batch_bytes_max)
            return _of_body(body)
        case PublishRecords():
            batch = memoryview(command.batch)
            records = records_of(read_header(batch), batch, size_max=limits.batch_bytes_max)
            return _of_body(records.body())
    raise AssertionError(f"{type(command).__name__} stores no messages")


def _of_body(body: Body) -> Contents:
    keys = body.blob(Column.KEYS).items(body.count, None) if Column.KEYS in body.blobs else None
    values = body.blob(Column.VALUES).items(body.count, None)
    return _with_ids(keys, values, headers_of(body) if body.header_count else None)


def _of_messages(messages: list[Message]) -> Contents:
    keys, values = [one.key for one in messages], [one.value for one in messages]
    has_headers = any(one.headers for one in messages)
    return _with_ids(keys, values, [one.headers for one in messages] if has_headers else None)


def _with_ids(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    headers: Sequence[Headers] | None,
) -> Contents:
    """Keys and values with the ids of schemas that are in headers before them."""
    if headers is None:
        return Contents(keys, values)
    return Contents(
        None if keys is None else joined_all(keys, headers, KEY_SCHEMA_ID),
        joined_all(values, headers, VALUE_SCHEMA_ID),
    )


def wrong_messages(node: "Node", command: StoreMessages[Any]) -> Mapping[int, SchemaViolation]:
    """Those messages of a command, by index, that are to be refused because they do not fit the schemas of their topic.

    What the driver found is taken for granted, unless the schemas are others by now.
    """
    binding = node.bindings.get(command.topic)
    if binding is None:
        return _NONE_WRONG
    verdict = command.verdict
    if verdict is None or verdict.binding is not binding:
        verdict = verdict_of(binding, command, node.limits, node.schemas.read)
    if verdict.count:
        node.violations.add(binding, verdict)
    return verdict.wrong if binding.validation is Validation.REJECT else _NONE_WRONG


def require_valid(node: "Node", command: StoreMessages[Any]) -> None:
    """SchemaViolation for a command with a message that is to be refused: nothing of it is stored."""
    for error in wrong_messages(node, command).values():
        raise error.fresh()
