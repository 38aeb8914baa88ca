"""What a command may hold: every kind of command, by the types of its fields."""

import re
import struct
from typing import Annotated

import msgspec
import pytest

import penstock.api.classic
from penstock.api.bounds import (
    DISTINCT,
    MESSAGES_MAX,
    NAMES_MAX,
    PACKED_BYTES_MAX,
    PAGE_MAX,
    PUBLISH_MESSAGES_MAX,
    TEXT_CHARACTERS_MAX,
    Unit,
    Within,
    bounds_of,
    items,
    within_bounds,
)
from penstock.api.command import Command
from penstock.api.commits import StageNamed
from penstock.api.dead_letters import (
    REDRIVE_LIMIT,
    BrowseDeadLetters,
    Edit,
    RedriveDeadLetters,
    Selection,
)
from penstock.api.fetch import FETCH_BYTES_MAX, Fetch, Read
from penstock.api.groups import ListGroups
from penstock.api.health import SeeStored
from penstock.api.members import JoinGroup
from penstock.api.publish import Delayed, Publish, PublishEach, PublishValues, Schedule
from penstock.api.queries import HoldFiles, ListEnds
from penstock.api.topics import DescribeTopic, DescribeTopics, SweepTopics
from penstock.api.transactions import Stage
from penstock.api.wire import CALLS, decode_command
from penstock.errors import BadRequest, Refused, TooLarge
from penstock.model import Message

KINDS = sorted({call.kind for call in CALLS.values()}, key=lambda kind: kind.__name__)
OF_KAFKA = [
    kind
    for kind in vars(penstock.api.classic).values()
    if isinstance(kind, type)
    and issubclass(kind, Command)
    and kind.__module__ == "penstock.api.classic"
]
LONG = [Message(b"")] * (PUBLISH_MESSAGES_MAX + 1)
MANY = re.compile(r"(Sequence|Mapping|dict|list|set|frozenset)\[|tuple\[[^\[\]]*\.\.\.\]")


def body_of(name: str, packed: bytes) -> memoryview:
    head = struct.pack(">BIBI", 1, 0, len(name), len(packed))
    return memoryview(head + name.encode() + packed)


@pytest.mark.parametrize("kind", [*KINDS, *OF_KAFKA], ids=lambda kind: kind.__name__)
def test_every_field_of_every_command_is_bounded(kind):
    """By the words of its type, which the walk over types does not read."""
    bounded = {bound.field.partition(".")[0] for bound in bounds_of(kind)}
    for field in msgspec.structs.fields(kind):
        if MANY.search(str(field.type)) or field.type is str:
            assert field.name in bounded, f"{kind.__name__}.{field.name}"


@pytest.mark.parametrize(
    "kind", [list[str], tuple[int, ...], dict[str, int], frozenset[int] | None, Selection | None]
)
def test_a_command_without_a_bound_is_none(kind):
    if kind == Selection | None:
        kind = msgspec.defstruct("Inner", [("names", list[str])])
    made = msgspec.defstruct("Careless", [("things", kind)], bases=(Command,), frozen=True)
    with pytest.raises(TypeError, match=r"things.* may hold any number of items"):
        bounds_of(made)


def listed_in(kind):
    return [one for one in bounds_of(kind) if one.unit is Unit.ITEMS and "." not in one.field]


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        pytest.param(kind, bound, id=f"{kind.__name__}.{bound.field}")
        for kind in KINDS
        for bound in listed_in(kind)
    ],
)
def test_more_items_are_refused_before_they_are_read(kind, bound):
    """The items are no items at all: what is read of them would be another error."""
    names = [field.name for field in msgspec.structs.fields(kind)]
    given = {field.name: "x" for field in msgspec.structs.fields(kind) if field.type is str}
    count = bound.most + 1
    given[bound.field] = (
        {str(number): None for number in range(count)}
        if "Mapping" in str(msgspec.structs.fields(kind)[names.index(bound.field)].type)
        else [msgspec.UNSET is None] * count
    )
    # The decoder reads fields in the order in which they come.
    packed = msgspec.msgpack.encode({bound.field: given.pop(bound.field), **given})
    with pytest.raises(TooLarge) as refusal:
        decode_command(body_of(kind.__name__, packed))
    fields = refusal.value.fields
    assert fields["what"] == f"{bound.field} in one request"
    assert (fields["found"], fields["limit"]) == (count, bound.most)


@pytest.mark.parametrize(
    ("name", "fields", "what", "found", "limit"),
    [
        (
            "BrowseDeadLetters",
            {"topic": "t", "selection": {"offsets": [[0, 1]] * (REDRIVE_LIMIT + 2)}},
            "selection.offsets",
            REDRIVE_LIMIT + 2,
            REDRIVE_LIMIT,
        ),
        (
            "CheckCompatibility",
            {"subject": "s", "schema": ["JSON", "", [["a", "b", 1]] * 1001]},
            "schema[2]",
            1001,
            1000,
        ),
        (
            "Poll",
            {"topic": "t", "group": "g", "member": "m", "limit": 1, "request_id": "r" * 129},
            "request_id",
            129,
            128,
        ),
    ],
)
def test_what_is_inside_is_counted_too(name, fields, what, found, limit):
    with pytest.raises(TooLarge) as refusal:
        decode_command(body_of(name, msgspec.msgpack.encode(fields)))
    said = refusal.value.fields
    assert str(said["what"]).startswith(what)
    assert (said["found"], said["limit"]) == (found, limit)


