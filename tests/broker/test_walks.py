"""Commands that look at many entries: carried out in slices of any size, with other commands in between."""

import gc
import random
from collections.abc import Iterator
from types import GeneratorType

import pytest
from msgspec import to_builtins

from penstock.api.classic import (
    CommitOffsets,
    CommittedOffset,
    DescribeClassic,
    JoinClassic,
    ListClassic,
    ListCommitted,
)
from penstock.api.command import Command
from penstock.api.commits import ListCommitNames, OpenStaging
from penstock.api.delays import DelayPlace, DescribeDelays, ListDelayed
from penstock.api.groups import (
    CloseGroup,
    DescribeGroup,
    DescribeLag,
    DescribeLanes,
    ListGroups,
    ListInFlight,
    ListRebalances,
    OpenGroup,
    PlanReset,
)
from penstock.api.health import SeeFigures, SeeHealth, SeeLags, SeeReliability, SeeStored
from penstock.api.journeys import DescribeJourneys
from penstock.api.keys import (
    CreateKey,
    Credential,
    ListKeys,
    NewKey,
    RevokeKey,
    RotateKey,
)
from penstock.api.members import JoinGroup
from penstock.api.principals import LOCAL, Principal, Role
from penstock.api.publish import Delayed, Schedule
from penstock.api.queries import ListEnds
from penstock.api.schedules import CreateSchedule, ListSchedules
from penstock.api.start import EARLIEST
from penstock.api.topics import DescribeLayouts, DescribeTopic, DescribeTopics, ListTopics
from penstock.api.transactions import InitProducer, ListTransactions, SeeTransactionStats
from penstock.broker.walks import Walk
from penstock.errors import Forbidden, NotFound, PenstockError, Unauthenticated, Unavailable
from penstock.model import Message

from .world import WALL_NS, World

NAMES = [f"{prefix}.{number}" for prefix in ("mine", "other") for number in range(4)]
ASKED = [*NAMES, "missing", NAMES[0]]
WALKS: list[Command] = [
    ListTopics(),
    ListTopics(prefixes=("mine.",)),
    DescribeTopic(NAMES[3]),
    DescribeTopics(ASKED),
    DescribeLayouts(ASKED),
    ListEnds(ASKED),
    ListEnds(NAMES),
    ListEnds(ASKED, at_ns=0),
    ListGroups(),
    ListGroups(prefixes=("mine.",)),
    DescribeGroup("group-0"),
    DescribeGroup("assigned", prefixes=("mine.",)),
    DescribeGroup("classic"),
    ListRebalances(),
    DescribeLag("group-0"),
    DescribeLag("group-1", topic=NAMES[5]),
    DescribeLag("missing"),
    DescribeLanes(),
    DescribeLanes(group="group-1"),
    ListInFlight("group-0"),
    PlanReset("group-0", to=EARLIEST),
    PlanReset("group-0", topic=NAMES[7], partitions=(0, 2), to=EARLIEST),
    DescribeClassic("group-1"),
    DescribeClassic("missing"),
    ListClassic(),
    ListClassic(prefixes=("other.",)),
    ListCommitted(group="committed"),
    SeeHealth(),
    SeeFigures(groups_max=1),
    SeeFigures(groups_max=100, prefixes=("mine.",)),
    SeeLags(),
    SeeReliability(prefixes=("other.",)),
    SeeStored(),
    SeeStored(prefixes=("mine.",)),
    DescribeDelays(),
    ListDelayed(NAMES[3]),
    ListDelayed(NAMES[3], limit=5),
    ListDelayed(NAMES[3], 100, DelayPlace(WALL_NS + 1003, 1, 0)),
    DescribeJourneys(),
    DescribeJourneys(topic=NAMES[5]),
    DescribeDelays(NAMES[3]),
    ListSchedules(NAMES[3]),
    ListKeys(),
    ListTransactions(),
    ListTransactions(limit=1),
    SeeTransactionStats(),
    ListCommitNames(),
    ListCommitNames(after="name-0", limit=1),
    CommitOffsets("committed", tuple(CommittedOffset(name, 0, 0, "again") for name in ASKED)),
]
# What an entry may bring with it: a group its members, a topic the names of its groups.
ITEM_MAX = 12


