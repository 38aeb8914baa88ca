"""Topics of many partitions are made, grown and deleted in pieces, between which everything else goes on."""

import random
from collections.abc import Iterator

import pytest

from penstock.api.answers import Kind
from penstock.api.command import Command
from penstock.api.health import EventKind
from penstock.api.members import Heartbeat, JoinGroup, PollMember, ReleasePartitions
from penstock.api.principals import LOCAL
from penstock.api.topics import AddPartitions, CreateTopic, DeleteTopic, FinishTopics
from penstock.broker import topic_works
from penstock.broker.partition.dead_letters import dead_letter_topic
from penstock.broker.walks import WAIT, Walk
from penstock.config import TopicConfig
from penstock.errors import AlreadyExists, NoSpace, NotFound, PenstockError, Unavailable
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .world import TOPIC, World, pull_the_plug, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])
MANY = 21
LETTERS = dead_letter_topic(TOPIC)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_works, "PARTITIONS_A_PIECE", 4)


class Client:
    """Waits for one command, a slice at a time. `reply` is there once it is over."""

    def __init__(self, world: World, command: Command) -> None:
        self.world, self.walk, self.effects = world, Walk(command, LOCAL), 0
        self.reply: object = "none yet"

    def go_on(self, entries: int = 1) -> bool:
        """Take a slice, and then run its effect. True: it is over."""
        done = self.world.node.go_on(self.walk, self.world.now(), entries)
        if self.walk.effect is not None and self.walk.effect is not WAIT:
            self.effects += 1
            self.walk.effect.run()
        if done.more is None:
            self.reply = done.reply
        return done.more is None

    def finish(self) -> object:
        while not self.go_on():
            pass
        return self.reply


def steps(world: World, command: Command) -> Iterator[Client]:
    """Between any two slices of a command."""
    client = Client(world, command)
    while not client.go_on():
        yield client


def directories(world: World) -> list[str]:
    return world.disk.list("topics/default")


def tidied(world: World) -> World:
    """A world in which everything was done that goes on by itself."""
    world.execute(FinishTopics())
    assert world.node.works.unattended() is None
    assert not world.disk.list("set-aside")
    return world


def test_a_topic_is_there_when_all_of_it_is_and_others_go_on_meanwhile() -> None:
    world = World()
    world.topic(name="busy")
    client = None
    for number, client in enumerate(steps(world, CreateTopic(TOPIC, MANY))):
        world.publish(b"%d" % number, topic="busy")
        if not client.walk.is_over and world.node.works.makings:
            assert world.topics() == ["busy"]
            with pytest.raises(NotFound):
                world.publish(b"too soon")
    assert client is not None
    assert client.reply is None
    assert client.effects == 6, "each piece is an effect of its own"
    assert len(world.describe()) == MANY
    world.publish(b"x", partition=MANY - 1)


def test_a_client_that_comes_again_gets_the_same_answer() -> None:
    """And one that wants another topic of the name does not."""
    world, command = World(), CreateTopic(TOPIC, MANY)
    first, second = Client(world, command), Client(world, command)
    for client in (first, second):
        assert not client.go_on()
    other = world.node.execute(CreateTopic(TOPIC, 3), LOCAL, world.now()).reply
    assert isinstance(other, AlreadyExists)
    while not (first.go_on() and second.go_on()):
        pass
    assert (first.finish() if first.reply else first.reply, second.reply) == (None, None)
    assert len(world.describe()) == MANY


def test_a_growth_that_is_asked_for_again_has_the_same_answer() -> None:
    world = World()
    world.topic(partitions=2)
    first, second = (Client(world, AddPartitions(TOPIC, MANY)) for _ in range(2))
    for client in (first, second):
        assert not client.go_on()
    for command in (AddPartitions(TOPIC, 9), DeleteTopic(TOPIC)):
        assert isinstance(world.node.execute(command, LOCAL, world.now()).reply, Unavailable)
    assert (first.finish(), second.finish()) == (2, 2)
    assert len(world.describe()) == MANY


def test_what_a_client_has_left_is_finished_without_it() -> None:
    world = World()
    client = Client(world, CreateTopic(TOPIC, MANY))
    for _ in range(7):
        assert not client.go_on()
    client.walk.close()
    assert tidied(world).topics() == [TOPIC]


