"""What only a terminal shows, and what must not go wrong there: bars, the live view, Ctrl-C, readers that leave."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from examples.demo.broker import BrokerProcess
from penstock.api.groups import OpenGroup
from penstock.cli.exits import Exit
from penstock.cli.overview import (
    GROUPS_MAX,
    GroupLine,
    Overview,
    Replication,
    StandbyLine,
    TopicLine,
)
from penstock.cli.overview_view import render

pytestmark = pytest.mark.tier("test")
DEADLINE_S = 240


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *words]


@contextmanager
def started(words: list[str], **more: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that is killed at the end: one whose test failed would run on, and be waited for."""
    with subprocess.Popen(words, **more) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def environment(url, tmp_path):
    return {
        **{name: one for name, one in os.environ.items() if name != "PYTHONUNBUFFERED"},
        "PENSTOCK_SERVER": url,
        "PENSTOCK_CONTEXTS": str(tmp_path / "contexts.json"),
        "TERM": "xterm",
        "COLUMNS": "140",
        "LINES": "40",
    }


@pytest.fixture
def busy(client):
    if "busy" not in client.topics():
        client.create_topic("busy", partitions=1)
        # More than a pipe holds, in every form, or the command would not notice that its reader has left.
        client.publish_many("busy", [b"message %060d" % number for number in range(5000)])
    return "busy"


def measure_latency(terminal: int, word: bytes) -> bytes:
    """What a terminal shows until a word is seen, or until it is closed."""
    said, until_s = b"", time.monotonic() + DEADLINE_S
    while word not in said or not word:
        left_s = until_s - time.monotonic()
        assert left_s > 0, said
        if not select.select([terminal], [], [], left_s)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:
            return said
        if not part:
            return said
        said += part
    return said


