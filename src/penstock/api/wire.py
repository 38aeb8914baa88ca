"""Commands and replies as bytes: msgpack, with batches beside it as raw bytes (docs/protocol.md).

The table of commands is made from the subclasses of `Command`. A field that holds a buffer of batches is left out of
the msgpack and follows it as a part, so that nothing of it is copied on the way in or out.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from sys import maxsize
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from ..errors import BadRequest, PenstockError, TooLarge
from ..model import Buffer
from . import (  # Their subclasses of `Command` are found below.
    answers,
    commits,
    consume,
    dead_letters,
    delays,
    fetch,
    groups,
    health,
    journeys,
    keys,
    members,
    publish,
    queries,
    schedules,
    schemas,
    spans,
    topics,
    transaction_answers,
    transactions,
)
from .bounds import size_refusal
from .command import Command
from .error_reply import ErrorReply, error_reply, rebuilt_error
from .fetch import FetchReply, SkippedRange
from .frames import Hello
from .leased import LeasedMessages
from .publish import (
    BUFFERED,
    Acks,
    BatchStored,
    Guarantee,
    Published,
    PublishedRun,
    PublishOutcome,
    Safety,
)

R = TypeVar("R")
T = TypeVar("T")
Pieces = list[Buffer]
"""Bytes that follow each other."""

MODULES = (
    answers,
    commits,
    consume,
    dead_letters,
    delays,
    fetch,
    groups,
    health,
    journeys,
    keys,
    members,
    publish,
    queries,
    schedules,
    schemas,
    spans,
    topics,
    transaction_answers,
    transactions,
)
# The driver's own, and those of an embedded queue, which has the node to itself.
_INTERNAL = frozenset(
    {
        members.StartWaiting,
        members.EndWaiting,
        publish.PublishAt,
        publish.PublishRecords,
        publish.CheckBacklog,
        delays.FireDelayed,
        transactions.StageRecords,
        spans.TailSpans,
        topics.FinishTopics,
        topics.SweepDue,
    }
)

# Acks, how long to wait for messages (ms), lengths of the command's name and of its msgpack.
_REQUEST = Struct(">BIBI")
# 0 or 1 for an error, what is guaranteed, length of the msgpack.
_REPLY = Struct(">BBI")
_SIZE = Struct(">I")
_OK, _ERROR = 0, 1
_GUARANTEES = (Guarantee.BUFFERED, Guarantee.FSYNCED, Guarantee.REPLICATED)
_ACKS = tuple(Acks)
# A field of commands that the driver fills in, and refuses from clients.
_NOT_SENT = "verdict"


class CommandRequest(msgspec.Struct, frozen=True):
    """A command as a client asked for it; `wait_ms` is for commands that can wait for messages."""

    command: Command[Any]
    acks: Acks
    wait_ms: int


class LeasedReply(NamedTuple):
    """A poll's reply, read: its messages (docs/formats/leased.md), and of an assigned group how the member stands."""

    parts: memoryview
    standing: members.Standing | None


class Reply(msgspec.Struct, Generic[T], frozen=True):
    """A reply, read. Of a poll, `value` is a `LeasedReply`."""

    value: T
    safety: Safety


class _Call(NamedTuple):
    """What is known of one kind of command: which of its fields travel as parts, and how to read the rest."""

    kind: type[Command[Any]]
    name: bytes
    parts: tuple[str, ...]
    rest: type[msgspec.Struct]
    decode: Callable[[Buffer], Any]
    reply: Any
    packed_bytes_max: int


def _encode_unknown(value: object) -> object:
    if isinstance(value, PenstockError):
        return error_reply(value)
    if isinstance(value, Sequence | Mapping | frozenset):
        return list(value) if not isinstance(value, Mapping) else dict(value)
    raise TypeError(f"{type(value).__name__} does not travel")


def _decode_unknown(kind: type, value: object) -> object:
    if issubclass(kind, PenstockError):
        return rebuilt_error(msgspec.convert(value, ErrorReply))
    raise TypeError(f"{kind.__name__} does not travel")


_ENCODE = msgspec.msgpack.Encoder(enc_hook=_encode_unknown).encode


def _decoder(kind: Any) -> Callable[[Buffer], Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_decode_unknown).decode


