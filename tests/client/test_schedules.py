"""Schedules of both clients against a server process."""

import pytest

from penstock.client import AsyncClient, Client
from penstock.errors import AlreadyExists, NotFound, Refused


def test_a_schedule_publishes_and_can_be_changed(url):
    with Client(url) as client:
        client.create_topic("s-jobs", partitions=1)
        made = client.create_schedule("s-jobs", "tick", json={"n": 1}, every="1s", ttl="1h")
        assert made.next_due is not None
        with pytest.raises(AlreadyExists):
            client.create_schedule("s-jobs", "tick", b"x", every="1s")
        with client.consumer("s-jobs", "s-jobs") as consumer:
            (message, *_) = consumer.poll(wait="60s")
        assert message.json() == {"n": 1}
        changed = client.change_schedule("s-jobs", "tick", paused=True, value="y")
        assert (changed.version, changed.next_due) == (2, None)
        assert client.schedule("s-jobs", "tick") == changed
        assert client.schedules("s-jobs") == [changed]
        end = client.run_schedule("s-jobs", "tick").offset
        assert [one.value for _, one in client.read("s-jobs")][end] == b"y"
        client.delete_schedule("s-jobs", "tick")
        with pytest.raises(NotFound):
            client.schedule("s-jobs", "tick")


def test_wrong_ones_are_refused_here_and_there(url):
    with Client(url) as client:
        client.create_topic("s-wrong", partitions=1)
        for options in (
            {},
            {"every": "1s", "cron": "@daily"},
            {"every": "1ms"},
            {"cron": "nonsense"},
            {"cron": "@daily", "timezone": "Mars"},
            {"every": "1s", "missed": "some"},
            {"every": "1s", "colour": "red"},
        ):
            with pytest.raises(Refused):
                client.create_schedule("s-wrong", "s", "x", **options)
        assert client.schedules("s-wrong") == []


async def test_the_asynchronous_client_has_them_too(url):
    async with AsyncClient(url) as client:
        await client.create_topic("s-async", partitions=2)
        options = {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "message_key": "k"}
        made = await client.create_schedule("s-async", "nightly", "x", **options)
        assert await client.schedules("s-async") == [made]
        stored = await client.run_schedule("s-async", "nightly")
        assert (stored.partition, stored.offset) == (made.partition, 0)
        changed = await client.change_schedule("s-async", "nightly", every="1d")
        assert changed.every_ms == 86_400_000
        await client.delete_schedule("s-async", "nightly")
        assert await client.schedules("s-async") == []
