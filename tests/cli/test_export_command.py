"""`penstock export` from one server, and `penstock import` into another: everything once, however often."""

import json
import shutil
import time

import pytest
from msgspec.structs import replace

from penstock.cli import export
from penstock.cli.exits import Exit
from penstock.client import Client
from penstock.client.http_page import client_call, http_path
from penstock.testing.server import running_server

from .test_replay_command import fill

pytestmark = pytest.mark.tier("test")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("other") / "data") as address:
        yield address


def contents(client, topic):
    """What a topic holds, but for offsets."""
    found = {}
    for partition, one in client.read(topic):
        row = (one.value, one.key, one.headers, one.timestamp, one.priority)
        found.setdefault(partition, []).append(row)
    return found


def test_a_topic_moves_to_another_broker(call, client, other, tmp_path):
    client.create_topic("moved", partitions=2, max_retries=7, retention_hours=99)
    fill(client, "moved", 2000)
    client.publish("moved", b"later", key=b"k1", headers={"h": b"x"}, delay="1h", priority="low")
    client.publish("moved", b"once", delay="2h", delay_key=b"d")
    client.commit("movers", {"moved": {0: 400, 1: 30}})
    folder = tmp_path / "moved.export"
    planned = json.loads(call("export", "moved", "--to", str(folder), "--dry-run", "--json").out)
    assert (planned["offsets"], planned["delayed"], planned["groups"]) == (2000, 2, ["movers"])
    assert planned["bytes"] >= 2000
    assert not folder.exists()
    made = call("export", "moved", "--to", str(folder), "--rate", "100000")
    assert made.code == Exit.OK, made.err
    assert [one.name for one in tmp_path.glob("*.export*")] == ["moved.export"]
    again = call("export", "moved", "--to", str(folder))
    assert again.code == Exit.REFUSED
    assert "is there already" in again.err
    words = ["import", str(folder)]
    with Client(other) as there:
        for _ in range(2):
            done = call(*words, "--server", other, "--json")
            assert done.code == Exit.OK, done.err
        assert json.loads(done.out)["messages"] == 0
        assert contents(there, "moved") == contents(client, "moved")
        assert there.topic("moved").config == client.topic("moved").config
        assert there.offsets("movers")["moved"] == {0: 400, 1: 30}
        waiting = {one.value: one for one in there.delayed("moved")}
        assert sorted(waiting) == [b"later", b"once"]
        assert (waiting[b"later"].key, waiting[b"later"].priority) == (b"k1", 3)
        before = {one.value: one.deliver_at for one in client.delayed("moved")}
        assert {value: one.deliver_at for value, one in waiting.items()} == before
        noted = json.dumps(client_call(there, http_path("admin", "audit")))
        assert "of moved into moved: stopped, " in noted
        refused = call(*words, "--topic", "moved", "--server", other, "--dry-run")
        assert refused.code == Exit.OK  # It is this import, and it is done.


def test_message_that_becomes_due_meanwhile_is_exported_once(call, client, tmp_path):
    client.create_topic("due", partitions=1)
    client.publish_many("due", [b"%d" % number for number in range(200)])
    client.publish("due", b"late", delay="1s")
    folder = tmp_path / "due.export"
    # Slow enough that the message comes while the others are written.
    made = json.loads(call("export", "due", "--to", str(folder), "--rate", "80", "--json").out)
    assert (made["offsets"], made["delayed"]) == (200, 1)
    assert client.topic("due").total_messages == 201
    assert b"bGF0ZQ==" in (folder / "delayed.jsonl").read_bytes()


def test_message_that_comes_between_two_looks_is_in_its_partition(client, monkeypatch):
    client.create_topic("between", partitions=1)
    client.publish("between", b"late", delay="200ms")
    client.publish("between", b"later", delay="1h")

    list_pending = export.pending

    def wait_for_late(*_):
        listed = [*list_pending(*_)]
        while not client.topic("between").total_messages:
            time.sleep(0.01)
        return iter(listed)

    monkeypatch.setattr(export, "pending", wait_for_late)
    found = export.survey(client, "between")
    assert [one.end for one in found.exported.partitions] == [1]
    assert [one.value for one in found.waiting] == [b"later"]


