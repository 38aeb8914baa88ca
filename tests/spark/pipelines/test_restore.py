"""A lake goes back into a broker, cut off as often as one likes; dead letters are counted over both."""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.client import Outgoing
from penstock.errors import DamagedFile, NotFound, Refused
from penstock.spark.pipelines import restore as restore_module
from penstock.spark.pipelines.lake import LakeReader, commit_path
from penstock.spark.pipelines.letter_history import error_pattern, letter_history
from penstock.spark.pipelines.restore import plan_restore, restore
from penstock.spark.pipelines.verify import verify

from ...client.servers import until
from .rigs import archived, publish


def told(client, topic):
    return [
        (partition, one.key, one.value, one.headers, one.timestamp, one.priority)
        for partition, one in client.read(topic)
    ]


def test_a_restored_topic_has_every_message_once_however_often_it_is_cut_off(
    client, topic, tmp_path, monkeypatch
):
    messages = [
        Outgoing(
            f"{one}", key=f"k{one}", headers={"n": str(one)}, priority="high" if one % 7 else "low"
        )
        for one in range(300)
    ]
    client.publish_many(topic, messages)
    client.publish(topic, None, key="gone")
    archived(tmp_path, client.url, topic, commit_messages_max=100)
    monkeypatch.setattr(restore_module, "BATCH_BYTES", 2000)
    files = LakeReader(tmp_path)
    planned = plan_restore(client, files, topic, "back")
    assert (planned.is_new, planned.rows) == (True, 301)
    stop = Event()
    done = restore(
        client, files, planned, stop=stop, on_progress=lambda count: count > 60 and stop.set()
    )
    assert 60 < done < 301
    monkeypatch.setattr(restore_module, "BATCH_BYTES", 3000)  # Other portions, the same messages.
    again = plan_restore(client, files, topic, "back")
    assert not again.is_new
    assert restore(client, files, again) == 301
    assert restore(client, files, plan_restore(client, files, topic, "back")) == 301
    assert told(client, "back") == told(client, topic)


def test_what_cannot_be_restored_is_refused_before_anything_is_done(client, topic, tmp_path):
    publish(client, topic, 20)
    archived(tmp_path, client.url, topic)
    files = LakeReader(tmp_path)
    with pytest.raises(NotFound, match="other in the lake; there are"):
        plan_restore(client, files, "other", "new")
    client.create_topic("narrow", partitions=1)
    with pytest.raises(Refused, match="has 1 partitions, the lake has 2"):
        plan_restore(client, files, topic, "narrow")
    client.create_topic("used", partitions=2)
    publish(client, "used", 4, first=1000)
    with pytest.raises(Refused, match="has other messages"):
        plan_restore(client, files, topic, "used")
    planned = plan_restore(client, files, topic, "new")
    path = Path(files.paths()[-1])
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="so nothing is restored"):
        restore(client, files, planned)
    assert "new" not in client.topics()


def test_empty_partitions_come_back_too_and_those_of_a_topic_before_do_not(client, tmp_path):
    client.create_topic("sparse", partitions=4)
    publish(client, "sparse", 5, partition=1)
    publish(client, "sparse", 3, partition=3)
    archived(tmp_path, client.url, "sparse")
    client.delete_topic("sparse")
    client.create_topic("sparse", partitions=3)
    publish(client, "sparse", 2, partition=0, first=100)
    archived(tmp_path, client.url, "sparse")
    files = LakeReader(tmp_path)
    before = plan_restore(client, files, "sparse", "before", as_of="0")
    assert [one.rows for one in before.partitions] == [0, 5, 0, 3]
    restore(client, files, plan_restore(client, files, "sparse", "sparse-back"))
    assert client.topic("sparse-back").partitions == 3
    assert told(client, "sparse-back") == told(client, "sparse")
    assert verify(files, client, is_content_read=True).problems == []


@contextmanager
def interrupted_when(is_there):
    """Sends this process a Ctrl-C as soon as something is there."""

    def wait():
        until(is_there)
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_a_ctrl_c_ends_a_restore_with_130_and_what_is_done(client, topic, tmp_path, capfd):
    publish(client, topic, 100)
    archived(tmp_path, client.url, topic)
    words = ["archive", "restore", str(tmp_path), topic, "--as", "cut", "--server", client.url]
    with interrupted_when(lambda: "cut" in client.topics() and client.topic("cut").total_messages):
        code = run(root, [*words, "--rate", "20", "--json"])
    found = json.loads(capfd.readouterr().out)
    assert code == Exit.INTERRUPTED
    assert 0 < found["done"] == client.topic("cut").total_messages < found["messages"] == 100
    assert run(root, words) == Exit.OK
    assert told(client, "cut") == told(client, topic)


def test_a_ctrl_c_ends_an_archive_with_130_and_what_is_left(client, topic, tmp_path, capfd):
    publish(client, topic, 1000)
    lake = tmp_path / "lake"
    (tmp_path / "slow.yaml").write_text(
        f"""
name: slow
sources: {{o: {{topic: {topic}}}}}
sinks:
  - {{lake: lake, from: o, max_messages_per_commit: 2}}
"""
    )
    words = ["pipeline", "run", str(tmp_path / "slow.yaml"), "--once", "--server", client.url]
    with interrupted_when(lambda: (lake / commit_path(0)).exists()):
        code = run(root, [*words, "--json"])
    found = json.loads(capfd.readouterr().out)
    assert code == Exit.INTERRUPTED
    assert 0 < found["messages"] == 1000 - found["lag"]
    assert found["messages"] == sum(one.rows for one in LakeReader(lake).manifests())


def rejected(client, topic, count, error):
    before = len(client.dead_letters(topic))
    for _ in range(count):
        client.publish(topic, "x")
    consumer = client.consumer([topic], group="g")
    with consumer:
        left = count
        while left:
            for one in consumer.poll(wait="5s"):
                one.reject(error.format(left))
                left -= 1
    # A dead letter travels to its own topic after the answer.
    until(lambda: len(client.dead_letters(topic)) == before + count)


def test_dead_letters_are_counted_over_the_lake_and_the_broker(client, topic, tmp_path):
    rejected(client, topic, 3, "order {} of 'anna' has no price")
    archived(tmp_path, client.url, f"{topic}.dlq")
    rejected(client, topic, 2, "order {} of 'bert' has no price")
    rejected(client, topic, 1, "timeout")
    found = [one.to_record() for one in letter_history(topic, LakeReader(tmp_path), client)]
    told = [(one["count"], one["in_lake"], one["live_only"], one["error"]) for one in found]
    assert told == [
        (5, 3, 2, "order <n> of <text> has no price"),
        (1, 0, 1, "timeout"),
    ]
    assert found[0]["topics"] == [topic]
    # The lake remembers what the broker has deleted.
    client.delete_topic(f"{topic}.dlq")
    (one,) = letter_history(topic, LakeReader(tmp_path), client)
    assert (one.count, one.lake) == (3, 3)
    with pytest.raises(NotFound):
        letter_history("never", None, client)


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("job 17 failed after 3.5s\ntrace", "job <n> failed after <n>s"),
        ("no 6f1c2a34-1111-2222-3333-444455556666", "no <id>"),
        ("at 0x7fe21a", "at <hex>"),
        ('cannot read "a b"', "cannot read <text>"),
        ("", ""),
    ],
)
def test_a_fingerprint_leaves_out_what_differs(error, pattern):
    assert error_pattern(error) == pattern
