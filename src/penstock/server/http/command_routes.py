"""Routes of commands, from what their classes say: how a request becomes the command, and its reply the answer."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from ...api.command import Command
from ...api.forms import Http
from ...api.json.forms import reader_of, writer_of
from ...api.json.paging import page_limit
from ...api.wire import CALLS
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import NUMBERS, Route, TopicIn

_WORD = re.compile(r"{(\w+)(?:=(\w+))?}")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class _Shown(NamedTuple):
    """What the answer to a command has: its type, for the docs, and how it is made."""

    kind: Any
    show: Callable[[Any, Any], Any]


def routes_of(module: ModuleType) -> Sequence[Route]:
    """Routes of the commands of a module that have one, in the order in which they stand there."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
    commands = [kind for kind in kinds if issubclass(kind, Command) and kind.http is not None]
    return [_route(kind, kind.http) for kind in commands if kind.http is not None]


def _route(kind: type[Command[Any]], http: Http) -> Route:
    words = {field or word: word for word, field in _WORD.findall(http.path)}
    reader = reader_of(kind, frozenset(words))
    takes = reader.kind if reader.kind.__struct_fields__ else None
    has_body = takes is not None and http.method in _WITH_BODY
    decoder = msgspec.json.Decoder(reader.kind)
    shown = _shown(kind, http)

    async def call(request: Request) -> Answer:
        fields: dict[str, Any] = {
            field: int(request.params[word]) if word in NUMBERS else request.params[word]
            for field, word in words.items()
        }
        if takes is not None:
            sent = request.json(decoder) if has_body else request.query(takes)
            fields |= reader.read(sent)
        command: Any = kind(**fields)
        if http.cursor:
            # One more than the page has says whether there is another one.
            command = replace(command, limit=page_limit(command.limit) + 1)
        reply = await request.execute_audited(command)
        if reply is None:
            return nothing()
        return json_response(shown.show(command, reply), status=http.status)

    return Route(
        method=http.method,
        path=_WORD.sub(r"{\1}", http.path),
        call=call,
        action=kind.action,
        summary=http.summary,
        tag=kind.tag,
        query=None if has_body else takes,
        body=takes if has_body else None,
        answer=shown.kind,
        status=http.status,
        errors=kind.errors,
        topic_in=(
            TopicIn.PATH
            if "topic" in words.values()
            else TopicIn.REST
            if http.is_of_topics
            else TopicIn.NOWHERE
        ),
    )


def _shown(kind: type[Command[Any]], http: Http) -> _Shown:
    reply = CALLS[kind.__name__.encode()].reply
    if http.answer:
        return _some_fields(kind, reply, http.answer)
    if http.items and not get_args(reply):
        answer = msgspec.defstruct(f"{kind.__name__}Out", [(http.items, reply)])
        return _Shown(answer, lambda _, found: {http.items: found})
    if http.items:
        item = writer_of(*get_args(reply))
        listed: Any = list[item.kind]  # type: ignore[name-defined]  # It is made here.
        name = f"{http.items.capitalize()}Out"
        if http.cursor:
            answer = msgspec.defstruct(name, [(http.items, listed), ("cursor", str | None)])
            return _Shown(answer, partial(_page, http, item.show))
        answer = msgspec.defstruct(name, [(http.items, listed)])
        return _Shown(answer, lambda _, found: {http.items: [*map(item.show, found)]})
    if reply is NoneType:
        return _Shown(None, lambda _command, _reply: None)
    writer = writer_of(reply)
    return _Shown(writer.kind, lambda _, found: writer.show(found))


def _page(http: Http, show: Callable[[Any], Any], command: Any, found: Any) -> dict[str, Any]:
    """The items of a page, and where the next one begins; None: nowhere."""
    limit = command.limit - 1
    cursor = str(getattr(found[limit - 1], http.cursor)) if len(found) > limit else None
    return {http.items: [*map(show, found[:limit])], "cursor": cursor}


def _some_fields(kind: type[Command[Any]], reply: type, names: Sequence[str]) -> _Shown:
    """An answer with some fields of the reply, and with those that the command alone has."""
    hints = get_type_hints(kind) | get_type_hints(reply)
    of_reply = get_type_hints(reply).keys()
    answer = msgspec.defstruct(f"{kind.__name__}Out", [(name, hints[name]) for name in names])

    def show(command: Any, found: Any) -> dict[str, Any]:
        return {name: getattr(found if name in of_reply else command, name) for name in names}

    return _Shown(answer, show)