def can_be_interrupted() -> None:
    """A shell that runs the tests in the background makes their children deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_live_view_ends_with_ctrl_c_and_leaves_the_terminal_well(environment, busy):
    ours, theirs = pty.openpty()
    words = command("top", "--interval", "0.1")
    with started(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        preexec_fn=can_be_interrupted,
    ) as process:
        os.close(theirs)
        said = measure_latency(ours, b"Ctrl-C ends")
        process.send_signal(signal.SIGINT)
        rest = measure_latency(ours, b"")
        assert process.wait(DEADLINE_S) == Exit.INTERRUPTED
    os.close(ours)
    assert b"busy" in said
    everything = said + rest
    assert b"\x1b[?1049h" in everything
    # The other screen is left and the cursor is back, after the last picture.
    assert everything.rindex(b"\x1b[?1049l") > everything.rindex(b"Ctrl-C ends")
    assert everything.rindex(b"\x1b[?25h") > everything.rindex(b"\x1b[?25l")
    assert b"Traceback" not in everything


def test_live_view_waits_for_a_broker_that_went_away(environment, tmp_path):
    ours, theirs = pty.openpty()
    with BrokerProcess(tmp_path / "data") as broker:
        words = command("top", "--interval", "0.1", "--server", broker.address)
        with started(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            measure_latency(ours, b"Ctrl-C ends")
            broker.kill()
            measure_latency(ours, b"trying again")
            broker.start()
            assert b"Traceback" not in measure_latency(ours, b"Ctrl-C ends")
            process.terminate()
            measure_latency(ours, b"")
    os.close(ours)


@pytest.mark.parametrize("key", [b"q", b"Q", b"xq"])
def test_live_view_ends_with_q_and_leaves_the_terminal_as_it_was(environment, busy, key):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    words = command("top", "--interval", "0.1")
    with started(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        measure_latency(ours, b"q or Ctrl-C ends")
        os.write(ours, key)
        # What it writes until it ends has to be read, or it would wait for that.
        while process.poll() is None:
            if select.select([ours], [], [], 0.05)[0]:
                os.read(ours, 65536)
        assert process.returncode == Exit.OK
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_one_look_is_for_scripts(call, busy):
    shown = call("top", "--once")
    assert (shown.code, shown.err) == (Exit.OK, "")
    assert "busy" in shown.out
    assert "\x1b" not in shown.out
    # Without a terminal there is nothing to look at twice.
    assert call("top").out.splitlines()[1] == shown.out.splitlines()[1]


@pytest.mark.parametrize("width", [100, 160])
def test_names_are_cut_before_figures_are(width):
    topics = tuple(f"topic-{number}" for number in range(100))
    lines = [TopicLine("t" * 245, 3, 7_654_321, 2048, 0, 0, (11, 22, 33, 44, 55))]
    groups = [GroupLine("g" * 245, topics, 1_234_567, 95.0, 8_765, 432, 99_999, 0, members=12)]
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(Overview("there", "orders", 1.0, 0, 0.0, lines, groups)))
    _, *shown = filter(str.strip, console.export_text().splitlines())
    (topic,) = [line for line in shown if line.startswith("  ttt")]
    (group,) = [line for line in shown if line.startswith("  ggg")]
    assert " ".join(topic.split()[1:]) == "3 7,654,321 2.0 KiB - 0 11 / 22 / 33 / 44 / 55"
    assert group.split()[-7:] == ["12", "1,234,567", "1.6m", "8,765", "432", "99,999", "-"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "Topics"),
        (
            Replication(2, 2, 7, [StandbyLine(3, True, 2048, 0.25)]),
            "2 machines in sync, 2 needed, 7 appends not committed; standby 3 in sync, 2.0 KiB and 0.2s behind",
        ),
        (Replication(1, 1, 0), "1 machine in sync, 1 needed, 0 appends not committed"),
    ],
)
def test_view_says_how_far_standbys_are_behind(found, said):
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(render(Overview("there", "orders", 1.0, 0, 0.0, replication=found)))
    head, line, *_ = filter(str.strip, console.export_text().splitlines())
    assert "orders at there" in head
    assert line.strip() == said


def test_of_very_many_groups_those_furthest_behind_are_shown(call, client):
    for topic in ("crowded", "crowded-behind"):
        client.create_topic(topic, partitions=1)
    client.publish("crowded-behind", b"x")
    client.execute(OpenGroup("zz-behind", ("crowded-behind",)))
    for number in range(GROUPS_MAX):
        client.execute(OpenGroup(f"done-{number}", ("crowded",)))
    shown = [one["group"] for one in json.loads(call("top", "--json").out)["groups"]]
    assert "zz-behind" in shown
    assert len(shown) == GROUPS_MAX
    for topic in ("crowded", "crowded-behind"):
        client.delete_topic(topic)


def test_view_as_json_has_topics_lanes_and_groups(call, client, busy):
    client.ack(client.poll(busy, "watched", limit=10))
    found = json.loads(call("top", "--json").out)
    (topic,) = [one for one in found["topics"] if one["name"] == busy]
    assert (topic["total_messages"], topic["lanes"]["normal"]) == (5000, 4990)
    (group,) = [one for one in found["groups"] if one["group"] == "watched"]
    assert (group["lag"], group["in_flight"], group["finished"]) == (4990, 0, 10)
    assert found["replication"] is None


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bar_is_only_for_terminals(environment, client, tmp_path, is_terminal):
    if "bars" not in client.topics():
        client.create_topic("bars", partitions=1)
    file = tmp_path / "lines.txt"
    file.write_bytes(b"a line of text\n" * 50_000)
    ours, theirs = pty.openpty()
    stderr = theirs if is_terminal else subprocess.PIPE
    with started(
        command("produce", "bars", "--file", str(file)),
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
    ) as process:
        os.close(theirs)
        said = measure_latency(ours, b"") if is_terminal else process.stderr.read()
        assert process.stdout.read() == b"stored 50000\n"
        assert process.wait(DEADLINE_S) == Exit.OK
    os.close(ours)
    assert (b"messages" in said) == is_terminal
    assert is_terminal or said == b""


@pytest.mark.parametrize(
    "words", [("consume", "busy"), ("consume", "busy", "--json"), ("consume", "busy", "--values")]
)
def test_reader_that_leaves_is_answered_quietly(environment, busy, words):
    with started(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == Exit.OUTPUT_CLOSED


def test_reader_that_leaves_costs_a_group_no_message(environment, client):
    client.create_topic("heads", partitions=1)
    # So few that they wait in a buffer: the pipe is found closed when it is written out, after the last of them.
    client.publish_many("heads", [b"one", b"two", b"three"])
    words = command("consume", "heads", "--group", "heads", "--follow")
    with started(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        process.stdout.close()
        assert process.wait(DEADLINE_S) == Exit.OUTPUT_CLOSED
    assert client.lag("heads").total == 3


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_is_an_empty_one(environment, client, closed):
    """Nothing else may get its number: what is printed would go there."""
    client.create_topic("closed-streams", partitions=1, exist_ok=True)
    words = ["sh", "-c", f'"$@" {closed}', "sh", *command("produce", "closed-streams", "a")]
    done = subprocess.run(words, capture_output=True, env=environment, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (Exit.OK, b"")


def test_following_ends_with_ctrl_c(environment, client):
    client.create_topic("follows", partitions=1)
    client.publish("follows", b"first")
    with started(
        command("consume", "follows", "--follow"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=can_be_interrupted,
    ) as process:
        assert process.stdout.readline() == b"0/0\tfirst\n"
        client.publish("follows", b"second")
        assert process.stdout.readline() == b"0/1\tsecond\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == Exit.INTERRUPTED
        assert process.stderr.read() == b""


def test_interrupted_producer_stores_what_it_was_given(environment, client):
    client.create_topic("tails", partitions=1)
    with started(
        command("produce", "tails", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=can_be_interrupted,
    ) as process:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        until_s = time.monotonic() + DEADLINE_S
        while (
            client.topic("tails").total_messages < 2
        ):  # They do not wait for the end of the input.
            assert time.monotonic() < until_s
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == Exit.INTERRUPTED
        assert process.stderr.read() == b"stored 2\n"


def test_letters_that_a_terminal_does_not_know_are_no_failure(environment, client):
    client.create_topic("letters", partitions=1)
    client.publish("letters", "größer \u2192".encode())
    done = subprocess.run(
        command("consume", "letters"),
        capture_output=True,
        env={**environment, "PYTHONIOENCODING": "ascii:strict"},
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (Exit.OK, b"")
    assert done.stdout == b"0/0\tgr\\xf6\\xdfer \\u2192\n"


@pytest.mark.parametrize(
    ("editor", "code", "left"), [("sed -i s/a/b/", Exit.OK, 0), ("true", Exit.REFUSED, 1)]
)
def test_dead_letter_is_corrected_in_an_editor(environment, client, editor, code, left):
    topic = f"edits-{left}"
    client.create_topic(topic, partitions=1)
    client.publish(topic, b"a")
    client.reject(client.poll(topic, "g"), "no")
    until_s = time.monotonic() + DEADLINE_S
    while not client.dead_letters(topic):
        assert time.monotonic() < until_s
    ours, theirs = pty.openpty()
    with started(
        command("dlq", "edit", topic, "0/0"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, "EDITOR": editor, "VISUAL": editor},
    ) as process:
        assert process.wait(DEADLINE_S) == code, process.stderr.read()
    os.close(ours)
    os.close(theirs)
    assert len(client.dead_letters(topic)) == left
    values = [message.value for _, message in client.read(topic)]
    assert values == ([b"a"] if left else [b"a", b"b"])


@pytest.mark.parametrize(("typed", "code"), [(b"doomed\n", Exit.OK), (b"doom\n", Exit.REFUSED)])
def test_deleting_asks_for_the_name_at_a_terminal(environment, client, typed, code):
    client.create_topic("doomed", partitions=1, exist_ok=True)
    ours, theirs = pty.openpty()
    with started(
        command("topic", "delete", "doomed"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        measure_latency(ours, b"to go on")
        os.write(ours, typed)
        measure_latency(ours, b"")
        assert process.wait(DEADLINE_S) == code
    os.close(ours)
    assert ("doomed" in client.topics()) == (code != Exit.OK)
