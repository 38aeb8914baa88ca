"""The power goes anywhere in a transaction of a queue: what it puts and what it acks happen together, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import penstock
from penstock.sim import SimDisk
from tests.broker.world import pull_the_plug


@pytest.fixture
def opened(monkeypatch, tmp_path: Path):
    @contextmanager
    def opened_on(disk: SimDisk) -> Iterator[penstock.Queue]:
        monkeypatch.setattr("penstock.embedded.directory.RealDisk", lambda *_: disk)
        monkeypatch.setattr(SimDisk, "close", lambda _: None, raising=False)
        with penstock.open(tmp_path, auto_ack=False, fsync="interval") as queue:
            yield queue

    return opened_on


def test_a_power_cut_leaves_all_of_a_transaction_or_nothing(opened, effort) -> None:
    before = SimDisk()
    with opened(before) as queue:
        queue.put(b"job")
        # Makes the topic of decisions.
        with queue.transaction():
            pass

    def scenario(disk: SimDisk) -> None:
        with opened(disk) as queue:
            job = queue.get()
            assert job is not None
            with suppress(RuntimeError), queue.transaction() as t:
                t.put(b"never")
                t.ack(job)
                raise RuntimeError
            with queue.transaction() as t:
                t.put(b"first")
                t.put(b"second")
                t.ack(job)
            disk.mark("committed")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        with opened(disk) as queue:
            found = []
            while (message := queue.get()) is not None:
                found.append(message.value)
                queue.ack(message)
        done, undone = [b"first", b"second"], [b"job"]
        assert found == done or (found == undone and "committed" not in marks), (found, marks)

    assert pull_the_plug(scenario, check, effort, start=before.tree(), is_long=True) > 20