# Commands.


def _reply_of(kind: type) -> Any:
    """What `R` is of a subclass of `Command`; None if it is not said yet."""
    for one in kind.__mro__:
        for base in getattr(one, "__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Command):
                (found,) = get_args(base)
                return None if isinstance(found, TypeVar) else (found,)
    return None


def _kinds(kind: type[Command[Any]]) -> Iterable[type[Command[Any]]]:
    for one in kind.__subclasses__():
        if _reply_of(one) is not None and not one.__name__.startswith("_"):
            yield one
        yield from _kinds(one)


def _call_of(kind: type[Command[Any]]) -> _Call:
    found = msgspec.structs.fields(kind)
    parts = tuple(one.name for one in found if one.type == Buffer)
    rest: type[msgspec.Struct] = kind
    if parts:
        fields: list[Any] = [
            (one.name, one.type) if one.required else (one.name, one.type, one.default)
            for one in found
            if one.name not in parts and one.name != _NOT_SENT
        ]
        rest = msgspec.defstruct(kind.__name__, fields, frozen=True)
    (reply,) = _reply_of(kind)
    most = maxsize if kind.packed_bytes_max is None else kind.packed_bytes_max
    return _Call(kind, kind.__name__.encode(), parts, rest, _decoder(rest), reply, most)


CALLS: Mapping[bytes, _Call] = MappingProxyType(
    {
        kind.__name__.encode(): _call_of(kind)
        for kind in _kinds(Command)
        if kind.__module__ in {one.__name__ for one in MODULES} and kind not in _INTERNAL
    }
)
"""Every command that can be asked for, by its name."""
_BY_KIND = {call.kind: call for call in CALLS.values()}


def encode_command(command: Command[Any], acks: Acks = Acks.LEADER, wait_ms: int = 0) -> Pieces:
    """The body of a request. A part may be a tuple of pieces: nothing is copied to send it."""
    call = _BY_KIND[type(command)]
    if not call.parts:
        packed = _ENCODE(command)
        return [_REQUEST.pack(acks, wait_ms, len(call.name), len(packed)) + call.name + packed]
    fields = {name: getattr(command, name) for name in call.rest.__struct_fields__}
    packed = _ENCODE(fields)
    pieces: Pieces = [_REQUEST.pack(acks, wait_ms, len(call.name), len(packed)), call.name, packed]
    for name in call.parts:
        part: Buffer | tuple[Buffer, ...] = getattr(command, name)
        buffers = part if isinstance(part, tuple) else (part,)
        pieces += (_SIZE.pack(sum(map(len, buffers))), *buffers)
    return pieces


def decode_command(body: memoryview) -> CommandRequest:
    """The command in the body of a request. Its parts are views of the body.

    BadRequest: the bytes are no command, or of one that there is not. TooLarge: there is more in it than its bounds
    allow. Refused, as the command's own checks say.
    """
    try:
        acks, wait_ms, name_size, size = _REQUEST.unpack_from(body)
    except struct.error:
        raise BadRequest(f"a command begins with {_REQUEST.size} bytes") from None
    start = _REQUEST.size + name_size
    end = start + size
    if end > len(body):
        raise BadRequest(f"a command of {end} bytes, found {len(body)}")
    if acks >= len(_ACKS):
        raise BadRequest(f"acks is 0, 1 or 2, not {acks}")
    name = bytes(body[_REQUEST.size : start])
    call = CALLS.get(name)
    if call is None:
        raise BadRequest(f"there is no command {name.decode('ascii', 'replace')[:60]!r}")
    if size > call.packed_bytes_max:
        raise TooLarge("command in bytes", found=size, limit=call.packed_bytes_max)
    command = _decoded(call.decode, body[start:end], call.kind.__name__)
    if call.parts or end < len(body):
        parts = read_parts(body, end)
        if len(parts) != len(call.parts):
            raise BadRequest(
                f"{call.kind.__name__} has {len(call.parts)} parts, found {len(parts)}"
            )
        rest = msgspec.structs.asdict(command)
        command = call.kind(**rest, **dict(zip(call.parts, parts, strict=True)))
    return CommandRequest(command, _ACKS[acks], wait_ms)


def decode_hello(body: memoryview) -> Hello:
    """BadRequest: the bytes are no hello."""
    return _decoded(_HELLO, body, "hello")  # type: ignore[no-any-return]  # It is of this kind.


def encode_hello(hello: Hello) -> Pieces:
    return [_ENCODE(hello)]


def _decoded(decode: Callable[[Buffer], Any], packed: Buffer, what: str) -> Any:
    try:
        return decode(packed)
    except msgspec.ValidationError as error:
        raise size_refusal(str(error), packed) or BadRequest(
            f"{what}: {str(error)[:200]}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{what}: {str(error)[:200]}") from None
    except RecursionError:
        raise BadRequest(f"{what} is nested too deeply") from None


def read_parts(body: memoryview, position: int) -> list[memoryview]:
    """The parts behind the msgpack, as views. BadRequest: their lengths do not add up."""
    parts: list[memoryview] = []
    while position < len(body):
        start = position + _SIZE.size
        position = start + (_SIZE.unpack_from(body, position)[0] if start <= len(body) else 0)
        if position > len(body) or start > len(body):
            raise BadRequest(f"a part ends at byte {position}, the request at {len(body)}")
        parts.append(body[start:position])
    return parts


# Replies.


class _FetchHead(msgspec.Struct, frozen=True):
    """A `FetchReply` without its batches, which are the part behind it."""

    offset: int
    next_offset: int
    start_offset: int
    end_offset: int
    seed: int
    skipped: tuple[SkippedRange, ...] = ()


_Run = tuple[Published, int]
"""Messages that were stored one after the other: the first, and how many."""

_Outcome = tuple[Any, ErrorReply | None]


def _runs(stored: Sequence[Published]) -> list[_Run]:
    # To ask whether something is a sequence of ours takes a call, because sequences are an abstract class.
    if type(stored) is PublishedRun:
        return [(stored.first, len(stored))]
    return [(one, 1) for one in stored]


def _stored(runs: list[_Run]) -> Sequence[Published]:
    if len(runs) == 1:
        return PublishedRun(*runs[0])
    return [one for run in runs for one in PublishedRun(*run)]


def _fetch_reply(data: memoryview, head: _FetchHead) -> FetchReply:
    return FetchReply(data, **msgspec.structs.asdict(head))


def _outcomes(found: Sequence[Any]) -> list[_Outcome]:
    return [
        (None, error_reply(one)) if isinstance(one, PenstockError) else (one, None) for one in found
    ]


def _one_outcome(found: _Outcome) -> Any:
    return found[0] if found[1] is None else rebuilt_error(found[1])


class _Form(NamedTuple):
    """How a reply travels that msgpack cannot hold as it is: what is packed instead, and back."""

    pack: Callable[[Any], Any]
    packed: Any
    unpack: Callable[[Any], Any]


_STORED = _Form(_runs, list[_Run], _stored)


def _outcome_form(kind: Any) -> _Form:
    return _Form(
        _outcomes,
        list[tuple[kind | None, ErrorReply | None]],
        lambda found: [_one_outcome(one) for one in found],
    )


_FORMS: dict[Any, _Form] = {
    Sequence[Published]: _STORED,
    BatchStored: _Form(
        lambda one: (_runs(one.stored), one.partitions),
        tuple[list[_Run], int],
        lambda one: BatchStored(_stored(one[0]), one[1]),
    ),
    list[PublishOutcome]: _outcome_form(Published),
    list[answers.LeaseOutcome | PenstockError]: _outcome_form(answers.LeaseOutcome),
}
# To hash a type with parameters takes longer than to pack most replies.
_FORM_OF = {kind: _FORMS[call.reply] for kind, call in _BY_KIND.items() if call.reply in _FORMS}
_ERROR_REPLY = _decoder(ErrorReply)
_HELLO = _decoder(Hello)
# What is packed of a reply whose messages are a part behind it.
_HEADS: dict[Any, Any] = {LeasedMessages: members.Standing | None, FetchReply: _FetchHead}
_WITH_PART: dict[type, Callable[[memoryview, Any], Any]] = {
    kind: LeasedReply if call.reply is LeasedMessages else _fetch_reply
    for kind, call in _BY_KIND.items()
    if call.reply in _HEADS
}
_REPLIES = {
    kind: _decoder(
        _FORM_OF[kind].packed if kind in _FORM_OF else _HEADS.get(call.reply, call.reply)
    )
    for kind, call in _BY_KIND.items()
}


def encode_reply(kind: type[Command[Any]], reply: Any, safety: Safety = BUFFERED) -> Pieces:
    """The body of a reply to a command; not for polls and fetches, whose messages are parts."""
    form = _FORM_OF.get(kind)
    packed = _ENCODE(reply if form is None else form.pack(reply))
    body = _REPLY.pack(_OK, _GUARANTEES.index(safety.guarantee), len(packed)) + packed
    return [body + bytes((safety.copies,)) if safety.copies else body]


def encode_value(value: object) -> Pieces:
    """The body of a reply that is no command's."""
    packed = _ENCODE(value)
    return [_REPLY.pack(_OK, 0, len(packed)) + packed]


def encode_leased_reply(parts: Buffer, standing: members.Standing | None) -> Pieces:
    """The body of a reply to a poll: its messages in the form of docs/formats/leased.md, beside the standing."""
    packed = _ENCODE(standing)
    return [_REPLY.pack(_OK, 0, len(packed)) + packed + _SIZE.pack(len(parts)), parts]


def encode_fetch_reply(reply: FetchReply) -> Pieces:
    """The body of a reply to a fetch. With a file range its bytes follow, and are not among the pieces."""
    packed = _ENCODE(
        _FetchHead(
            reply.offset,
            reply.next_offset,
            reply.start_offset,
            reply.end_offset,
            reply.seed,
            reply.skipped,
        )
    )
    size = len(reply.data) if reply.file_range is None else reply.file_range.size
    head = _REPLY.pack(_OK, 0, len(packed)) + packed + _SIZE.pack(size)
    return [head] if reply.file_range is not None else [head, reply.data]


def encode_error(error: PenstockError) -> bytes:
    """The body of a reply that says what was wrong."""
    packed = _ENCODE(error_reply(error))
    return _REPLY.pack(_ERROR, 0, len(packed)) + packed


def decode_reply(kind: type[Command[Any]], body: memoryview) -> Reply[Any]:
    """A reply to a command of this kind. Raises the error that the server sent.

    BadRequest: the bytes are no reply to such a command.
    """
    packed, end, guarantee = _open_reply(body)
    value: Any = _decoded(_REPLIES[kind], packed, kind.__name__)
    if kind in _WITH_PART:
        return Reply(_WITH_PART[kind](_part_of_reply(body, end), value), Safety(guarantee))
    form = _FORM_OF.get(kind)
    copies = body[end] if end < len(body) else 0
    return Reply(value if form is None else form.unpack(value), Safety(guarantee, copies))


def decode_value(kind: type[T], body: memoryview) -> T:
    """A reply that is no command's. Raises the error that the server sent. BadRequest: the bytes are no such reply."""
    packed, _, _ = _open_reply(body)
    return _decoded(_decoder(kind), packed, f"a {kind.__name__}")  # type: ignore[no-any-return]  # It is of this kind.


def _open_reply(body: memoryview) -> tuple[memoryview, int, Guarantee]:
    """The msgpack of a reply, where it ends, and what is guaranteed; or raises the error that it holds."""
    try:
        status, guarantee, size = _REPLY.unpack_from(body)
    except struct.error:
        raise BadRequest(f"a reply begins with {_REPLY.size} bytes") from None
    end = _REPLY.size + size
    if end > len(body) or status > _ERROR or guarantee >= len(_GUARANTEES):
        raise BadRequest(f"not a reply: {bytes(body[:16]).hex()}")
    packed = body[_REPLY.size : end]
    if status == _ERROR:
        raise rebuilt_error(_decoded(_ERROR_REPLY, packed, "an error"))
    return packed, end, _GUARANTEES[guarantee]


def _part_of_reply(body: memoryview, position: int) -> memoryview:
    parts = read_parts(body, position)
    if len(parts) != 1:
        raise BadRequest(f"a reply with one part was expected, found {len(parts)}")
    return parts[0]
