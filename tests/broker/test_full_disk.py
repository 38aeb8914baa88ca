"""A disk that is full at any one call: the command says so, and nothing has changed."""

from contextlib import suppress

import pytest

from penstock.api.dead_letters import RedriveDeadLetters, Target
from penstock.api.groups import CloseGroup
from penstock.api.keys import CreateKey, RevokeKey, RotateKey
from penstock.api.principals import Role
from penstock.api.start import EARLIEST
from penstock.api.topics import SweepDue
from penstock.broker import Node
from penstock.broker.sweeps import Due, Sweep, Sweeps
from penstock.config import TopicConfig
from penstock.errors import NoSpace
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .world import GROUP, TOPIC, World, messages_of, values

TO_GROUP = RedriveDeadLetters(TOPIC, target=Target.GROUP)
KEY = "pk-0123456789ab"


def prepared() -> World:
    """A bit of everything: leased, waiting, finished, dead."""
    world = World()
    world.topic(max_retries=0, segment_size_bytes=500)
    world.group()
    world.publish(*[b"%d" % number for number in range(9)])
    held = world.poll(6)
    world.ack(held[1])
    world.reject(held[0], error="x")
    world.settle()
    world.held = held
    world.execute(CreateKey("app", Role.PRODUCER, key_id=KEY))
    return world


COMMANDS = {
    "publish": lambda world: world.publish(Message(b"new", idempotency_key=b"i")),
    "poll": lambda world: world.poll(2),
    "ack": lambda world: raised(world.ack(world.held[2])),
    "nack": lambda world: raised(world.nack(world.held[2])),
    "reject": lambda world: raised(world.reject(world.held[2])),
    "extend": lambda world: raised(world.extend(world.held[2], ms=9)),
    "release": lambda world: world.release("m"),
    "commit": lambda world: world.commit(GROUP, 4),
    "reset": lambda world: world.reset(EARLIEST, is_forced=True),
    "open group": lambda world: world.group("another"),
    "close group": lambda world: world.execute(CloseGroup(GROUP, topic=TOPIC)),
    "redrive": lambda world: world.execute(TO_GROUP),
    "configure": lambda world: world.configure(max_retries=5),
    "delete": lambda world: world.delete(),
    "create key": lambda world: world.execute(CreateKey("more", Role.ADMIN)),
    "rotate key": lambda world: world.execute(RotateKey(KEY, 0)),
    "revoke key": lambda world: world.execute(RevokeKey(KEY)),
}


def raised(results: list[object]) -> None:
    for one in results:
        if isinstance(one, NoSpace):
            raise one


def picture(world: World) -> dict[str, object]:
    """Everything that a user could see."""
    found: dict[str, object] = {"topics": world.topics(), "keys": [*world.node.keys.snapshot()]}
    for partition in world.node.partitions():
        machine = partition.machine
        found[f"{partition.topic}/{partition.number}"] = (
            partition.messages.end_offset,
            partition.config.max_retries,
            dict(machine.dedup.kept),
            dict(machine.outbox.pending),
            machine.outbox.next_sequence,
            {name: seen(machine.groups[number]) for name, number in machine.numbers.items()},
        )
    return found


def seen(delivery) -> tuple[object, ...]:
    leases = {
        number: [(term.duration_ms, sorted(term.offsets)) for term in one.terms]
        for number, one in delivery.leases.by_number.items()
    }
    queue = sorted({*delivery.ready, *delivery.waiting})
    progress = delivery.progress
    return progress.floor, list(progress.finished), delivery.cursor, leases, queue


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_command_without_room_changes_nothing_and_works_when_there_is_some(name) -> None:
    command = COMMANDS[name]
    for call in (Call.APPEND, Call.CREATE):
        for nth in range(1, 10):
            world = prepared()
            before = picture(world)
            world.disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth))
            try:
                command(world)
            except NoSpace:
                # A redrive first opens our own group, which nobody sees.
                assert without_ours(picture(world)) == without_ours(before)
                world.disk.faults.clear()
                command(world)
            assert picture(world) != before
            after = picture(world)
            world.kill()
            assert picture(world) == after


def without_ours(found: dict[str, object]) -> dict[str, object]:
    return {
        place: (*state[:-1], {n: s for n, s in state[-1].items() if not n.startswith("__")})
        if isinstance(state, tuple)
        else state
        for place, state in found.items()
    }


def test_acks_and_reads_go_on_while_nothing_can_be_published() -> None:
    world = World(min_free_bytes=1 << 20)
    world.topic()
    world.group()
    world.publish(*[b"%d" % number for number in range(4)])
    world.disk.capacity_bytes = 1 << 20
    world.now(200)
    with pytest.raises(NoSpace):
        world.publish(b"more")
    assert values(world.drain()) == [b"0", b"1", b"2", b"3"]
    assert len(messages_of(world.fetch())) == 4


@pytest.mark.parametrize("nth", range(1, 25))
def test_letters_wait_for_room_and_arrive_once(nth) -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a", b"b")
    world.reject(*world.poll())
    for call in (Call.APPEND, Call.CREATE):
        world.disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth, times=3))
    for _ in range(5):
        world.sync()
        world.node.pump(world.now())
    world.disk.faults.clear()
    world.settle()
    assert values([one.message for one in world.letters()]) == [b"a", b"b"]
    world.kill()
    world.settle()
    assert values([one.message for one in world.letters()]) == [b"a", b"b"]


