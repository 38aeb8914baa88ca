"""Schedules: every occurrence once, on time, whatever stops the node or sets the clock in between."""

import random

import msgspec
import pytest

from penstock.api.journeys import DescribeJourney, EventType
from penstock.api.publish import Publish
from penstock.api.schedules import (
    EVERY_MS_MAX,
    SCHEDULE_BYTES_MAX,
    SCHEDULE_HEADER,
    SCHEDULES_MAX,
    UTC_NAME,
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    Missed,
    RunSchedule,
    Timing,
)
from penstock.errors import AlreadyExists, InvalidName, NotFound, Refused, TooLarge
from penstock.model import Message, Priority
from penstock.runtime.zones import SystemZones
from penstock.schedules.timing import next_due
from penstock.sim import SimDisk

from .test_delay import stored
from .world import MS, TOPIC, World, pull_the_plug, values

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
HOURLY = Timing("", HOUR)


def made(partitions: int = 1, **settings: object) -> World:
    world = World(zones=SystemZones())
    world.topic(partitions, **settings)
    return world


def create(world: World, key: str = "report", timing: Timing = HOURLY, **options: object):
    message = options.pop("message", Message(b"run"))
    partition = options.pop("partition", None)
    contents = {
        "value": message.value,
        "message_key": message.key,
        "headers": message.headers,
        "priority": message.priority,
    }
    when = {"cron": timing.cron or None, "every_ms": timing.every_ms or None}
    zone = None if timing.timezone == UTC_NAME else timing.timezone
    return world.execute(
        CreateSchedule(
            TOPIC, key, partition=partition, timezone=zone, **when, **contents, **options
        )
    )


def change(world: World, key: str = "report", **changes: object):
    return world.execute(ChangeSchedule(TOPIC, key, **changes))


def see(world: World, key: str = "report"):
    return world.execute(GetSchedule(TOPIC, key))


def dues(world: World, partition: int = 0) -> list[int]:
    """The due times of what was published, in ms after the world began."""
    return [(one.timestamp - BEGIN_NS) // MS for one in stored(world, partition)]


BEGIN_NS = World().wall_ns


def test_a_message_comes_each_time_and_says_which_schedule_it_is_of() -> None:
    world = made()
    message = Message(b"run", key=b"k", headers=(("a", b"1"),), priority=Priority.HIGH)
    create(world, message=message, ttl_ms=5000)
    for _ in range(3):
        world.wait(HOUR)
    found = stored(world)
    assert dues(world) == [HOUR, 2 * HOUR, 3 * HOUR]
    assert [(one.value, one.key, one.priority) for one in found] == [(b"run", b"k", 1)] * 3
    assert [*found[0].headers] == [("a", b"1"), (SCHEDULE_HEADER, b"report")]
    assert found[0].expires_at == found[0].timestamp + 5000 * MS


def test_it_is_never_early() -> None:
    world = made()
    create(world)
    world.wait(HOUR - 1)
    assert dues(world) == []
    assert world.node.next_due_ns() == world.monotonic_ns + MS
    world.wait(1)
    assert dues(world) == [HOUR]


def test_a_cron_expression_counts_in_its_zone() -> None:
    world = made()
    # The world begins on 2023-11-14 at 22:13:20 in UTC, which is 23:13:20 in Berlin.
    create(world, timing=Timing("0 9 * * *", 0, "Europe/Berlin"))
    due = see(world).next_due_ns
    assert due is not None
    world.wait((due - BEGIN_NS) / MS)
    assert dues(world) == [9 * HOUR + 46 * MINUTE + 40_000]


@pytest.mark.parametrize("stop", [World.restart, World.kill])
@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.LATEST, [HOUR, 73 * HOUR]),
        (Missed.ALL, [hour * HOUR for hour in range(1, 74)]),
        (Missed.SKIP, [HOUR]),
    ],
)
def test_what_is_missed_in_three_days(missed, expected, stop) -> None:
    world = made()
    create(world, missed=missed)
    world.wait(HOUR)
    world.sync()
    world.wall_ns += 3 * DAY * MS + 10 * MINUTE * MS
    stop(world)
    world.wait(0)
    assert dues(world) == expected
    world.wait(50 * MINUTE)
    assert dues(world) == [*expected, 74 * HOUR]


