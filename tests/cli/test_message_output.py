"""What `consume` prints with --format and --last, where `produce` says that messages are, and names at Tab."""

import json
import os
import pty
import subprocess
import sys
from itertools import islice

import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.exits import Exit
from penstock.cli.message_format import format_parts
from penstock.cli.root import root
from penstock.client import Outgoing
from penstock.model import Message


def test_format_has_the_letters_of_kcat(call, client):
    client.create_topic("format", partitions=1)
    client.publish("format", b"lamp", key=b"ann", headers=[("a", b"1"), ("b", b"2")])
    client.publish("format", None)
    shown = call("consume", "format", "--format", r"%t %p %o %k/%K %s/%S [%h] 100%%\t\x41\\\n")
    assert shown.code == Exit.OK
    assert shown.out.splitlines() == [
        "format 0 0 ann/3 lamp/4 [a=1,b=2] 100%\tA\\",
        "format 0 1 /-1 /-1 [] 100%\tA\\",
    ]
    (message,) = [one for _, one in islice(client.read("format"), 1)]
    assert call("consume", "format", "-F", "%T ", "-n", "1").out == (
        f"{message.timestamp // 1_000_000} "
    )
    assert call("consume", "format", "-F", "%s|", "--group", "g").out == "lamp||"


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "%q"),
        ("--format", "50%"),
        ("--format", "\\q"),
        ("--format", "%s\\"),
        ("--format", "%s", "--json"),
        ("--format", "%s", "--values"),
        ("--values", "--json"),
        ("--last", "0"),
        ("--last", "3", "--follow"),
        ("--last", "3", "--group", "g"),
        ("--last", "3", "--from", "0"),
        ("--last", "3", "--from-time", "1h"),
    ],
)
def test_formats_and_options_that_mean_nothing_are_refused(call, words):
    done = call("consume", "anything", *words)
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert words[0] in done.err


@given(text=st.text(), value=st.none() | st.binary())
def test_text_around_a_value_comes_out_as_it_is(text, value):
    written = text.encode("utf-8", "replace").decode()
    escaped = written.replace("\\", r"\\").replace("%", "%%")
    message = Message(value)
    parts = format_parts(f"{escaped}%s{escaped}", "t")
    around = written.encode()
    assert b"".join(part(0, message) for part in parts) == around + (value or b"") + around


def test_last_are_the_newest_of_all_partitions(call, client):
    client.create_topic("last-ones", partitions=3)
    for number in range(9):
        client.publish("last-ones", b"%d" % number, partition=number % 3)
    assert call("consume", "last-ones", "--last", "4", "--values").out.split() == [
        "5",
        "6",
        "7",
        "8",
    ]
    of_one = call("consume", "last-ones", "--last", "2", "--values", "--partition", "1")
    assert of_one.out.split() == ["4", "7"]
    everything = call("consume", "last-ones", "--last", "100", "--values")
    assert everything.out.split() == [str(number) for number in range(9)]
    assert call("consume", "last-ones", "--last", "2", "--partition", "3").code == Exit.REFUSED


def test_last_looks_further_back_over_holes(call, client):
    client.create_topic("last-holes", partitions=1, cleanup="compact", segment_messages_max=1)
    client.publish("last-holes", b"kept", key=b"first")
    for number in range(6):
        client.publish("last-holes", b"%d" % number, key=b"same")
    assert call("topic", "compact", "last-holes").code == Exit.OK
    left = [one.value for _, one in client.read("last-holes")]
    assert len(left) < 7
    shown = call("consume", "last-holes", "--last", str(len(left)), "--values")
    assert shown.out.split() == [value.decode() for value in left]


