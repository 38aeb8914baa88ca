"""Every command has a handler and a right that it takes, and names its topics for principals with prefixes."""

import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isgeneratorfunction, signature
from types import NoneType

import msgspec
import pytest

import penstock.api
from penstock.api import topics
from penstock.api.command import Command, ScopedCommand
from penstock.api.keys import CreateKey
from penstock.api.principals import Principal, Role
from penstock.api.wire import CALLS
from penstock.broker.authorise import ALLOWED, READING, authorise_command
from penstock.broker.handlers import HANDLERS
from penstock.broker.walks import Pieces, Slices
from penstock.errors import Forbidden

TOPIC_FIELDS = {"topic", "topic_names", "names"}
READER = Principal("reader", Role.READONLY, ("mine.",))


def commands(of: type = Command) -> Iterator[type[Command]]:
    """Those of `penstock.api` that are made, not only inherited from."""
    for module in pkgutil.iter_modules(penstock.api.__path__):
        importlib.import_module(f"penstock.api.{module.name}")
    for kind in of.__subclasses__():
        is_ours = kind.__module__.startswith(penstock.api.__name__)
        if is_ours and (not kind.__subclasses__() or kind in HANDLERS):
            yield kind
        yield from commands(kind)


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert set(commands()) == set(HANDLERS), (
        "each command needs an entry in HANDLERS of its file in broker/handlers"
    )


@pytest.mark.parametrize("command", sorted(HANDLERS, key=lambda one: one.__name__))
def test_every_command_takes_a_right_and_names_its_topics(command) -> None:
    assert command.action in ALLOWED
    fields = {one.name for one in msgspec.structs.fields(command)}
    # The commands of api/topics.py call a topic `name`; in other files that is the name of something else.
    is_of_topics = fields & TOPIC_FIELDS or command.__module__ == topics.__name__
    assert not is_of_topics or command.topics is not Command.topics, (
        "a command that names topics needs topics(): without it a key with prefixes reaches all"
    )
    is_scoped = issubclass(command, ScopedCommand | topics.ListTopics | CreateKey)
    assert is_scoped or "prefixes" not in fields, (
        "a command that is asked of topics by prefixes is a ScopedCommand: without that a key with prefixes is refused"
    )
    assert command.is_query or command.action not in READING, (
        "a command that only reads needs is_query = True"
    )


@pytest.mark.parametrize("command", sorted(HANDLERS, key=lambda one: one.__name__))
def test_the_handler_of_a_walk_is_a_generator_and_no_other_is(command) -> None:
    assert isgeneratorfunction(HANDLERS[command]) == command.is_walk


@pytest.mark.parametrize("call", CALLS.values(), ids=lambda one: one.kind.__name__)
def test_every_handler_returns_what_its_command_says(call) -> None:
    returned = signature(HANDLERS[call.kind]).return_annotation
    wanted = (Slices[call.reply], Pieces[call.reply]) if call.kind.is_walk else (call.reply,)
    assert (returned or NoneType) in wanted, (
        "a handler of Command[R] returns R, that of a walk Slices[R] or Pieces[R]"
    )


def test_a_principal_with_prefixes_reaches_no_other_topic() -> None:
    fetch = next(one for one in HANDLERS if one.__name__ == "Fetch")
    start = importlib.import_module("penstock.api.start").EARLIEST
    authorise_command(READER, fetch("mine.orders", 0, start))
    with pytest.raises(Forbidden, match="topic orders"):
        authorise_command(READER, fetch("orders", 0, start))
    with pytest.raises(Forbidden, match="all topics"):
        authorise_command(READER, topics.ListTopics())


@pytest.mark.parametrize("setting", ["key_subject", "value_subject"])
@pytest.mark.parametrize(
    "command",
    [
        lambda settings: topics.CreateTopic("mine.orders", 1, settings),
        lambda settings: topics.ConfigureTopic("mine.orders", settings),
    ],
)
def test_a_principal_with_prefixes_uses_no_other_schemas(command, setting) -> None:
    administrator = Principal("a", Role.ADMIN, ("mine.",))
    for within in ({}, {setting: ""}, {setting: "mine.customers"}, {"ttl_ms": 1}):
        authorise_command(administrator, command(within))
    with pytest.raises(Forbidden, match="customers"):
        authorise_command(administrator, command({setting: "customers"}))
