"""Commands from JSON, and replies as JSON: functions that are made once from the types of their fields.

Each form (`api/forms.py`) is written in one way. A field is named without what its form or type says already:
`next_due_ns` is `next_due`, `is_paused` is `paused`, and `ttl_ms` is `ttl` where a client writes "30s". A field that
has a default may be null, which says nothing, unless null or nothing at all mean something else to it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from ..forms import Form, Named
from ..units import time_text
from .messages import (
    PRIORITY_NAMES,
    Content,
    ContentOut,
    HeadersIn,
    Int64,
    bytes_of,
    content_of,
    headers_out,
    pairs_of,
    priority_of,
)
from .paging import number_of_cursor
from .times import Span, span_ms, time_ns


class _Written(NamedTuple):
    """How values of a form are written: the types that clients send and get, and the functions between.

    `suffixes`: what the name of a field ends with that is left out of what is sent, and of what is answered.
    """

    sent: tuple[Any, ...] = ()
    read: Callable[[str, Any], Any] | None = None
    answered: tuple[Any, ...] = ()
    show: Callable[[Any], Any] | None = None
    suffixes: tuple[str, str] = ("", "")


_LISTS = (list, tuple, Sequence)
_PLAIN = _Written()
_WRITTEN: Mapping[Form, _Written] = {
    Form.MOMENT: _Written((str,), time_ns, (str,), time_text, ("_ns", "_ns")),
    Form.SPAN: _Written((Span,), span_ms, (int,), None, ("_ms", "")),
    Form.CONTENT: _Written((Content,), lambda _, sent: bytes_of(sent), (ContentOut,), content_of),
    Form.HEADERS: _Written(
        (HeadersIn,),
        lambda _, sent: pairs_of(sent),
        (list[tuple[str, ContentOut]],),
        lambda headers: headers_out(headers, is_base64=False),
    ),
    Form.PRIORITY: _Written(
        (Int64, str), lambda _, sent: priority_of(sent), (str,), PRIORITY_NAMES.__getitem__
    ),
    Form.CURSOR: _Written((str,), number_of_cursor),
    Form.NAMES: _Written((str,), lambda _, sent: [name for name in sent.split(",") if name]),
}


class _Type(NamedTuple):
    """The types that a field may have beside the one that has a form, how that is written, and the field's own name."""

    kinds: list[Any]
    written: _Written
    name: str

    def short(self, field: str, suffix: str) -> str:
        return self.name or field.removesuffix(suffix).removeprefix("is_")


def _type_of(kind: Any) -> _Type:
    kinds, written, name = [], _PLAIN, ""
    for part in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        metas = getattr(part, "__metadata__", ())
        forms = [meta for meta in metas if isinstance(meta, Form)]
        name = next((meta.name for meta in metas if isinstance(meta, Named)), name)
        written = _WRITTEN[forms[0]] if forms else written
        kinds += [] if forms else [part]
    return _Type(kinds, written, name)


def _of_any_size(kind: Any) -> Any:
    """The type without the bounds of the field itself: `within_bounds` looks at them, and says TOO_LARGE."""
    if get_origin(kind) is not Annotated:
        return kind
    metas = [meta for meta in kind.__metadata__ if not isinstance(meta, msgspec.Meta)]
    return Annotated[(kind.__origin__, *metas)] if metas else kind.__origin__


def _in_64_bits(kind: Any) -> Any:
    """The type with whole numbers that can be stored: JSON has others, too."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is int:
        return Int64
    if origin is Annotated:
        return Annotated[(_in_64_bits(arguments[0]), *arguments[1:])]
    return origin[tuple(map(_in_64_bits, arguments))] if origin is not None else kind


class Reader(NamedTuple):
    """The struct that a client's JSON, or its query, is decoded to, and the fields of the command that come of it."""

    kind: type[msgspec.Struct]
    read: Callable[[Any], dict[str, Any]]


@cache
def reader_of(kind: type[msgspec.Struct], left_out: frozenset[str] = frozenset()) -> Reader:
    """Reads the fields of a command, without those that are said elsewhere, such as in the path."""
    fields: list[tuple[str, Any, Any]] = []
    steps: list[tuple[str, str, Callable[[str, Any], Any] | None, bool]] = []
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if field.name in left_out:
            continue
        found = _type_of(hints[field.name])
        name = found.short(field.name, found.written.suffixes[0])
        says_null = NoneType in found.kinds or UnsetType in found.kinds
        kinds = [_in_64_bits(_of_any_size(part)) for part in found.kinds] + [*found.written.sent]
        if not field.required:
            kinds += [UnsetType] if says_null else [UnsetType, None]
        default = msgspec.NODEFAULT if field.required else UNSET
        fields.append((name, reduce(or_, kinds), default))
        steps.append((name, field.name, found.written.read, says_null))
    struct = msgspec.defstruct(
        f"{kind.__name__}In",
        fields,
        forbid_unknown_fields=True,
        kw_only=True,
        namespace={"__doc__": kind.__doc__},
    )

    def read(sent: Any) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for name, field, convert, says_null in steps:
            value = getattr(sent, name)
            if value is UNSET or (value is None and not says_null):
                continue
            said[field] = value if convert is None or value is None else convert(name, value)
        return said

    return Reader(struct, read)


class Writer(NamedTuple):
    """The struct that documents an answer, and the answer as JSON has it, from what has its fields."""

    kind: type[msgspec.Struct]
    show: Callable[[Any], Any]


@cache
def writer_of(kind: Any) -> Writer:
    """Shows the fields of a reply, without those that are unset."""
    fields: list[tuple[str, Any, Any]] = []
    steps: list[tuple[str, str, Callable[[Any], Any] | None]] = []
    for field, hint in get_type_hints(kind, include_extras=True).items():
        found = _type_of(hint)
        name = found.short(field, found.written.suffixes[1])
        answered = [_answered(part) for part in found.kinds]
        default = UNSET if UnsetType in found.kinds else msgspec.NODEFAULT
        fields.append((name, reduce(or_, [*dict(answered), *found.written.answered]), default))
        shows = [show for _, show in answered if show is not None]
        steps.append((name, field, shows[0] if shows else found.written.show))
    is_as_it_is = all(name == field and show is None for name, field, show in steps)
    if is_as_it_is and issubclass(kind, msgspec.Struct):
        return Writer(kind, lambda reply: reply)
    name = kind.__name__.removesuffix("Description")
    struct = msgspec.defstruct(
        f"{name}Out", fields, kw_only=True, namespace={"__doc__": kind.__doc__}
    )

    def show(reply: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for name, field, convert in steps:
            value = getattr(reply, field)
            if value is not UNSET:
                answer[name] = value if convert is None or value is None else convert(value)
        return answer

    return Writer(struct, show)


def _answered(kind: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """The type of a part of a reply in an answer, and what makes it; None: it stays as it is."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _answered(arguments[0])
    if origin in _LISTS and arguments[1:] in ((), (Ellipsis,)):
        item, show = _answered(arguments[0])
        return (kind, None) if show is None else (list[item], lambda items: [*map(show, items)])  # type: ignore[valid-type]  # It is made here.
    is_record = hasattr(kind, "__struct_fields__") or hasattr(kind, "_fields")
    if is_record:
        writer = writer_of(kind)
        return (kind, None) if writer.kind is kind else writer
    return kind, None


def json_of(reply: Any) -> dict[str, Any]:
    """A reply as HTTP answers it, of values that JSON has."""
    kind: Any = type(reply)
    answer: dict[str, Any] = msgspec.to_builtins(writer_of(kind).show(reply))
    return answer
