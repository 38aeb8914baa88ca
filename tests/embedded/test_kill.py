"""kill -9 at any moment: what a call had promised is there afterwards."""

import random
import subprocess
import sys
from contextlib import contextmanager
from threading import Event, Thread

import pytest

import penstock
from penstock.embedded.prefetch import FETCH_MESSAGES

PRODUCER = """
import sys, penstock
from threading import Thread
queue = penstock.open(sys.argv[1], fsync="always", segment_size_bytes=20_000)
print("ready", flush=True)
def produce(name):
    for count in range(1_000_000):
        value = b"%d-%d" % (name, count)
        id = queue.put(value, key=b"k") if count % 7 == 3 else queue.put(value)
        sys.stdout.write("%d %s\\n" % (id, value.decode()))
        sys.stdout.flush()
threads = [Thread(target=produce, args=(name,), daemon=True) for name in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""

WORKER = """
import sys, penstock
queue = penstock.open(sys.argv[1], auto_ack=False, fsync="always")
print("ready", flush=True)
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
for message in queue.stream(timeout=0):
    say("got %d" % message.id)
    if message.id % 5 == 0:
        queue.reject(message, "five")
        say("rejected %d" % message.id)
    else:
        queue.ack(message)
        say("acked %d" % message.id)
"""

READER = """
import sys, penstock
queue = penstock.open(sys.argv[1])
print("ready", flush=True)
for message in queue.stream(timeout=0):
    sys.stdout.write("%d\\n" % message.id)
    sys.stdout.flush()
"""


@contextmanager
def killed_after(program, path, seconds):
    """Lines that a program wrote between being ready and being killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    lines = []
    reader = Thread(target=lambda: lines.extend(child.stdout), daemon=True)
    reader.start()
    Event().wait(seconds)
    while not lines and reader.is_alive():
        Event().wait(0.001)  # A busy machine has kept it from beginning.
    child.kill()
    child.wait()
    reader.join()
    child.stdout.close()
    # The last line may be cut in two.
    yield [line.split() for line in lines if line.endswith("\n")]


def test_nothing_that_put_had_returned_for_is_lost(tmp_path, effort):
    entropy, promised = random.Random(9), {}
    for _ in range(effort(check=2, test=4, torture=300)):
        with killed_after(PRODUCER, tmp_path, entropy.uniform(0, 0.5)) as lines:
            promised |= {int(number): value.encode() for number, value in lines}
        with penstock.open(tmp_path) as queue:
            queue.seek(1)
            found = {message.id: message.value for message in queue}
        assert {number: found.get(number) for number in promised} == promised
        assert sorted(found) == list(range(1, len(found) + 1))
    assert promised


@pytest.mark.tier("test")
def test_acked_is_never_seen_again_and_rejected_is_in_one_place(tmp_path, effort):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"%d" % number for number in range(4000)])
    entropy = random.Random(4)
    acked, rejected, seen = set(), set(), set()
    for _ in range(effort(check=2, test=4, torture=200)):
        with killed_after(WORKER, tmp_path, entropy.uniform(0, 0.5)) as lines:
            for what, number in lines:
                group = {"got": seen, "acked": acked, "rejected": rejected}[what]
                if what == "got":
                    assert int(number) not in acked | rejected
                group.add(int(number))
        with penstock.open(tmp_path, auto_ack=False) as queue:
            dead = {one.id for one in queue.dead_letters(limit=10_000)}
            left = {one.id for one in queue.peek_many(10_000)}
            assert not dead & left
            assert rejected <= dead
            assert not (acked | rejected) & left
            # Done, dead or left: nothing is anywhere else, and nothing in two places.
            done = set(range(1, 4001)) - dead - left
            assert acked <= done <= seen
    assert acked


@pytest.mark.tier("test")
def test_auto_ack_loses_nothing_but_may_show_the_last_ones_again(tmp_path, effort):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"%d" % number for number in range(20_000)])
    entropy, seen, again = random.Random(5), set(), []
    for _ in range(effort(check=2, test=4, torture=100)):
        with killed_after(READER, tmp_path, entropy.uniform(0, 0.1)) as lines:
            ids = [int(number) for (number,) in lines]
        again += [number for number in ids if number in seen]
        seen |= set(ids)
    with penstock.open(tmp_path) as queue:
        rest = {message.id for message in queue}
    # LeasedMessages out means taken off the queue, though the line that tells of it may not have been written.
    missing = set(range(1, 20_001)) - seen - rest
    assert len(missing) <= effort(check=2, test=4, torture=100)
    assert len(again) + len(rest & seen) <= FETCH_MESSAGES * effort(check=2, test=4, torture=100)
