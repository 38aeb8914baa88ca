"""The dearest requests of the binary port, made from the types of its commands."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from dear.names import BIG, HOUR_NS, JOURNEYS, LETTERS, Names
from dear.requests import FRAME_BYTES_MAX, DearRequest, Prepare
from dear.values import LARGE_BYTES, Form, Maker
from dear.wires import FrameWire, command_frame
from penstock.api.commits import OpenStaging
from penstock.api.frames import read_header
from penstock.api.groups import Commit, PartitionOffset
from penstock.api.keys import CreateKey, ListKeys, RevokeKey
from penstock.api.principals import Role
from penstock.api.queries import KeepQueryStart
from penstock.api.schemas import NewSchema, RegisterSchema
from penstock.api.topics import CreateTopic, DeleteTopic, ListTopics
from penstock.api.wire import CALLS, decode_command
from penstock.codec import Columns, encode
from penstock.errors import PenstockError, TooLarge

OWN = "own"
"""What the judge makes to have it destroyed."""
OWN_KEY = "pk-0123456789ab"
_OWN_PARTITIONS = 100
_SCHEMA = '{"type":"record","name":"Own","fields":[]}'


def tomorrow_ns() -> int:
    """The same in all forms of a run."""
    return time.time_ns() // HOUR_NS * HOUR_NS + 24 * HOUR_NS


Overrides = Callable[[Names], Mapping[str, Any]]


def _own_topic(wire: FrameWire, names: Names) -> None:
    _no_own_topic(wire, names)
    wire.run(CreateTopic(OWN, min(_OWN_PARTITIONS, names.partitions)))


def _no_own_topic(wire: FrameWire, _names: Names) -> None:
    if OWN in wire.run(ListTopics()):
        wire.run(DeleteTopic(OWN))


def _own_group(wire: FrameWire, names: Names) -> None:
    """A group that reads every partition of the big topic."""
    offsets = tuple(PartitionOffset(BIG, number, 0) for number in range(names.partitions))
    wire.run(Commit(OWN, offsets, opens_group=True))


def _own_key(wire: FrameWire, names: Names) -> None:
    _no_own_key(wire, names)
    wire.run(CreateKey(OWN, Role.READONLY, key_id=OWN_KEY))


def _no_own_key(wire: FrameWire, _names: Names) -> None:
    for key in wire.run(ListKeys()):
        if key.name == OWN:
            wire.run(RevokeKey(key.key_id))


def _own_subject(wire: FrameWire, _names: Names) -> None:
    wire.run(RegisterSchema(OWN, NewSchema("AVRO", _SCHEMA)))


def _own_query(wire: FrameWire, _names: Names) -> None:
    wire.run(KeepQueryStart(OWN, {f"{BIG}/0": 0}, {BIG: 1}, "asked"))


def _own_staging(wire: FrameWire, _names: Names) -> None:
    wire.run(OpenStaging(OWN, 1, "writer"))


# What is made before each round of a command that would otherwise destroy what the next ones ask for.
PREPARE: Mapping[str, Prepare] = {
    "CreateTopic": _no_own_topic,
    "AddPartitions": _own_topic,
    "ConfigureTopic": _own_topic,
    "DeleteTopic": _own_topic,
    "TrimPartition": _own_topic,
    "CloseGroup": _own_group,
    "ResetGroup": _own_group,
    "CreateKey": _no_own_key,
    "RevokeKey": _own_key,
    "RotateKey": _own_key,
    "DeleteSubject": _own_subject,
    "DeleteVersion": _own_subject,
    "SetCompatibility": _own_subject,
    "SetMode": _own_subject,
    "ForgetQueryStart": _own_query,
    "ResetCommitName": _own_staging,
}

_JOURNEY: Mapping[str, Any] = {"topic": JOURNEYS, "partition": 0, "offset": 0}
_LETTERS: Mapping[str, Any] = {"topic": LETTERS}
_OWN_NAME: Mapping[str, Any] = {"name": OWN}
# What the types do not say of a field: which name is meant, and what is wanted of the dearest.
OVERRIDES: Mapping[str, Overrides] = {
    "CreateTopic": lambda names: {
        **_OWN_NAME,
        "partitions": names.sizes.partitions,
        "settings": {},
    },
    "AddPartitions": lambda names: {
        **_OWN_NAME,
        "total": 2 * min(_OWN_PARTITIONS, names.partitions),
    },
    **dict.fromkeys(("ConfigureTopic", "DeleteTopic"), lambda _names: _OWN_NAME),
    "TrimPartition": lambda _names: {"topic": OWN, "partition": 0},
    "DescribeTopic": lambda _names: {"name": BIG},
    "SweepTopics": lambda _names: {"name": None, "older_than_ns": None},
    "CloseGroup": lambda _names: {"group": OWN},
    "ResetGroup": lambda _names: {"group": OWN, "topic": None},
    "CreateKey": lambda _names: {**_OWN_NAME, "role": "readonly", "key_id": ""},
    **dict.fromkeys(("RevokeKey", "RotateKey"), lambda _names: {"key_id": OWN_KEY, "within": []}),
    **dict.fromkeys(("DeleteSubject", "DeleteVersion"), lambda _names: {"subject": OWN}),
    **dict.fromkeys(("SetCompatibility", "SetMode"), lambda _names: {"subject": OWN}),
    "KeepQueryStart": lambda _names: {"query": "query-0"},
    "ForgetQueryStart": lambda _names: {"query": OWN},
    **dict.fromkeys(
        ("DescribeCommitName", "ResetCommitName", "OpenStaging"),
        lambda _names: {**_OWN_NAME, "sequence": 1},
    ),
    **dict.fromkeys(("DescribeJourney", "Peek", "Read"), lambda _names: _JOURNEY),
    **dict.fromkeys(("BrowseDeadLetters", "CountDeadLetters"), lambda _names: _LETTERS),
    **dict.fromkeys(
        ("DiscardDeadLetters", "RedriveDeadLetters"),
        lambda _names: {**_LETTERS, "is_dry_run": True},
    ),
    **dict.fromkeys(
        ("CancelDelayed", "GetDelayed", "RescheduleDelayed"),
        lambda _names: {**_LETTERS, "which": b"d0", "due_ns": tomorrow_ns()},
    ),
    **dict.fromkeys(("ListDelayed", "ListSchedules"), lambda _names: _LETTERS),
    **dict.fromkeys(
        ("GetSchedule", "RunSchedule", "ChangeSchedule"),
        lambda _names: {**_LETTERS, "key": "schedule-0"},
    ),
    "CreateSchedule": lambda _names: {**_LETTERS, "cron": "", "every_ms": 3_600_000},
    "DeleteSchedule": lambda _names: {**_LETTERS, "key": "schedule-1"},
    **dict.fromkeys(("Poll", "Fetch"), lambda _names: {"partition": 0}),
    "InitProducer": lambda _names: {"name": OWN, "former": None},
    **dict.fromkeys(
        ("HoldFiles", "FindTimestamp"), lambda _names: {"topic": JOURNEYS, "partition": 0}
    ),
    "JoinGroup": lambda _names: {"group": OWN, "session_ms": 10_000},
    **dict.fromkeys(
        ("Schedule", "ScheduleValues", "Stage", "StageNamed"),
        lambda _names: {"due_ns": tomorrow_ns()},
    ),
    **dict.fromkeys(
        ("RegisterSchema", "CheckCompatibility", "FindSchema"),
        lambda _names: {"text": _SCHEMA, "schema_id": 0, "version": -1},
    ),
    "DecodeContent": lambda _names: {"content": b"\0\0\0\0\1" + b"\0" * 1000},
}


def binary_requests(names: Names) -> Iterator[DearRequest]:
    """Every command in every form that makes other bytes of it."""
    for name in sorted(CALLS):
        yield from requests_of(name.decode(), names)


def requests_of(name: str, names: Names) -> Iterator[DearRequest]:
    for form in forms_of(lambda form: _frame_of(name, _maker(name, form, names, 3, 9))):
        yield DearRequest(
            port="binary",
            family=CALLS[name.encode()].kind.__module__.rpartition(".")[2],
            name=f"{name}: {form.value}",
            make=partial(_frame, name, form, names),
            prepare=PREPARE.get(name),
        )


def forms_of(sketch: Callable[[Form], bytes]) -> Iterator[Form]:
    """The forms that make other bytes of a request than the forms before them."""
    seen: set[bytes] = set()
    for form in Form:
        made = sketch(form)
        if made not in seen:
            seen.add(made)
            yield form


def _maker(name: str, form: Form, names: Names, items: int, large: int) -> Maker:
    overrides = OVERRIDES[name](names) if name in OVERRIDES else {}
    return Maker(names, form, items=items, large=large, overrides=overrides)


def _frame(name: str, form: Form, names: Names) -> bytes:
    """The frame of a command, with half as much in it as long as it is too large for the broker."""
    items, large = names.sizes.items, LARGE_BYTES
    while True:
        frame = _frame_of(name, _maker(name, form, names, items, large))
        if form is Form.BEYOND or _is_admitted(frame):
            return frame
        items, large = items // 2, large // 2


def _is_admitted(frame: bytes) -> bool:
    try:
        decode_command(read_header(memoryview(frame)[4:])[1])
    except TooLarge:
        return False
    except PenstockError:
        pass
    return len(frame) <= FRAME_BYTES_MAX


def _frame_of(name: str, maker: Maker) -> bytes:
    call = CALLS[name.encode()]
    kind = msgspec.inspect.type_info(call.rest)
    assert isinstance(kind, msgspec.inspect.StructType), "a command is a struct"
    packed = msgspec.msgpack.encode(maker.fields(kind))
    parts = [batch(maker) for _ in call.parts]
    return command_frame(name, packed, parts)


def batch(maker: Maker) -> bytes:
    """A batch of our own format: one large value, or as many small ones as a list has items."""
    if maker.form is Form.LARGE:
        return encode(Columns(values=[b"x" * maker.large], timestamps=1)).to_bytes()
    return encode(
        Columns(values=[b"%d" % place for place in range(maker.items)], timestamps=1)
    ).to_bytes()


def settled(wire: FrameWire, request: DearRequest, names: Names) -> None:
    """Prepare for a round. What cannot be made is not: then the request is refused, which is judged as well."""
    if request.prepare is not None:
        try:
            request.prepare(wire, names)
        except PenstockError:
            return