def test_what_repeats_a_field_is_refused_all_the_same():
    """A map of msgpack may have a name twice: the decoder stops at the first that is too large."""
    field = msgspec.msgpack.encode("names")
    large, small = msgspec.msgpack.encode([None] * (NAMES_MAX + 1)), msgspec.msgpack.encode([])
    with pytest.raises(Refused):
        decode_command(body_of("DescribeTopics", b"\x82" + field + large + field + small))


def test_a_command_has_so_many_bytes_at_most_unless_it_carries_contents():
    packed = msgspec.msgpack.encode({"names": ["x" * 4000] * 2100})
    assert len(packed) > PACKED_BYTES_MAX
    with pytest.raises(TooLarge, match="command in bytes") as refusal:
        decode_command(body_of("DescribeTopics", packed))
    assert refusal.value.fields["limit"] == PACKED_BYTES_MAX
    packed = msgspec.msgpack.encode({"topic": "t", "values": [b"x" * PACKED_BYTES_MAX] * 2})
    assert len(decode_command(body_of("PublishValues", packed)).command.values) == 2
    of_contents = {kind.__name__ for kind in KINDS if kind.packed_bytes_max is None}
    assert {"Publish", "PublishEach", "Stage", "StageNamed", "ScheduleValues"} <= of_contents
    assert not {"DescribeTopics", "Answer", "Poll", "CreateTopic", "Commit"} & of_contents


def test_deep_msgpack_is_refused():
    deep = b"\x91" * 200_000 + b"\xc0"
    packed = b"\x83\xa4name\xa1t\xaapartitions\x01\xa8settings\x81\xa1a" + deep
    with pytest.raises(BadRequest, match="nested too deeply"):
        decode_command(body_of("CreateTopic", packed))


def test_repeated_names_are_looked_at_once():
    names = ["big", "small", "big"] * 3000
    assert within_bounds(DescribeTopics(names)).names == ("big", "small")
    assert within_bounds(ListEnds(names)).names == ("big", "small")
    assert within_bounds(SeeStored(prefixes=("a", "b", "a"))).prefixes == ("a", "b")
    once = DescribeTopics(["big", "small"])
    assert within_bounds(once) is once


@pytest.mark.parametrize(
    "command",
    [
        DescribeTopics(["big"] * (NAMES_MAX + 1)),
        ListGroups(prefixes=("a",) * (NAMES_MAX + 1)),
        PublishValues("t", [b""] * (MESSAGES_MAX + 1)),
        Publish("t", LONG),
        PublishEach("t", LONG),
        Schedule("t", [Delayed(LONG[0], 1)] * len(LONG)),
        Stage(0, 0, "t", LONG),
        StageNamed("s", "t", LONG),
        DescribeTopic("t" * (TEXT_CHARACTERS_MAX + 1)),
        SweepTopics("t" * (TEXT_CHARACTERS_MAX + 1)),
        HoldFiles("t", 0, 0, 1, 3_600_001),
        BrowseDeadLetters(
            "t", Selection(offsets=frozenset((0, number) for number in range(REDRIVE_LIMIT + 1)))
        ),
        RedriveDeadLetters("t", edit=Edit(headers=(("h", None),) * 10_001)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_commands_that_were_not_decoded_have_the_same_bounds(command):
    with pytest.raises(TooLarge) as refusal:
        within_bounds(command)
    assert refusal.value.fields["found"] > refusal.value.fields["limit"]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (PublishValues("t", []), "values"),
        (JoinGroup("g", "m", ()), "topic_names"),
        (Read("t", 0, limit=0), "limit"),
        (HoldFiles("t", 0, 0, 1, -1), "hold_ms"),
    ],
)
def test_too_little_is_refused_by_name(command, field):
    with pytest.raises(Refused) as refusal:
        within_bounds(command)
    assert refusal.value.fields["field"] == field


def test_limits_are_cut_down():
    read = within_bounds(Read("t", 0, limit=1 << 40, bytes_max=1 << 40))
    assert (read.limit, read.bytes_max) == (PAGE_MAX, FETCH_BYTES_MAX)
    assert within_bounds(Fetch("t", 0, bytes_max=5)).bytes_max == 5


def test_two_lists_that_are_staged_together_have_one_bound_together():
    half = [Message(b"a")] * (PUBLISH_MESSAGES_MAX // 2)
    later = [Delayed(Message(b"a"), 1)] * (PUBLISH_MESSAGES_MAX // 2)
    within_bounds(StageNamed("s", "t", half, delayed=later))
    with pytest.raises(TooLarge):
        within_bounds(StageNamed("s", "t", half, delayed=[*later, later[0]]))
    with pytest.raises(Refused):
        within_bounds(StageNamed("s", "t", []))


def test_what_a_type_says_is_what_holds():
    made = msgspec.defstruct(
        "Made",
        [
            ("names", Annotated[tuple[str, ...], items(2, least=1), DISTINCT] | None),
            ("size", Annotated[int, Within(3, 5)]),
        ],
        bases=(Command,),
        frozen=True,
    )
    names, size = bounds_of(made)
    assert (names.least, names.most, names.is_distinct, size.least, size.most) == (1, 2, True, 3, 5)
    assert within_bounds(made(("a", "a"), 3)).names == ("a",)
    assert within_bounds(made(None, 5)).names is None
    for names, size in (((), 3), (("a", "b", "c"), 3), (None, 2), (None, 6)):
        with pytest.raises(Refused):
            within_bounds(made(names, size))
