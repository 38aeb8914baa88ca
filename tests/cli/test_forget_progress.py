"""`penstock log repair --forget-progress`: a partition that has lost its state goes on with its messages."""

import json
import shutil

import pytest

import penstock
from penstock.api.delays import ListDelayed
from penstock.cli.exits import Exit

PART = "topics/default/orders.1/partition-0"


@pytest.fixture
def data(tmp_path):
    """Two partitions, of which a group has finished all messages; one message is delayed."""
    root = tmp_path / "data"
    with penstock.Broker(root) as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(2):
            broker.publish_many("orders", [b"%d" % number, b"b", b"c"], partition=number)
        broker.publish("orders", b"later", partition=0, delay="5d")
        for one in broker.poll("orders", "billing", limit=20):
            broker.ack(one)
    return root


def seen(root):
    """What is in partition 0 by offset and time, and its delayed messages."""
    with penstock.Broker(root) as broker:
        stored = [(one.offset, one.timestamp, one.value) for one in broker.read("orders", 0)]
        found = broker.driver.execute(ListDelayed("orders")).messages
        return stored, [(one.id, one.due_ns, one.message.value) for one in found]


@pytest.mark.parametrize("loss", ["directory", "identity", "*"])
def test_messages_keep_offsets_and_times_and_groups_begin_at_the_start(data, run, loss):
    before = seen(data)
    state = data / PART / "state"
    if loss == "directory":
        shutil.rmtree(state)
    else:
        for path in state.glob(loss):
            path.unlink()
    with penstock.Broker(data) as broker:
        assert "state" in broker.describe("orders")[0].fault
    done = run("log", "repair", str(data), "--forget-progress", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    (told,) = [line for line in lines if line["type"] == "forgotten"]
    assert (told["topic"], told["partition"], told["groups"]) == ("orders", 0, ["billing"])
    assert bool(told["kept_as"]) == (loss not in {"directory", "*"})
    assert done.code == Exit.OK
    assert seen(data) == before
    with penstock.Broker(data) as broker:
        assert [one.value for one in broker.poll("orders", "billing", limit=20)] == [
            b"0",
            b"b",
            b"c",
        ]
        assert broker.publish("orders", b"more", partition=0).offset == 3
    assert run("log", "verify", str(data)).code == Exit.OK


def test_what_a_repair_mends_is_not_forgotten(data, run):
    for path in (data / PART / "state").glob("*.log"):
        path.unlink()
    done = run("log", "repair", str(data), "--forget-progress")
    assert (done.code, "forgotten" in done.out) == (Exit.OK, False)
    with penstock.Broker(data) as broker:
        assert sum(one.lag for one in broker.lag("billing")) == 0


def test_a_whole_directory_loses_nothing(data, run):
    with penstock.Broker(data) as broker:
        before = broker.lag("billing")
    done = run("log", "repair", str(data), "--forget-progress")
    assert (done.code, "forgotten" in done.out) == (Exit.OK, False)
    with penstock.Broker(data) as broker:
        assert broker.lag("billing") == before


def test_it_is_for_a_data_directory_and_no_dry_run(data, run):
    assert run("log", "repair", str(data), "--forget-progress", "--dry-run").code == Exit.USAGE
    part = run("log", "repair", str(data / PART), "--forget-progress")
    assert part.code == Exit.USAGE