def test_skip_takes_one_that_is_a_little_late() -> None:
    world = made()
    create(world, missed=Missed.SKIP)
    world.wait(HOUR + 59_000)
    assert dues(world) == [HOUR]
    world.wait(HOUR + 2000)
    assert dues(world) == [HOUR]
    world.wait(HOUR - 61_000)
    assert dues(world) == [HOUR, 3 * HOUR]


@pytest.mark.parametrize("stop", [World.restart, World.kill])
def test_what_was_skipped_does_not_come_after_all(stop) -> None:
    """The clock is set back behind it: without a record it would be on time then."""
    world = made()
    create(world, missed=Missed.SKIP)
    world.wall_ns += (HOUR + 5 * MINUTE) * MS
    world.wait(0)
    world.sync()
    world.wall_ns -= 5 * MINUTE * MS
    stop(world)
    world.wait(0)
    assert dues(world) == []
    world.wait(HOUR)
    assert dues(world) == [2 * HOUR]


def test_more_than_fits_into_a_step_comes_in_several() -> None:
    world = made()
    create(world, timing=Timing("", 1000), missed=Missed.ALL)
    world.now(5000 * 1000)
    while world.node.fire(world.now()):
        pass
    assert dues(world) == [1000 * number for number in range(1, 5001)]


def test_a_clock_that_is_set_back_has_nothing_come_twice() -> None:
    world = made()
    create(world)
    world.wait(2 * HOUR)
    world.wall_ns -= 2 * HOUR * MS
    world.wait(0)
    for _ in range(2):
        world.wait(HOUR)
    assert dues(world) == [2 * HOUR]
    world.sync()
    world.kill()
    world.wait(HOUR)
    assert dues(world) == [2 * HOUR, 3 * HOUR]


def test_a_clock_that_was_ahead_by_mistake_is_got_over_by_the_same_timing_once_more() -> None:
    world = made()
    create(world)
    world.wait(30 * DAY)
    world.wall_ns -= 30 * DAY * MS
    assert see(world).next_due_ns == BEGIN_NS + (30 * DAY + HOUR) * MS
    assert change(world, every_ms=HOUR).next_due_ns == world.wall_ns + HOUR * MS
    world.wait(HOUR)
    assert dues(world) == [30 * DAY, HOUR]
    world.sync()
    world.kill()
    assert see(world).next_due_ns == world.wall_ns + HOUR * MS


def test_an_hour_that_comes_twice() -> None:
    world = made()
    # 2023-11-05 would be past: New York sets its clocks back on 2024-11-03 at 06:00 UTC.
    begin_ns = 1_730_606_400 * 1_000_000_000  # 2024-11-03T04:00:00Z, midnight there.
    world.wall_ns = begin_ns
    create(world, "fixed", Timing("30 1 * * *", 0, "America/New_York"))
    create(world, "each", Timing("30 * * * *", 0, "America/New_York"))
    for _ in range(16):
        world.wait(HOUR / 4)
    found = {
        key: [
            (one.timestamp - begin_ns) // MS / HOUR
            for one in stored(world)
            if (SCHEDULE_HEADER, key) in one.headers
        ]
        for key in (b"fixed", b"each")
    }
    assert found == {b"fixed": [1.5], b"each": [0.5, 1.5, 2.5, 3.5]}


def test_a_pause_has_nothing_come_and_nothing_made_up_for() -> None:
    world = made()
    create(world, missed=Missed.ALL)
    world.now(2 * HOUR)
    paused = change(world, is_paused=True)
    assert paused.next_due_ns is None
    assert dues(world) == [HOUR, 2 * HOUR], "what was due before it was paused"
    world.wait(2 * HOUR)
    resumed = change(world, is_paused=False)
    assert resumed.version == 3
    assert resumed.next_due_ns == BEGIN_NS + 5 * HOUR * MS
    world.wait(HOUR)
    assert dues(world) == [HOUR, 2 * HOUR, 5 * HOUR]


def test_another_message_keeps_the_times_and_another_timing_counts_from_now() -> None:
    world = made()
    create(world)
    world.wait(HOUR + HOUR / 2)
    assert change(world, value=b"new").next_due_ns == BEGIN_NS + 2 * HOUR * MS
    world.wait(HOUR / 2)
    assert change(world, every_ms=10 * MINUTE).next_due_ns == world.wall_ns + 10 * MINUTE * MS
    world.wait(10 * MINUTE)
    found = change(world, cron="0 0 * * *", timezone="Europe/Berlin")
    assert (found.cron, found.every_ms, found.timezone) == ("0 0 * * *", None, "Europe/Berlin")
    assert dues(world) == [HOUR, 2 * HOUR, 2 * HOUR + 10 * MINUTE]
    assert values(stored(world)) == [b"run", b"new", b"new"]