def test_a_walk_waits_while_the_driver_of_another_one_makes_files() -> None:
    world, command = World(), CreateTopic(TOPIC, 4)
    first = Walk(command, LOCAL)
    while first.effect is None:
        world.node.go_on(first, world.now(), 1)
    second = Client(world, command)
    for _ in range(3):
        assert not second.go_on()
    assert second.effects == 0
    at_once = world.node.execute(command, LOCAL, world.now()).reply
    assert isinstance(at_once, Unavailable)
    first.effect.run()
    second.finish()
    assert world.topics() == [TOPIC]


@STOPS
def test_of_a_topic_that_was_being_made_nothing_is_left(stop) -> None:
    """And the client that comes again has it made, wherever it was interrupted."""
    total = sum(1 for _ in steps(World(), CreateTopic(TOPIC, MANY)))
    for stop_at in range(0, total, 4):
        world = World()
        for number, _ in enumerate(steps(world, CreateTopic(TOPIC, MANY))):
            if number == stop_at:
                break
        is_made = bool(world.topics())
        getattr(world, stop)()
        assert world.topics() == [TOPIC] * is_made
        assert len(directories(tidied(world))) == is_made
        assert not world.node.topics.planned
        if not is_made:
            world.topic(partitions=MANY)
        world.restart()
        assert len(world.describe()) == MANY
        assert not world.node.faults()


@STOPS
def test_of_partitions_that_were_being_made_nothing_is_left(stop) -> None:
    total = sum(1 for _ in steps(grown_from(2), AddPartitions(TOPIC, MANY)))
    for stop_at in range(0, total, 4):
        world = grown_from(2)
        for number, _ in enumerate(steps(world, AddPartitions(TOPIC, MANY))):
            if number == stop_at:
                break
        getattr(world, stop)()
        assert len(tidied(world).describe()) in {2, MANY}
        assert len(world.disk.list("topics/default/orders.1")) == len(world.describe()) + 1
        if len(world.describe()) == 2:
            world.grow(MANY)
        assert len(world.describe()) == MANY


def grown_from(partitions: int) -> World:
    world = World()
    world.topic(partitions=partitions)
    world.group()
    return world


@STOPS
def test_a_deleted_topic_is_gone_at_once_and_its_files_go_after_it(stop) -> None:
    def deleted() -> World:
        world = World()
        world.topic(partitions=MANY)
        world.publish(b"old", partition=0)
        return world

    total = sum(1 for _ in steps(deleted(), DeleteTopic(TOPIC)))
    for stop_at in range(total):
        world = deleted()
        for number, _ in enumerate(steps(world, DeleteTopic(TOPIC))):
            if number == stop_at:
                break
            assert world.topics() == []
        getattr(world, stop)()
        assert world.topics() == []
        world.topic(partitions=2)
        world.publish(b"new", partition=0)
        assert tidied(world).disk.list("topics/default") == ["orders.2"]
        assert not world.node.topics.deleted
        world.group()
        assert values(world.drain()) == [b"new"]


def test_the_answer_to_a_deletion_does_not_wait_for_all_files() -> None:
    world = World()
    world.topic(partitions=MANY)
    client = Client(world, DeleteTopic(TOPIC))
    assert client.finish() is None
    assert client.effects == 1
    assert len(world.disk.list("topics/default/orders.1")) > MANY // 2
    tidied(world)
    assert directories(world) == []


GROUPS = [f"group-{number}" for number in range(9)]


def with_members(*members: str, **settings: object) -> World:
    """A topic of eight partitions that groups read, each with some members."""
    world = World()
    world.topic(partitions=8, **settings)
    for group in GROUPS:
        for member in members:
            world.execute(JoinGroup(group, member, (TOPIC,)))
    return world


def owned(world: World, member: str = "one") -> list[int]:
    """How many partitions a member has, of each group."""
    standings = [world.execute(Heartbeat(group, member)) for group in GROUPS]
    return [len(standing.assigned) for standing in standings]


@pytest.mark.parametrize(
    ("command", "after"), [(AddPartitions(TOPIC, 12), 12), (DeleteTopic(TOPIC), 0)]
)
def test_members_hear_of_a_change_group_by_group(command, after) -> None:
    world = with_members("one")
    heard = [owned(world), *(owned(world) for _ in steps(world, command)), owned(world)]
    assert (heard[0], heard[-1]) == ([8] * len(GROUPS), [after] * len(GROUPS))
    counts = [one.count(after) for one in heard]
    assert {*map(int.__sub__, counts[1:], counts)} == {0, 1}, "one group for each slice at most"


def test_members_hear_of_a_change_whose_client_has_left() -> None:
    world = with_members("one")
    client = Client(world, DeleteTopic(TOPIC))
    while TOPIC in world.topics():
        assert not client.go_on()
    client.walk.close()
    assert any(owned(world))
    assert owned(tidied(world)) == [0] * len(GROUPS)


