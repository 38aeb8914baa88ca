"""`penstock topic adopt`: what a start set aside comes back with its messages and its groups."""

import json
import shutil

import pytest

import penstock
from penstock.cli.exits import Exit
from penstock.errors import DamagedFile


@pytest.fixture
def data(tmp_path):
    """A topic of two partitions, of which a group has finished a message."""
    root = tmp_path / "data"
    with penstock.Broker(root) as broker:
        broker.create_topic("orders", partitions=2, max_retries=7)
        for number in range(2):
            broker.publish_many("orders", [b"a", b"b"], partition=number)
        broker.ack(broker.poll("orders", "billing", limit=1))
    return root


def left(root):
    """All messages, and how many of them the group has not finished."""
    with penstock.Broker(root) as broker:
        parts = range(len(broker.describe("orders")))
        values = [one.value for number in parts for one in broker.read("orders", number)]
        return values, sum(one.lag for one in broker.lag("billing"))


def set_all_aside(root):
    shutil.rmtree(root / "meta")
    (root / "topics" / "default").rename(root / "set-aside")


def test_without_meta_a_broker_refuses_and_adoption_brings_everything_back(data, run):
    before = left(data)
    assert before == ([b"a", b"b", b"a", b"b"], 3)
    shutil.rmtree(data / "meta")
    with pytest.raises(DamagedFile, match="penstock topic adopt"):
        penstock.Broker(data)
    (data / "topics" / "default").rename(data / "set-aside")
    done = run("topic", "adopt", str(data / "set-aside" / "orders.1"), "--json")
    assert done.code == Exit.OK
    told = json.loads(done.out)
    assert (told["name"], told["id"], told["partitions"], told["faulty"]) == ("orders", 1, 2, [])
    assert left(data) == before
    assert list((data / "set-aside").iterdir()) == []


def test_a_topic_comes_back_under_another_name_with_settings(data, run):
    set_all_aside(data)
    where = ["set-aside/orders.1", "--data", str(data)]
    done = run("topic", "adopt", *where, "--name", "old", "--set", "max_retries=9")
    assert done.code == Exit.OK
    assert "old: 2 partitions" in done.out
    with penstock.Broker(data) as broker:
        assert broker.topics() == ["old"]
        assert sum(one.messages for one in broker.describe("old")) == 4
        broker.create_topic("orders")


def test_what_cannot_be_adopted_is_refused_and_stays(data, run):
    def refused(path, *options):
        done = run("topic", "adopt", str(data / path), *options)
        assert done.code != Exit.OK
        assert "Traceback" not in done.err
        return done.err

    shutil.copytree(data / "topics" / "default" / "orders.1", data / "set-aside" / "orders.1")
    assert "exists already" in refused("set-aside/orders.1")
    assert "in use by the topic orders" in refused("set-aside/orders.1", "--name", "x")
    (data / "set-aside" / "orders.1").rename(data / "set-aside" / "orders.5")
    assert "belongs to log" in refused("set-aside/orders.5", "--name", "x")
    (data / "set-aside" / "empty.6").mkdir()
    assert "with something in it" in refused("set-aside/empty.6")
    (data / "set-aside" / "notes").mkdir()
    (data / "set-aside" / "notes" / "x").write_text("x")
    assert "NAME.ID" in refused("set-aside/notes")
    (data / "set-aside" / "notes").rename(data / "set-aside" / "notes.8")
    assert "no partition-0" in refused("set-aside/notes.8")
    assert "internal" in refused("set-aside/orders.5", "--name", "__x")
    shutil.rmtree(data / "set-aside" / "orders.5" / "partition-0")
    assert "partition-0" in refused("set-aside/orders.5", "--name", "x")
    assert sorted(one.name for one in (data / "set-aside").iterdir()) == [
        "empty.6",
        "notes.8",
        "orders.5",
    ]
    assert left(data)
    with penstock.Broker(data):
        assert "already open" in refused("set-aside/orders.5", "--name", "x")


def test_a_topic_that_saw_a_later_meta_is_adopted_in_its_place(data, run, tmp_path):
    before = left(data)
    shutil.copytree(data / "meta", tmp_path / "older")
    with penstock.Broker(data) as broker:
        broker.create_topic("later", partitions=1)
        broker.add_partitions("orders", 3)
        broker.publish("orders", b"c", partition=2)
    with penstock.Broker(data) as broker:
        broker.publish("orders", b"c", partition=0)
    shutil.rmtree(data / "meta")
    (tmp_path / "older").rename(data / "meta")
    with penstock.Broker(data) as broker:
        changed, untouched = broker.describe("orders")
        assert "older copy" in changed.fault
        assert untouched.fault == ""
    assert run("topic", "adopt", str(data / "topics" / "default" / "orders.1")).code == Exit.OK
    aside = data / "set-aside"
    assert sorted(one.name for one in aside.iterdir()) == ["later.2", "orders.1-partition-2"]
    assert run("topic", "adopt", str(aside / "orders.1-partition-2")).code == Exit.OK
    assert run("topic", "adopt", str(aside / "later.2")).code == Exit.OK
    assert before[1] == 3
    assert left(data) == ([b"a", b"b", b"c", b"a", b"b", b"c"], 5)
    with penstock.Broker(data) as broker:
        assert broker.topics() == ["later", "orders"]


def test_a_topic_comes_back_with_the_settings_that_are_kept_beside_it(data, run):
    with penstock.Broker(data) as broker:
        broker.configure_topic("orders", retention_hours=5)
        broker.create_topic("mails", partitions=1, max_retries=9)
    set_all_aside(data)
    assert run("topic", "adopt", str(data / "set-aside" / "orders.1")).code == Exit.OK
    more = "--set", "ttl_ms=7"
    assert run("topic", "adopt", str(data / "set-aside" / "mails.2"), *more).code == Exit.OK
    with penstock.Broker(data) as broker:
        orders, mails = map(broker.settings, ("orders", "mails"))
    assert (orders["max_retries"], orders["retention_hours"]) == (7, 5)
    assert (mails["max_retries"], mails["ttl_ms"]) == (9, 7)


@pytest.mark.parametrize("content", [b"", b"{}\n00000000\n", None])
def test_settings_that_cannot_be_read_are_told_and_have_to_be_said(data, run, content):
    path = data / "topics" / "default" / "orders.1" / "settings"
    kept = path.read_bytes()
    path.write_bytes(
        kept.replace(b'"max_retries":7', b'"max_retries":6') if content is None else content
    )
    set_all_aside(data)
    where = "topic", "adopt", str(data / "set-aside" / "orders.1")
    refused = run(*where)
    assert refused.code != Exit.OK
    assert "settings" in refused.err
    assert run(*where, "--set", "max_retries=8").code == Exit.OK
    with penstock.Broker(data) as broker:
        assert broker.settings("orders")["max_retries"] == 8
    assert b'"max_retries":8' in path.read_bytes()


def test_what_meta_does_not_know_is_adopted_from_where_it_lies(data, run):
    before = left(data)
    shutil.copytree(data / "topics", data.parent / "topics")
    with penstock.Broker(data) as broker:
        broker.delete_topic("orders")
        broker.create_topic("other", partitions=1)
    shutil.copytree(
        data.parent / "topics" / "default" / "orders.1", data / "topics" / "default" / "orders.1"
    )
    assert run("topic", "adopt", str(data / "topics" / "default" / "orders.1")).code == Exit.OK
    assert left(data) == before
