"""`penstock replay` and `penstock copy` against a server process: each message once."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from threading import Event

import pytest

from penstock.cli.exits import Exit
from penstock.cli.transfer import Run, Selection, Transfer
from penstock.client import Outgoing
from penstock.client.http_page import client_call, http_path
from penstock.errors import Refused

pytestmark = pytest.mark.tier("test")


def fill(client, topic, count, first=0):
    with client.producer(topic) as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, b"k%d" % (number % 7), headers={"h": b"1"})


def topics(client, name, count, *, partitions=(2, 3)):
    client.create_topic(name, partitions=partitions[0])
    client.create_topic(f"{name}-2", partitions=partitions[1])
    fill(client, name, count)
    return name, f"{name}-2"


def numbers(client, topic):
    return Counter(int(message.value) for _, message in client.read(topic))


def until(is_so):
    """Waits for another process; the time limit of the test is the end."""
    while not is_so():
        Event().wait(0.02)


def started(url, *words, errors=False):
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--json"],
        env={**os.environ, "PENSTOCK_SERVER": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else None,
        text=True,
    )


def test_a_part_of_a_topic_is_replayed_once_in_a_low_lane(call, client):
    source, target = topics(client, "played", 100)
    end = client.topic(source).ends(0).latest
    words = ["replay", source, "--to", target, "--partition", "0", "--from", "3"]
    plan = call(*words, "--until", "10", "--dry-run", "--json")
    (row,) = map(json.loads, plan.out.splitlines())
    assert (row["start"], row["end"], row["done"], row["left"]) == (3, 10, 3, 7)
    assert numbers(client, target) == Counter()
    assert call(*words, "--until", "10").code == Exit.OK
    wanted = {message.offset: message for number, message in client.read(source) if number == 0}
    copies = [message for _, message in client.read(target)]
    assert numbers(client, target) == Counter(int(wanted[one].value) for one in range(3, 10))
    originals = {message.value: message for message in wanted.values()}
    for message in copies:
        before = originals[message.value]
        assert (message.key, message.headers) == (before.key, before.headers)
        assert message.timestamp == before.timestamp
        assert (before.priority, message.priority) == (2, 4)
    again = json.loads(call(*words, "--until", "10", "--json").out)
    assert (again["messages"], again["done_before"]) == (0, 7)
    further = json.loads(call(*words, "--json").out)
    assert (further["messages"], further["done_before"]) == (end - 10, 7)
    assert numbers(client, target) == Counter(int(wanted[one].value) for one in range(3, end))
    noted = json.dumps(client_call(client, http_path("admin", "audit")))
    assert f"replay {further['job']} of {source}, {target} into {target}: starting" in noted
    assert f"into {target}: stopped, {end - 10} messages" in noted


def test_wrong_selections_are_one_line_and_nothing_is_done(call, client):
    source, target = topics(client, "refused", 4)
    for words, why in (
        ((source, "--to", "nowhere"), "there is no topic nowhere"),
        (("nowhere", "--to", target), "there is no topic nowhere"),
        ((source, "--to", target, "--partition", "9"), "there is no partition refused/9"),
        ((source, "--to", target, "--until-time", "1h"), "no message of refused is in that range"),
        ((source, "--to", source), "give an end"),
        (("refused.dlq", "--to", target), "penstock dlq redrive"),
        ((source, "--to", target, "--name", "a/b"), "a/b"),
    ):
        done = call("replay", *words)
        assert (done.code, done.out) == (Exit.REFUSED, "")
        assert why in done.err
        assert len(done.err.splitlines()) == 1
    itself = call("copy", source, "--to", source)
    assert (itself.code, itself.out) == (Exit.REFUSED, "")
    assert itself.err.splitlines() == [
        "Error: topic refused is not copied into itself: name another one with --to (INVALID_ARGUMENT)"
    ]
    for words, why in (
        (["--from", "3"], "give --partition"),
        (["--from", "3", "--from-time", "1h"], "give one of them"),
        (["--until", "x", "--partition", "0"], "is not an offset"),
    ):
        done = call("replay", source, "--to", target, *words)
        assert done.code == Exit.USAGE
        assert why in done.err
    assert numbers(client, target) == Counter()


def test_a_run_that_begins_ends_the_one_before(client):
    """Else both would publish what the first one has staged when the second one begins."""
    source, target = topics(client, "fenced", 400)

    def run(rate, tell):
        job = Transfer(
            kind="replay",
            name="fenced",
            source=source,
            target=target,
            selection=Selection(),
            rate=rate,
        )
        Run(client, job, 3, tell).move(job.ranges(client))

    def stop(_run):
        raise KeyboardInterrupt

    def overtake(_run):
        with pytest.raises(KeyboardInterrupt):
            run(10, stop)

    with pytest.raises(Refused, match="another run of job fenced took the place"):
        run(50, overtake)
    assert sum(numbers(client, target).values()) == 60
    run(None, lambda _: None)
    assert numbers(client, target) == Counter(range(400))


def test_what_another_run_did_since_a_run_looked_is_done(client):
    """A run that was killed may have a commit under way."""
    source, target = topics(client, "looked", 40)
    job = Transfer(
        kind="replay", name="looked", source=source, target=target, selection=Selection()
    )
    ranges = job.ranges(client)
    first, second = (Run(client, job, 3, lambda _: None) for _ in range(2))
    first.move(ranges)
    second.move(ranges)
    assert (first.messages, first.done_meanwhile, first.lag) == (40, 0, 0)
    assert (second.messages, second.done_meanwhile, second.lag) == (0, 40, 0)
    assert numbers(client, target) == Counter(range(40))


def test_a_topic_that_was_made_again_is_another_job(call, client):
    source, target = topics(client, "remade", 10)
    assert call("replay", source, "--to", target).code == Exit.OK
    client.delete_topic(source)
    client.create_topic(source, partitions=2)
    fill(client, source, 5, first=100)
    refused = call("replay", source, "--to", target)
    assert refused.code == Exit.REFUSED
    assert "begin another job with --name" in refused.err
    assert call("replay", source, "--to", target, "--name", "second").code == Exit.OK
    assert numbers(client, target) == Counter([*range(10), *range(100, 105)])


def test_a_copy_of_a_compacted_topic_is_not_behind_when_it_is_done(call, client):
    client.create_topic("thinned", partitions=1, cleanup="compact", segment_messages_max=10)
    client.create_topic("thinned-2", partitions=2)
    for number in range(8):
        client.publish_many("thinned", [Outgoing(f"{number}", key=f"k{one}") for one in range(10)])
    client.compact_topic("thinned")
    left = sum(1 for _ in client.read("thinned"))
    assert left < 80
    done = json.loads(call("copy", "thinned", "--to", "thinned-2", "--json").out)
    assert (done["messages"], done["lag"]) == (left, 0)
    again = json.loads(call("copy", "thinned", "--to", "thinned-2", "--json").out)
    assert (again["messages"], again["lag"]) == (0, 0)


def test_a_copy_keeps_the_order_of_keys_and_follows(url, client):
    source, target = topics(client, "grown", 500, partitions=(2, 5))
    process = started(url, "copy", source, "--to", target, "--follow")
    until(lambda: sum(numbers(client, target).values()) == 500)
    process.kill()
    process.communicate()
    fill(client, source, 300, first=500)
    process = started(url, "copy", source, "--to", target, "--follow")
    until(lambda: sum(numbers(client, target).values()) == 800)
    fill(client, source, 100, first=800)
    # A line for each commit, at once.
    said = next(one for one in map(json.loads, process.stdout) if one["messages"] == 400)
    assert said["lag"] == 0
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == Exit.OK
    assert numbers(client, target) == Counter(range(900))
    by_key, places = defaultdict(list), defaultdict(set)
    for partition, message in client.read(target):
        by_key[message.key].append(int(message.value))
        places[message.key].add(partition)
        assert message.priority == 2
    assert all(values == sorted(values) for values in by_key.values())
    assert all(len(found) == 1 for found in places.values())
