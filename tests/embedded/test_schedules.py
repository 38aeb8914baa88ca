"""Schedules through the library, by a clock that the test moves."""

import pytest

import penstock
from penstock.errors import AlreadyExists, NotFound, Refused
from penstock.testing import VirtualClock


@pytest.fixture
def broker():
    with penstock.Broker(clock=VirtualClock()) as broker:
        broker.create_topic("jobs", partitions=1)
        yield broker


def times(broker):
    return [one.timestamp // 1_000_000_000 - 1_767_225_600 for one in broker.read("jobs", 0)]


def test_a_message_comes_each_time(broker):
    made = broker.create_schedule("jobs", "poll", json={"a": 1}, every="15m", priority="high")
    assert made.next_due == "2026-01-01T00:15:00.000000000Z"
    broker.clock.advance("1h")
    assert times(broker) == [900, 1800, 2700, 3600]
    (first, *_) = broker.poll("jobs", "workers")
    assert (first.json(), first.priority) == ({"a": 1}, 1)


def test_a_local_hour_in_its_zone(broker):
    options = {"cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin"}
    broker.create_schedule("jobs", "morning", "x", **options)
    broker.clock.advance("5d")
    # The first is a Thursday: 8:00 in UTC of that day, of Friday, and of Monday.
    assert times(broker) == [28800, 86400 + 28800, 4 * 86400 + 28800]


def test_change_pause_run_delete(broker):
    broker.create_schedule("jobs", "s", "x", every="1h", paused=True)
    with pytest.raises(AlreadyExists):
        broker.create_schedule("jobs", "s", "x", every="1h")
    assert broker.schedule("jobs", "s").next_due is None
    assert broker.run_schedule("jobs", "s").offset == 0
    broker.change_schedule("jobs", "s", paused=False, value="y", headers={"h": "1"})
    broker.clock.advance("1h")
    assert [one.value for one in broker.read("jobs", 0)] == [b"x", b"y"]
    assert [one.version for one in broker.schedules("jobs")] == [2]
    broker.delete_schedule("jobs", "s")
    broker.clock.advance("1d")
    assert len(broker.read("jobs", 0)) == 2
    for call in (broker.schedule, broker.run_schedule, broker.delete_schedule):
        with pytest.raises(NotFound):
            call("jobs", "s")


def test_three_days_down(tmp_path):
    clock = VirtualClock()
    with penstock.Broker(tmp_path, clock=clock) as broker:
        broker.create_topic("jobs", partitions=1)
        for missed in ("latest", "all", "skip"):
            broker.create_schedule("jobs", missed, missed, every="1d", missed=missed)
    clock.advance("3d")
    clock.advance("1h")
    with penstock.Broker(tmp_path, clock=clock) as broker:
        clock.advance("1s")
        found = sorted((one.value, one.timestamp) for one in broker.read("jobs", 0))
        assert [value for value, _ in found] == [b"all", b"all", b"all", b"latest"]
        assert found[2][1] == found[3][1]


def test_wrong_arguments_are_refused_by_name(broker):
    wrong = [
        {},
        {"every": "1h", "cron": "* * * * *"},
        {"every": "1h", "timezone": "UTC"},
        {"every": 0},
        {"every": "soon"},
        {"cron": 5},
        {"cron": "* * * * *", "timezone": 3},
        {"every": "1h", "missed": "some"},
        {"every": "1h", "paused": "no"},
        {"every": "1h", "headers": 3},
        {"every": "1h", "message_key": 3},
        {"every": "1h", "ttl": "x"},
        {"every": "1h", "partition": "0"},
        {"every": "1h", "colour": "red"},
    ]
    for options in wrong:
        with pytest.raises(Refused):
            broker.create_schedule("jobs", "s", "x", **options)
    with pytest.raises(Refused):
        broker.create_schedule("jobs", "s", every="1h")
    with pytest.raises(Refused):
        broker.create_schedule("jobs", 7, "x", every="1h")
    broker.create_schedule("jobs", "s", "x", every="1h")
    for changes in (*wrong[:1], *wrong[3:-2], {"colour": "red"}, {"value": 3}):
        with pytest.raises(Refused):
            broker.change_schedule("jobs", "s", **changes)
    assert [one.version for one in broker.schedules("jobs")] == [1]
