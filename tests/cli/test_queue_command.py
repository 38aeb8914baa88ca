"""`penstock queue`, on queues in a directory of the test's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.errors import AlreadyOpen


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "jobs")


@pytest.fixture
def call(capsys):
    def call(*words):
        code = run(root, ["queue", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_put_peek_and_get(path, call):
    assert call("put", path, "one", "two", "three", "--key", "k", "--header", "a=b=c") == (
        Exit.OK,
        "put 3, ids 1 to 3\n",
        "",
    )
    assert call("peek", path, "--count", "2")[1] == "1\tone\n2\ttwo\n"
    code, out, _ = call("get", path, "--json")
    message = json.loads(out)
    assert (code, message["id"], message["value"], message["key"]) == (Exit.OK, 1, "one", "k")
    assert (message["headers"], message["priority"]) == ([["a", "b=c"]], "normal")
    assert call("get", path, "--count", "9")[1] == "2\ttwo\n3\tthree\n"
    assert call("get", path) == (Exit.FOUND_PROBLEMS, "", "")


def test_a_queue_that_is_open_is_refused_also_when_its_lock_file_was_removed(path, call):
    with penstock.open(path) as queue:
        queue.put(b"mine")
        queue.sync()
        Path(path, "lock").unlink()
        for words in (["get", path], ["put", path, "two"], ["compact", path]):
            code, out, err = call(*words)
            assert (code, out) == (Exit.REFUSED, "")
            assert "already open" in err
        with pytest.raises(AlreadyOpen):
            penstock.open(path)
        assert queue.get().value == b"mine"


@pytest.mark.tier("test")
def test_a_dead_letter_goes_back_by_its_id_however_many_there_are(path, call):
    with penstock.open(path, auto_ack=False, max_in_flight=20_000) as queue:
        queue.put_many([b"x"] * 10_100)
        queue.reject([*queue.get_many(10_000), *queue.get_many(10_000)])
    assert call("requeue", path, "10050") == (Exit.OK, "requeued 1, failed 0\n", "")


def test_stats_dead_letters_requeue_and_compact(path, call):
    with penstock.open(path, auto_ack=False) as queue:
        queue.put_many([b"good", b"b\xffd\n", b"worse"])
        _, bad, worse = queue.get_many()
        queue.reject([bad, worse], "broken")
    figures = json.loads(call("stats", path, "--json")[1])
    assert (figures["put"], figures["waiting"], figures["dead_letters"]) == (3, 1, 2)
    assert "dead letters" in call("stats", path)[1]
    lines = [json.loads(line) for line in call("dead-letters", path, "--json")[1].splitlines()]
    assert [(line["id"], line["reason"], line["error"]) for line in lines] == [
        (2, "REJECTED", "broken"),
        (3, "REJECTED", "broken"),
    ]
    assert lines[0]["value"] == {"base64": "Yv9kCg=="}
    assert "b\\\\xffd\\n" in call("dead-letters", path)[1]
    cut = call("dead-letters", path, "--json", "--count", "1")
    assert (cut[1], cut[2]) == (
        json.dumps(lines[0]) + "\n",
        "the first 1, and there are more: --count\n",
    )
    assert call("requeue", path, "3")[1] == "requeued 1, failed 0\n"
    assert json.loads(call("requeue", path, "--all", "--json")[1]) == {"requeued": 1, "failed": 0}
    assert call("get", path, "--count", "9")[1].split("\n")[0] == "1\tgood"
    assert call("compact", path, "--older-than", "0s")[1].startswith("removed ")


def test_lines_of_the_standard_input_are_messages(path):
    words = [sys.executable, "-m", "penstock", "queue", "put", path, "-"]
    done = subprocess.run(words, input=b"a\nb\n", capture_output=True, check=True)
    assert done.stdout == b"put 2, ids 1 to 2\n"


@pytest.mark.parametrize(
    ("is_full", "code"), [(False, Exit.OUTPUT_CLOSED), (True, Exit.UNAVAILABLE)]
)
def test_get_that_cannot_print_takes_nothing_and_costs_no_attempt(path, is_full, code):
    with penstock.open(path) as queue:
        queue.put_many([b"one", b"two", b"three"])
    words = [sys.executable, "-m", "penstock", "queue", "get", path, "--count", "2"]
    if is_full:
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, output = os.pipe()
        os.close(reading)
    try:
        # Unbuffered, nothing would be left for the end of the interpreter.
        buffered = {name: one for name, one in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            words, stdout=output, stderr=subprocess.PIPE, env=buffered, text=True, check=False
        )
    finally:
        os.close(output)
    assert (done.returncode, done.stderr.count("\n")) == (code, int(is_full)), done.stderr
    with penstock.open(path) as queue:
        found = [(message.value, message.attempts) for message in queue]
    assert found == [(b"one", 1), (b"two", 1), (b"three", 1)]


def test_get_takes_more_than_one_poll_brings(path, call):
    with penstock.open(path, max_in_flight=7) as queue:
        queue.put_many([b"%d" % number for number in range(1200)])
    lines = call("get", path, "--count", "1100")[1].splitlines()
    assert [line.split("\t")[1] for line in lines] == [str(number) for number in range(1100)]
    assert json.loads(call("stats", path, "--json")[1])["waiting"] == 100


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["stats", "{path}"], Exit.REFUSED, "does not exist"),
        (["requeue", "{path}"], Exit.USAGE, "some ids, or --all"),
        (["put", "{path}", "x", "--header", "a"], Exit.USAGE, "NAME=VALUE"),
        (["put", "{path}", "x", "--priority", "urgent"], Exit.REFUSED, "priority must be"),
        (["put", "{path}", "x", "--ttl", "soon"], Exit.USAGE, "does not look like"),
    ],
)
def test_wrong_calls_get_one_clear_line(path, call, words, code, text):
    found, out, err = call(*(word.format(path=path) for word in words))
    assert (found, out) == (code, "")
    assert text in err
    assert "Traceback" not in err


def test_queue_that_is_open_elsewhere_says_so(path, call):
    with penstock.open(path):
        code, _, err = call("stats", path)
    assert code == Exit.REFUSED
    assert "already open" in err