def test_what_an_export_leaves_out_is_told(call, client, monkeypatch, tmp_path):
    client.create_topic("planned", partitions=1)
    client.create_schedule("planned", "nightly", b"report", cron="0 3 * * *")
    client.publish("planned", b"lost", delay="1h")
    list_pending = export.pending

    def without_contents(*_):
        return (replace(one, message=None) for one in list_pending(*_))

    monkeypatch.setattr(export, "pending", without_contents)
    left_out = ["schedule nightly", "delayed messages that cannot be read: 1"]
    words = ("export", "planned", "--to", str(tmp_path / "planned.export"), "--json")
    planned, made = call(*words, "--dry-run"), call(*words)
    assert json.loads(planned.out)["left_out"] == json.loads(made.out)["left_out"] == left_out
    assert (made.code, json.loads(made.out)["delayed"]) == (Exit.OK, 0)
    assert made.err.splitlines() == [
        f"left out of the export of planned: {one}" for one in left_out
    ]


def test_offsets_of_groups_are_counted_without_what_is_gone(call, client, other, tmp_path):
    client.create_topic("trimmed", partitions=1)
    fill(client, "trimmed", 50)
    client.commit("readers", {"trimmed": {0: 20}})
    folder = tmp_path / "trimmed.export"
    assert call("export", "trimmed", "--to", str(folder)).code == Exit.OK
    file = folder / "topic.json"
    said = json.loads(file.read_text())
    said["partitions"][0]["start"] = 5  # As if retention had taken what is before.
    file.write_text(json.dumps(said))
    assert call("import", str(folder), "--server", other).code == Exit.OK
    with Client(other) as there:
        assert [int(one.value) for _, one in there.read("trimmed")] == [*range(5, 50)]
        assert there.offsets("readers")["trimmed"] == {0: 15}


def test_a_group_that_read_on_during_the_export_begins_at_its_end(call, client, other, tmp_path):
    client.create_topic("overtaken", partitions=1)
    fill(client, "overtaken", 50)
    client.commit("quick", {"overtaken": {0: 50}})
    folder = tmp_path / "overtaken.export"
    assert call("export", "overtaken", "--to", str(folder)).code == Exit.OK
    file = folder / "topic.json"
    said = json.loads(file.read_text())
    said["partitions"][0]["end"] = (
        40  # As if the last ten had come later, which the group has read.
    )
    file.write_text(json.dumps(said))
    done = call("import", str(folder), "--server", other)
    assert done.code == Exit.OK, done.err
    with Client(other) as there:
        assert there.topic("overtaken").total_messages == 40
        assert there.offsets("quick")["overtaken"] == {0: 40}


def test_an_import_of_delayed_messages_alone_is_done_once(call, client, other, tmp_path):
    client.create_topic("waiting", partitions=1)
    client.publish("waiting", b"soon", delay="1h")
    client.publish("waiting", b"later", delay="2h")
    folder = tmp_path / "waiting.export"
    assert call("export", "waiting", "--to", str(folder)).code == Exit.OK
    words = ["import", str(folder), "--server", other]
    assert call(*words).code == Exit.OK
    with Client(other) as there:
        (first,) = [one for one in there.delayed("waiting") if one.value == b"soon"]
        there.reschedule("waiting", first.partition, first.offset, delay=0)
        while not there.topic("waiting").total_messages:
            time.sleep(0.01)
        done = call(*words)
        assert done.code == Exit.OK, done.err
        assert there.topic("waiting").total_messages == 1
        assert [one.value for one in there.delayed("waiting")] == [b"later"]


def test_what_is_not_whole_or_not_free_is_one_line(call, client, other, tmp_path):
    client.create_topic("spoilt", partitions=1)
    fill(client, "spoilt", 50)
    for _ in range(2):
        client.publish("spoilt", b"late", delay="1h")
    folder = tmp_path / "spoilt.export"
    assert call("export", "spoilt", "--to", str(folder)).code == Exit.OK

    def changed(name, change, what="partition-00000.batches"):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        file = copy / what
        file.write_bytes(change(file.read_bytes()))
        return ["import", str(copy), "--server", other]

    for words, why in (
        (changed("cut", lambda data: data[:-8]), "is not whole"),
        (changed("bad", lambda data: data[:-9] + b"\xff" + data[-8:]), "is damaged"),
        (changed("few", lambda text: text[: text.index(b"\n")], "delayed.jsonl"), "is not whole"),
        (changed("torn", lambda text: text[:-9], "delayed.jsonl"), "is damaged"),
        (["import", str(tmp_path)], "is no export"),
        (["import", str(tmp_path / "missing")], "is no export: topic.json: No such file"),
        (["import", str(folder)], "has messages already"),
        (["export", "nowhere", "--to", str(tmp_path / "new")], "there is no topic nowhere"),
        (["export", "spoilt.dlq", "--to", str(tmp_path / "new")], "penstock dlq redrive"),
    ):
        done = call(*words)
        assert (done.code, done.out) == (Exit.REFUSED, "")
        assert why in done.err
        assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
    with Client(other) as there:
        assert "spoilt" not in there.topics()