def test_members_of_a_topic_that_goes_get_no_error_until_they_hear_of_it() -> None:
    world = with_members("one")
    world.publish(b"x", partition=0)
    for number, _ in enumerate(steps(world, DeleteTopic(TOPIC))):
        for group in GROUPS:
            reply = world.execute(PollMember(group, "one", 10))
            assert not reply or TOPIC in world.topics()
        # Half of what the first has is asked back for another member, and given to it.
        if TOPIC not in world.topics() and number % 2:
            world.topic(name="other")
            for group in GROUPS:
                world.execute(JoinGroup(group, "two", ("other",)))
                asked = world.execute(Heartbeat(group, "one")).to_release
                world.execute(ReleasePartitions(group, "one", asked))
            world.delete("other")
    assert owned(world) == owned(world, "two") == [0] * len(GROUPS)


def test_a_topic_that_is_made_again_at_once_is_shared_out() -> None:
    world = with_members("one")
    deletion = Client(world, DeleteTopic(TOPIC))
    while TOPIC in world.topics():
        deletion.go_on()
    for _ in range(3):
        deletion.go_on()
    world.topic(partitions=3)
    assert deletion.finish() is None
    assert owned(tidied(world)) == [3] * len(GROUPS)


def test_partitions_of_a_deleted_topic_are_closed_one_by_one() -> None:
    world = with_members()
    for number in range(8):
        world.publish(b"x", partition=number)
    partitions = [*world.node.topic(TOPIC).partitions]

    def opened() -> int:
        return sum(bool(partition.messages.segments) for partition in partitions)

    counts = [opened(), *(opened() for _ in steps(world, DeleteTopic(TOPIC)))]
    assert (counts[0], opened()) == (8, 0)
    assert {*map(int.__sub__, counts, counts[1:])} == {0, 1}


def test_partitions_that_were_to_be_closed_are_when_the_node_stops() -> None:
    world = with_members()
    world.publish(b"x")
    partitions = [*world.node.topic(TOPIC).partitions]
    client = Client(world, DeleteTopic(TOPIC))
    while TOPIC in world.topics():
        client.go_on()
    assert any(partition.messages.segments for partition in partitions)
    world.restart()
    assert not any(partition.messages.segments for partition in partitions)
    assert tidied(world).topics() == []


def test_a_start_says_what_it_removed_of_many_partitions() -> None:
    world = World()
    for client in steps(world, CreateTopic(TOPIC, MANY)):
        if client.effects == 3:
            break
    world.kill()
    tidied(world)
    (event,) = [one for one in world.node.recovery if one.kind is EventKind.LEFTOVER_REMOVED]
    assert (event.topic, event.partition) == (TOPIC, -1)


def test_without_room_nothing_of_a_topic_is_left_and_its_name_is_free() -> None:
    world = World()
    client = Client(world, CreateTopic(TOPIC, MANY))
    while client.effects < 3:
        client.go_on()
    world.disk.inject(
        Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="topics/", nth=3)
    )
    assert isinstance(client.finish(), NoSpace)
    assert directories(tidied(world)) == []
    world.topic(partitions=MANY)
    assert len(world.describe()) == MANY


@pytest.mark.parametrize("full", [TOPIC, LETTERS])
@pytest.mark.parametrize("nth", [1, 3])
def test_without_room_nothing_of_a_growth_is_left_and_it_is_tried_again(
    full: str, nth: int
) -> None:
    """Whichever of the two topics that grow together there is no room for."""
    world = World()
    for name in (TOPIC, LETTERS):
        world.topic(partitions=2, name=name)
    path = f"/{full}.{world.node.topics.get(full).topic_id}/partition-"
    client = Client(world, AddPartitions(TOPIC, MANY))
    while client.effects < 2:
        client.go_on()
    no_space = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part=path, nth=nth)
    world.disk.inject(no_space)
    assert isinstance(client.finish(), NoSpace)
    assert not world.node.works.makings
    tidied(world)
    assert [len(world.describe(name)) for name in (TOPIC, LETTERS)] == [2, 2]
    world.grow(3, LETTERS)
    world.grow(MANY)
    assert [len(world.describe(name)) for name in (TOPIC, LETTERS)] == [MANY, MANY]
    world.delete()
    assert directories(tidied(world)) == []