def test_places_are_told_when_asked_for(call, client):
    client.create_topic("told-places", partitions=2)
    assert call("produce", "told-places", "a", "b", "--partition", "1").out == "stored 2\n"
    told = call("produce", "told-places", "c", "d", "--partition", "1", "-v")
    assert told.out == "1/2\n1/3\nstored 2\n"
    lines = call("produce", "told-places", "e", "f", "--partition", "1", "-v", "--json").out
    found = [json.loads(line) for line in lines.splitlines()]
    assert [(one["partition"], one["offset"]) for one in found] == [(1, 4), (1, 5)]
    (later,) = call("produce", "told-places", "g", "-v", "--json", "--delay", "1h").out.splitlines()
    (waiting,) = client.delayed("told-places")
    assert json.loads(later)["offset"] == waiting.offset
    assert json.loads(later)["deliver_at"] is not None


def test_every_message_has_its_own_place(call, client, tmp_path):
    client.create_topic("own-places", partitions=3)
    messages = [Outgoing(b"%d" % number, key=b"%d" % (number % 7)) for number in range(2000)]
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(
            json.dumps({"value": m.value.decode(), "key": m.key.decode()}) + "\n" for m in messages
        )
    )
    shown = call("produce", "own-places", "--jsonl", "--file", str(file), "-v")
    *places, last = shown.out.splitlines()
    assert last == "stored 2000"
    by_place = {
        f"{partition}/{one.offset}": one.value for partition, one in client.read("own-places")
    }
    assert [by_place[place] for place in places] == [one.value for one in messages]


def on_a_terminal(url, tmp_path, *words):
    """The exit code of a command, and what a terminal gets of it."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "PENSTOCK_SERVER": url,
        "PENSTOCK_CONTEXTS": str(tmp_path / "contexts.json"),
        "TERM": "xterm",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # What Linux says when the other side is closed.
            pass
    os.close(ours)
    return process.returncode, said


@pytest.mark.tier("test")
def test_words_on_a_terminal_are_told_their_places(url, client, tmp_path):
    client.create_topic("words", partitions=1)
    code, said = on_a_terminal(url, tmp_path, "produce", "words", "a", "b")
    assert (code, said) == (Exit.OK, b"0/0\r\n0/1\r\nstored 2\r\n")


@pytest.mark.tier("test")
def test_an_error_stands_below_the_bar(url, client, tmp_path):
    client.create_topic("bar-error", partitions=1)
    file = tmp_path / "lines.jsonl"
    file.write_text('{"value": "a"}\n' * 100 + "nonsense\n")
    code, said = on_a_terminal(
        url, tmp_path, "produce", "bar-error", "--jsonl", "--file", str(file)
    )
    assert code != Exit.OK
    # The bar has given the cursor back before anything is told.
    assert said.index(b"then it went wrong") > said.rindex(b"\x1b[?25h")


def completed(words, start):
    complete = ShellComplete(root, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [one.value for one in complete.get_completions(words, start)]


def test_names_of_topics_and_groups_are_completed(call, client, url):
    client.create_topic("tab-one", partitions=1)
    client.create_topic("tab-two", partitions=1)
    client.poll("tab-one", "tab-group")
    for words in (
        ["consume"],
        ["topic", "show"],
        ["produce"],
        ["dlq", "list"],
        ["group", "reset", "g", "--topic"],
        ["worker", "app:handle", "--topic"],
    ):
        assert completed(words, "tab-") == ["tab-one", "tab-two"]
    for words in (["group", "show"], ["consume", "tab-one", "--group"]):
        assert completed(words, "tab-") == ["tab-group"]
    assert completed(["topic", "create"], "tab-") == []
    call("context", "add", "here", url)
    assert completed(["topic", "show", "--context", "here"], "tab-t") == ["tab-two"]


def test_no_server_completes_nothing(run, surroundings):
    surroundings.setenv("PENSTOCK_SERVER", "penstock://127.0.0.1:1")
    assert completed(["consume"], "") == []
    surroundings.setenv("PENSTOCK_SERVER", "nonsense")
    assert completed(["consume"], "") == []