def busy() -> World:
    """Topics of one to four partitions, most with messages, and groups on them."""
    world = World()
    for number, name in enumerate(NAMES):
        world.topic(name=name, partitions=number % 4 + 1)
        for value in range(3 * number):
            world.publish(str(value).encode(), topic=name)
        for group in range(number % 3):
            world.group(f"group-{group}", name, start=EARLIEST)
        world.poll(number, topic=name, group="group-0")
    world.execute(JoinGroup("assigned", "one", tuple(NAMES[:3]), session_ms=60_000))
    world.execute(JoinGroup("assigned", "two", tuple(NAMES[1:5]), session_ms=60_000))
    world.execute(
        JoinClassic(
            group="classic",
            member="",
            protocol_type="consumer",
            protocols=(("range", b""),),
            topic_names=(NAMES[2], NAMES[6]),
        )
    )
    for number in range(9):
        delayed = Delayed(Message(b"later"), WALL_NS + 1000 + number % 5)
        world.execute(Schedule(NAMES[3], [delayed], number % 4))
    for number in range(3):
        world.execute(InitProducer(f"producer-{number}"))
        world.execute(OpenStaging(f"name-{number}", 1, "writer"))
        world.execute(CreateKey(f"key-{number}", Role.READONLY))
        every = {"every_ms": 3_600_000, "value": b"tick"}
        world.execute(CreateSchedule(NAMES[3], f"schedule-{number}", **every))
    offsets = tuple(CommittedOffset(name, 0, 0, "note") for name in NAMES[::2])
    world.execute(CommitOffsets("committed", offsets))
    return world


def slices(
    world: World,
    walk: Walk,
    entropy: random.Random,
    entries_max: int = 3,
    item_max: int = ITEM_MAX,
) -> Iterator[object]:
    """Carry out a walk; yields after each slice, and at last its reply or what it was refused with."""
    while True:
        entries = entropy.randint(1, entries_max)
        done = world.node.go_on(walk, world.now(), entries)
        assert walk.entries <= entries + item_max, "a slice looks at no more than its budget"
        if done.more is None:
            yield done.reply
            return
        yield None


def in_slices(world: World, command: Command, entropy: random.Random) -> object:
    *_, reply = slices(world, Walk(command, LOCAL), entropy)
    return reply


@pytest.mark.parametrize("command", WALKS, ids=repr)
def test_the_answer_is_that_of_one_slice(command) -> None:
    world, entropy = busy(), random.Random(1)
    whole = world.node.execute(command, LOCAL, world.now())
    assert whole.more is None
    for _ in range(4):
        reply = in_slices(world, command, entropy)
        assert type(reply) is type(whole.reply)
        assert repr(reply) == repr(whole.reply)


@pytest.mark.parametrize("command", WALKS, ids=repr)
def test_a_slice_looks_at_no_more_than_its_budget(command) -> None:
    world = busy()
    walk = Walk(command, LOCAL)
    done = world.node.go_on(walk, world.now(), 0)
    assert (walk.entries, done.more) == (0, walk)
    sizes = []
    while done.more is not None:
        done = world.node.go_on(walk, world.now(), 1)
        assert done.reply is None or done.more is None
        sizes.append(walk.entries)
    assert max(sizes) <= 1 + ITEM_MAX
    assert walk.is_over


# Those that stay, and those that come and go while a walk is under way.
KEPT, TOUCHED = NAMES[1::2], NAMES[::2]