def test_a_redrive_over_several_partitions_says_which_letters_had_no_room() -> None:
    world = World()
    world.topic(partitions=2, max_retries=0)
    world.group()
    world.publish(b"a", b"b", partition=0)
    world.publish(b"c", partition=1)
    world.reject(*world.poll())
    world.settle()
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="partition-1/state/0")
    world.disk.inject(full)
    answer = world.execute(TO_GROUP)
    assert (answer.matched, answer.redriven) == (3, 2)
    assert [one[:2] for one in answer.failed] == [(1, 0)]
    assert values([one.message for one in world.letters()]) == [b"c"]


def test_closing_without_room_for_a_snapshot_loses_nothing() -> None:
    world = prepared()
    full = Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=".snapshot", times=99)
    world.disk.inject(full)
    before = picture(world)
    world.restart()
    assert picture(world) == before


@pytest.mark.parametrize("call", [Call.CREATE, Call.APPEND, Call.MAKE_DIRECTORIES])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_start_without_room_says_so_and_takes_nothing_away(call, nth) -> None:
    world = prepared()
    world.publish(b"torn")
    tree = world.disk.tree()
    last = max(
        path
        for path in tree.files
        if "orders.1" in path and "messages/0" in path and path.endswith(".log")
    )
    tree.files[last] = tree.files[last][:-1]
    world.open_on(SimDisk(tree))
    before = picture(world)
    disk = SimDisk(tree)
    disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, path_part="topics", nth=nth, times=99))
    # It may well start: then nothing had to be written.
    with suppress(NoSpace):
        Node(disk, now=world.now(), entropy=world.entropy)
    world.open_on(SimDisk(disk.tree()))
    assert picture(world) == before


@pytest.mark.parametrize(
    "message",
    [
        Message(bytes(100_000)),
        Message(b"", key=bytes(60_000), headers=(("h", bytes(40_000)),)),
        Message(None, headers=(("a", bytes(30_000)), ("b" * 20_000, b"")), key=bytes(50_000)),
    ],
    ids=["value", "key and header", "headers"],
)
def test_a_burst_of_publishes_does_not_eat_into_the_reserve(message) -> None:
    """No time passes between them, so nothing but the bytes themselves makes the broker look at the disk again."""
    reserve = 1 << 20
    world = World(SimDisk(capacity_bytes=4 * reserve), min_free_bytes=reserve)
    world.topic()
    stored = 0
    with suppress(NoSpace):
        while True:
            world.publish(message)
            stored += 1
    assert stored >= 25
    assert world.disk.free_bytes() > 0.95 * reserve


def test_a_sweep_that_has_no_room_is_still_due_and_the_others_are_done() -> None:
    world = World()
    for name in ("first", "second"):
        world.topic(2, name, segment_size_bytes=1024)
        for number in range(40):
            message = [Message(bytes(300))]
            world.publish(*message, topic=name, partition=number % 2)
    world.sync()
    world.wait(170 * 3600 * 1000)
    full = f"{world.node.partition('first', 0).messages.directory}/checkpoint"
    world.disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=full))
    with pytest.raises(NoSpace):
        world.execute(SweepDue())

    def kept() -> list[int]:
        return [one.messages for name in ("first", "second") for one in world.describe(name)]

    assert kept() == [20, 0, 0, 0]
    # Not at once: nobody has made room yet.
    assert world.node.sweeps.next_ns > world.now().monotonic_ns
    world.wait(1000)
    assert world.node.sweeps.next_ns <= world.now().monotonic_ns
    world.execute(SweepDue())
    assert kept() == [0, 0, 0, 0]
    assert world.node.sweeps.next_ns > world.now().monotonic_ns


def test_what_cannot_be_swept_is_tried_from_once_a_second_to_once_a_minute() -> None:
    sweeps, configs = Sweeps(usual_times=1), {"orders": TopicConfig()}
    sweeps.plan("orders", configs["orders"], 0)

    def wait_after(refused: list[Due]) -> float:
        """How long it waits, in seconds, if that much of what is due has no room."""
        now_ns = int(sweeps.next_ns)
        assert sweeps.take_due(configs, now_ns) == [Due("orders", Sweep.RETENTION)]
        sweeps.put_back(refused, now_ns)
        return (sweeps.next_ns - now_ns) / 10**9

    full = [Due("orders", Sweep.RETENTION)]
    assert [wait_after(full) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [wait_after([]), wait_after(full)] == [300, 1]


def test_a_sweep_that_is_refused_again_writes_nothing_to_meta() -> None:
    world = World()
    world.topic(1, segment_size_bytes=1024)
    for _ in range(20):
        world.publish(bytes(300))
    world.sync()
    world.wait(170 * 3600 * 1000)
    full = f"{world.node.partition(TOPIC, 0).messages.directory}/checkpoint"
    world.disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=full, times=99))

    def meta() -> dict[str, bytes]:
        return {
            path: bytes(data) for path, data in world.disk.tree().files.items() if "meta" in path
        }

    found = []
    for _ in range(3):
        with pytest.raises(NoSpace):
            world.sweep()
        found.append(meta())
    assert found[1] == found[2]
    world.disk.faults.clear()
    assert world.sweep()[TOPIC].segments_removed > 0
    assert meta() != found[2]