def test_a_run_now_is_no_occurrence() -> None:
    world = made()
    create(world, is_paused=True)
    published = world.execute(RunSchedule(TOPIC, "report"))
    assert (published.partition, published.offset) == (0, 0)
    assert stored(world)[0].timestamp == world.wall_ns
    assert see(world).last_due_ns is None
    change(world, is_paused=False)
    world.wait(HOUR)
    assert dues(world) == [0, HOUR]


def test_a_deleted_schedule_publishes_nothing_and_its_key_is_free() -> None:
    world = made()
    create(world)
    world.wait(HOUR)
    world.execute(DeleteSchedule(TOPIC, "report"))
    world.wait(HOUR)
    assert world.node.next_due_ns() == float("inf")
    assert dues(world) == [HOUR]
    with pytest.raises(NotFound):
        see(world)
    world.kill()
    assert world.execute(ListSchedules(TOPIC)) == []
    create(world)
    world.wait(HOUR)
    assert dues(world) == [HOUR, 3 * HOUR]


def test_a_topic_takes_its_schedules_along() -> None:
    world = made()
    create(world)
    world.delete()
    world.topic()
    assert world.execute(ListSchedules(TOPIC)) == []


def test_schedules_are_spread_by_key_and_found_in_every_partition() -> None:
    world = made(4)
    for number in range(20):
        create(world, f"s{number:02}")
    create(world, "there", partition=3)
    same = create(world, "with-key", message=Message(b"x", key=b"customer 7")).partition
    assert world.publish(Message(b"y", key=b"customer 7"))[0].partition == same
    found = world.execute(ListSchedules(TOPIC))
    assert [one.key for one in found] == [
        *(f"s{number:02}" for number in range(20)),
        "there",
        "with-key",
    ]
    assert {one.partition for one in found} == {0, 1, 2, 3}
    assert see(world, "there").partition == 3
    with pytest.raises(AlreadyExists):
        create(world, "there", partition=1)
    world.grow(6)
    world.wait(HOUR)
    assert len(stored(world, same)) == 1 + sum(one.partition == same for one in found)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"timing": Timing()}, "cron"),
        ({"timing": Timing("* * * * *", 1000)}, "cron"),
        ({"timing": Timing("61 * * * *")}, "cron"),
        ({"timing": Timing("", 999)}, "every"),
        ({"timing": Timing("", -5)}, "every"),
        ({"timing": Timing("", EVERY_MS_MAX + 1)}, "every"),
        ({"timing": Timing("", 1000, "Europe/Berlin")}, "timezone"),
        ({"timing": Timing("* * * * *", 0, "Europe/Nowhere")}, "timezone"),
        ({"ttl_ms": -1}, "ttl"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(wrong, field) -> None:
    world = made()
    with pytest.raises(Refused) as caught:
        create(world, **wrong)
    assert caught.value.fields["field"] == field
    assert world.execute(ListSchedules(TOPIC)) == []
    create(world)
    before = see(world)
    timing = wrong.get("timing")
    changes = {} if timing is None else msgspec.structs.asdict(timing)
    if "ttl_ms" in wrong:
        changes = wrong
    if changes:
        with pytest.raises(Refused):
            change(world, **changes)
    assert see(world) == before


def test_a_change_of_nothing_is_refused() -> None:
    world = made()
    create(world)
    with pytest.raises(Refused):
        change(world)
    assert see(world).version == 1


def test_limits() -> None:
    world = made()
    with pytest.raises(TooLarge, match=str(SCHEDULE_BYTES_MAX)):
        create(world, message=Message(b"x" * (SCHEDULE_BYTES_MAX + 1)))
    with pytest.raises(InvalidName):
        create(world, "a/b")
    with pytest.raises(Refused):
        create(world, message=Message(b"", priority=9))
    with pytest.raises(NotFound):
        create(world, partition=7)
    for number in range(SCHEDULES_MAX):
        create(world, f"s{number}")
    with pytest.raises(TooLarge, match=str(SCHEDULES_MAX)):
        create(world, "one-too-many")
    world.wait(HOUR)
    while world.node.fire(world.now()):
        pass
    assert len(stored(world)) == SCHEDULES_MAX


def test_a_zone_that_is_not_known_any_more_is_said_and_stops_nothing_else() -> None:
    world = made()
    create(world, "zoned", Timing("* * * * *", 0, "Europe/Berlin"))
    create(world, "plain", Timing("", MINUTE))
    del world.options["zones"]
    world.kill()
    world.wait(MINUTE)
    assert dues(world) == [MINUTE]
    assert "Europe/Berlin" in see(world, "zoned").problem


def test_the_plug_pulled_at_every_write(effort) -> None:
    """Nothing twice and nothing lost, whatever a power cut leaves of messages and journal."""

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        create(world, missed=Missed.ALL)
        world.sync()
        disk.mark("made")
        world.wait(HOUR)
        world.wait(HOUR)
        world.sync()
        world.wait(HOUR)
        change(world, is_paused=True)
        world.sync()
        disk.mark("paused")
        world.wait(HOUR)
        change(world, is_paused=False, value=b"new")
        world.node.partition(TOPIC, 0).take_snapshot()
        disk.mark("resumed")
        world.wait(HOUR)
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        if "made" not in marks:
            return
        world = World(disk)
        world.wall_ns = BEGIN_NS + 10 * HOUR * MS
        is_paused = see(world).is_paused
        for _ in range(2):
            world.wait(0)
            found = dues(world)
            # The fourth hour may have passed in a pause, of which the power cut took the record.
            others = [due for due in found if due != 4 * HOUR]
            expected = [hour * HOUR for hour in range(1, 11) if hour != 4]
            if is_paused:
                expected = [hour * HOUR for hour in range(1, 4)]
            assert others == expected, marks
            assert len(found) - len(others) <= ("paused" not in marks)
            world.sync()
            world.kill()

    pull_the_plug(scenario, check, effort, is_long=True)


def test_a_publish_of_a_client_cannot_pass_for_an_occurrence() -> None:
    world = made()
    create(world)
    world.execute(Publish(TOPIC, [Message(b"x", headers=((SCHEDULE_HEADER, b"report"),))]))
    assert see(world).last_due_ns is None


def test_the_journey_of_an_occurrence_begins_with_its_arrival() -> None:
    world = made()
    create(world)
    world.wait(HOUR)
    found = world.execute(DescribeJourney(TOPIC, 0, 0))
    assert [one.event_type for one in found.spans] == [EventType.RECEIVED, EventType.PERSISTED]


ZONED = (
    Timing("30 2 * * *", 0, "Europe/Berlin"),
    Timing("15 */2 * * *", 0, "America/New_York"),
    Timing("45 1,2 * * *", 0, "Australia/Lord_Howe"),
    Timing("", 7 * HOUR),
)
# Before clocks are set in all three zones: 2026-10-01.
AUTUMN_NS = 1_790_812_800 * 1_000_000_000


@pytest.mark.parametrize("seed", range(6))
def test_kills_power_cuts_and_clock_steps_around_changes_of_the_clock(seed) -> None:
    """Every due time from the first to the last is there once, in order, whatever happened in between."""
    entropy = random.Random(seed)
    world = made()
    world.wall_ns = AUTUMN_NS
    for number, timing in enumerate(ZONED):
        create(world, f"s{number}", timing, missed=Missed.ALL)
    world.sync()
    for _ in range(150):
        act = entropy.choice(("wait", "wait", "wait", "sync", "kill", "cut", "stop", "back", "on"))
        if act == "sync":
            world.sync()
        elif act in {"kill", "cut", "stop"}:
            world.now(entropy.randint(0, 8) * HOUR)
            {"kill": World.kill, "cut": World.lose_unsynced, "stop": World.restart}[act](world)
        elif act in {"back", "on"}:
            by = entropy.randint(1, 5) * HOUR * MS
            world.wall_ns += by if act == "on" else -by
        world.wait(entropy.randint(1, 4 * HOUR))
    latest_ns = world.wall_ns = max(world.wall_ns, *(one.next_due_ns for one in listed(world)))
    world.wait(0)
    found = stored(world)
    for number, timing in enumerate(ZONED):
        key = f"s{number}".encode()
        published = [one.timestamp for one in found if (SCHEDULE_HEADER, key) in one.headers]
        expected, after_ns = [], AUTUMN_NS
        while (due_ns := next_due(timing, AUTUMN_NS, after_ns, SystemZones())) <= latest_ns:
            expected.append(due_ns)
            after_ns = due_ns
        assert published == expected
        assert len(expected) > 10


def listed(world: World):
    return world.execute(ListSchedules(TOPIC))