def told_of_kept(reply: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Whatever a reply says of topics that stay, and of no others, each with the names above it."""
    if isinstance(reply, list):
        for item in reply:
            yield from told_of_kept(item, path)
    elif isinstance(reply, dict) and "name" not in reply:
        for key, value in reply.items():
            if key in KEPT:
                yield (*path, str(key), repr(value))
            else:
                yield from told_of_kept(value, (*path, str(key)))
    else:
        text = repr(reply)
        if any(name in text for name in KEPT) and not any(name in text for name in TOUCHED):
            yield (*path, text)


@pytest.mark.parametrize("command", WALKS, ids=repr)
def test_topics_come_and_go_between_slices(command, effort) -> None:
    for seed in range(effort(check=1, test=3, torture=100)):
        topics_come_and_go(command, random.Random(seed))


def topics_come_and_go(command: Command, entropy: random.Random) -> None:
    world = busy()
    whole = world.node.execute(command, LOCAL, world.now()).reply
    present = {*TOUCHED}
    for reply in slices(world, Walk(command, LOCAL), entropy):
        answer = reply
        name = entropy.choice(TOUCHED)
        if name in present:
            world.delete(name)
        else:
            # Of another number of partitions, so that an answer for the former one is noticed.
            world.topic(name=name, partitions=entropy.randint(1, 5))
        present ^= {name}
    if isinstance(answer, PenstockError):
        assert isinstance(answer, NotFound)
        assert isinstance(whole, NotFound) or {*command.topics()} & {*TOUCHED}
    else:
        assert {*told_of_kept(to_builtins(answer, enc_hook=repr))} == {
            *told_of_kept(to_builtins(whole, enc_hook=repr))
        }


@pytest.mark.parametrize("command", WALKS, ids=repr)
def test_groups_come_and_go_between_slices(command) -> None:
    world, entropy = busy(), random.Random(2)
    groups: list[str] = []
    for number, _ in enumerate(slices(world, Walk(command, LOCAL), entropy)):
        if len(groups) > 3:
            world.execute(CloseGroup(groups.pop(0)))
        groups.append(f"new-{number}")
        world.execute(OpenGroup(groups[-1], tuple(NAMES)))


def test_what_has_vanished_is_left_out_and_what_stays_is_whole() -> None:
    world = busy()
    walk = Walk(DescribeTopics(NAMES), LOCAL)
    world.node.go_on(walk, world.now(), 1)
    gone, remade = NAMES[3], NAMES[7]
    world.delete(gone)
    world.delete(remade)
    world.topic(name=remade, partitions=2)
    done = world.node.go_on(walk, world.now(), 1 << 30)
    counts = {topic.name: len(topic.partitions) for topic in done.outcome()}
    assert counts == {
        name: 2 if name == remade else NAMES.index(name) % 4 + 1 for name in NAMES if name != gone
    }


def test_a_topic_that_is_made_anew_under_the_walk_is_not_mixed_with_the_former_one() -> None:
    world = busy()
    name = NAMES[3]
    for command in (DescribeTopics([name]), ListEnds([name]), DescribeLayouts([name])):
        walk = Walk(command, LOCAL)
        world.node.go_on(walk, world.now(), 2)
        world.delete(name)
        world.topic(name=name, partitions=4)
        reply = world.node.go_on(walk, world.now(), 1 << 30).outcome()
        assert reply in (
            [],
            world.node.execute(ListEnds(["missing"]), LOCAL, world.now()).reply,
        ) or (reply.missing == [name])


def test_lag_is_not_told_of_two_topics_that_had_a_name_one_after_the_other() -> None:
    world, name = busy(), NAMES[3]
    world.group("lone", name)
    walk = Walk(DescribeLag("lone", topic=name), LOCAL)
    world.node.go_on(walk, world.now(), 2)
    world.delete(name)
    world.topic(name=name, partitions=4)
    world.group("lone", name)
    lag = world.node.go_on(walk, world.now(), 1 << 30).outcome()
    assert [partition.partition for partition in lag.partitions] == [0, 1]


def key_of(world: World, *prefixes: str) -> tuple[NewKey, Principal, Credential]:
    new = world.execute(CreateKey("shop", Role.READONLY, prefixes, 60_000))
    known = world.node.keys.find(new.text, world.now().wall_ns)
    assert known is not None
    return new, *known


@pytest.mark.parametrize("end", ["revoked", "rotated", "expired"])
def test_a_walk_ends_with_the_key_of_its_client(end) -> None:
    world = busy()
    new, principal, credential = key_of(world)
    walk = Walk(DescribeTopics(NAMES), principal, credential)
    assert world.node.go_on(walk, world.now(), 2).more is walk
    if end == "revoked":
        world.execute(RevokeKey(new.key.key_id))
    elif end == "rotated":
        world.execute(RotateKey(new.key.key_id, 0))
    else:
        world.now(60_001)
    done = world.node.go_on(walk, world.now(), 2)
    assert isinstance(done.reply, Unauthenticated)
    assert (done.more, walk.is_over) == (None, True)


def test_a_walk_beyond_the_rights_of_its_key_is_refused_before_it_looks() -> None:
    world = busy()
    _, principal, credential = key_of(world, "mine.")
    walk = Walk(DescribeTopics(NAMES), principal, credential)
    done = world.node.go_on(walk, world.now(), 1)
    assert isinstance(done.reply, Forbidden)
    assert (walk.entries, walk.is_over) == (0, True)


def test_a_walk_never_goes_on_with_a_node_that_was_replaced() -> None:
    world = busy()
    walk = Walk(DescribeTopics(NAMES), LOCAL)
    assert world.node.go_on(walk, world.now(), 2).more is walk
    world.restart()
    done = world.node.go_on(walk, world.now(), 2)
    assert isinstance(done.reply, Unavailable)
    assert (done.more, walk.is_over) == (None, True)


def walking() -> list[GeneratorType]:
    gc.collect()
    handlers = "penstock/broker/handlers/"
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, GeneratorType) and handlers in one.gi_code.co_filename
    ]


def test_a_walk_that_is_closed_keeps_nothing() -> None:
    world = busy()
    walk = Walk(DescribeTopics(NAMES), LOCAL)
    world.node.go_on(walk, world.now(), 2)
    assert walking()
    walk.close()
    assert not walking()
    assert walk.is_over


def test_observers_hear_of_a_walk_once() -> None:
    heard: list[object] = []
    world = World(observer=lambda command, _reply: heard.append(command))
    world.topic(name="orders", partitions=3)
    command = DescribeTopics(["orders"])
    in_slices(world, command, random.Random(1))
    assert heard.count(command) == 1