def test_settings_that_change_during_a_growth_hold_for_new_partitions_as_well() -> None:
    world = World()
    world.topic(partitions=2)
    client = Client(world, AddPartitions(TOPIC, MANY))
    while client.effects < 3:
        client.go_on()
    world.configure(max_retries=9)
    client.finish()
    assert {one.config.max_retries for one in world.node.topic(TOPIC).partitions} == {9}


def test_dead_letters_wait_for_a_topic_of_many_partitions_and_arrive() -> None:
    world = World()
    world.topic(partitions=MANY)
    world.group()
    for number in range(MANY):
        world.publish(b"%d" % number, partition=number)
    for _ in range(MANY):
        if not (got := world.poll()):
            break
        world.answer(Kind.REJECT, [one.receipt for one in got])
    world.settle()
    assert world.topics() == [TOPIC], "it is made in the background"
    world.execute(FinishTopics())
    world.settle()
    assert len(world.describe(f"{TOPIC}.dlq")) == MANY
    assert len(world.letters()) == MANY


def test_a_power_cut_at_any_write_leaves_all_or_nothing(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(partitions=6)
        disk.mark(("made",))
        world.grow(11)
        disk.mark(("made", "grown"))
        world.delete()
        world.execute(FinishTopics())
        disk.mark(("made", "grown", "deleted"))

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        last = marks[-1] if marks else ()
        counts = {(): {0, 6}, ("made",): {6, 11}, ("made", "grown"): {11, 0}}.get(last, {0})
        found = len(world.describe()) if world.topics() else 0
        assert found in counts
        assert not world.node.faults()
        tidied(world)
        assert len(directories(world)) == (found > 0)

    pull_the_plug(scenario, check, effort)


class Model:
    """What a node without pieces would have: topics by name, with their partitions."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}

    def carry_out(self, command: Command) -> object:
        match command:
            case CreateTopic(name, partitions):
                if name in self.topics:
                    return AlreadyExists
                self.topics[name] = partitions
            case AddPartitions(name, total):
                before = self.topics[name]
                self.topics[name] = total
                return before
            case DeleteTopic(name):
                del self.topics[name]
        return None


@pytest.mark.parametrize("seed", range(12))
def test_pieces_in_any_order_come_to_what_one_step_would(seed) -> None:
    """Clients come, leave, and come again; nodes are killed; at the end there is what was answered, and no more."""
    entropy, world, model = random.Random(seed), World(), Model()
    names = ("a", "b", "c")
    busy: dict[str, Client] = {}
    unsure: dict[str, set[int]] = {}

    def settle_unsure() -> None:
        """What became of commands whose answer was lost: all of it, or nothing."""
        tidied(world)
        for name, possible in unsure.items():
            found = len(world.describe(name)) if name in world.topics() else 0
            assert found in possible, name
            model.topics.pop(name, None)
            if found:
                model.topics[name] = found
        unsure.clear()

    for _ in range(150):
        name = entropy.choice(names)
        if name not in busy and name not in unsure:
            had = model.topics.get(name, 0)
            total = had + entropy.randint(1, 9)
            command = entropy.choice(
                [AddPartitions(name, total), DeleteTopic(name)]
                if had
                else [CreateTopic(name, total)]
            )
            busy[name] = Client(world, command)
        elif name in busy and busy[name].go_on(entropy.choice((1, 1, 3, 10))):
            client = busy.pop(name)
            assert not isinstance(client.reply, PenstockError), client.reply
            assert client.reply == model.carry_out(client.walk.command)
        match entropy.randint(0, 60):
            case 0 | 1 if busy:
                name, client = busy.popitem()
                client.walk.close()
                before, after = model.topics.get(name, 0), Model()
                after.topics.update(model.topics)
                after.carry_out(client.walk.command)
                unsure[name] = {before, after.topics.get(name, 0)}
                settle_unsure()
            case 2 | 3:
                for name, client in busy.items():
                    before, after = model.topics.get(name, 0), Model()
                    after.topics.update(model.topics)
                    after.carry_out(client.walk.command)
                    unsure[name] = {before, after.topics.get(name, 0)}
                busy.clear()
                getattr(world, entropy.choice(("restart", "kill", "lose_unsynced")))()
                settle_unsure()
        there = {name: len(world.describe(name)) for name in world.topics() if name not in busy}
        assert there == {name: n for name, n in model.topics.items() if name not in busy}
    for client in busy.values():
        client.finish()
        model.carry_out(client.walk.command)
    tidied(world)
    assert {name: len(world.describe(name)) for name in world.topics()} == model.topics
    assert {path.rpartition(".")[0] for path in directories(world)} == {*model.topics}
    assert all(one.config == TopicConfig() for one in world.node.partitions())
