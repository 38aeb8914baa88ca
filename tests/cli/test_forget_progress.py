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


@pytest.mark.parametrize("loss", ["directory", "*"])
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
    assert told["kept_as"] == ""
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


@pytest.mark.parametrize("log", [f"{PART}/messages", f"{PART}/state", f"{PART}/delayed", "meta"])
@pytest.mark.parametrize("content", [None, b"", b"x"])
def test_a_lost_identity_is_written_again_by_its_path(data, run, log, content):
    before = seen(data)
    identity = data / log / "identity"
    whole = identity.read_bytes()
    identity.unlink() if content is None else identity.write_bytes(content)
    assert run("log", "verify", str(data)).code == Exit.FOUND_PROBLEMS
    assert run("log", "repair", str(data)).code == Exit.OK
    assert identity.read_bytes() == whole
    assert seen(data) == before
    with penstock.Broker(data) as broker:
        assert sum(one.lag for one in broker.lag("billing")) == 0


def test_what_a_repair_mends_is_not_forgotten(data, run):
    for path in (data / PART / "state").glob("*.log"):
        path.unlink()
    done = run("log", "repair", str(data), "--forget-progress")
    assert (done.code, "forgotten" in done.out) == (Exit.OK, False)
    with penstock.Broker(data) as broker:
        assert sum(one.lag for one in broker.lag("billing")) == 0


def test_what_is_left_of_a_state_is_kept(data, run):
    """Its first segments and all snapshots are gone: no repair can say what was in them."""
    state = data / PART / "state"
    for path in state.iterdir():
        path.unlink()
    (state / "notes").write_text("mine")
    done = run("log", "repair", str(data), "--forget-progress", "--json")
    (kept,) = [
        line["kept_as"] for line in map(json.loads, done.out.splitlines()) if "kept_as" in line
    ]
    assert done.code == Exit.OK
    assert (data / kept / "notes").read_text() == "mine"


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
