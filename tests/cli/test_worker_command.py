"""`penstock worker`: a function for every message, in a process that signals end cleanly."""

import contextlib
import os
import signal
import subprocess
import sys
from itertools import islice

import pytest

from penstock.cli.exits import Exit

APP = """
import os
from penstock.client import Reject

def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\\n")
    print(text, flush=True)

def handle(message):
    if message.value == b"slow":
        note("begun")
        open(os.environ["FIFO"]).read()
    if message.value == b"bad":
        raise ValueError("cannot pack this")
    if message.value == b"never":
        raise Reject("no order")
    note("done " + message.value.decode())

async def later(message):
    note("later " + message.value.decode())

class Shelf:
    @staticmethod
    def put(message):
        note("put " + message.value.decode())

number = 3
"""


@pytest.fixture
def app(tmp_path, url, monkeypatch):
    (tmp_path / "app.py").write_text(APP)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setenv("PENSTOCK_SERVER", url)
    monkeypatch.setenv("PENSTOCK_CONTEXTS", str(tmp_path / "contexts.json"))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("FIFO", str(tmp_path / "fifo"))
    return tmp_path


@contextlib.contextmanager
def started(app, target, topic, *options):
    words = ["worker", target, "--topic", topic, "--group", topic, "--app-dir", str(app), *options]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.tier("test")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_running_function_and_leaves(app, client, number):
    topic = f"worker-{number}"
    client.create_topic(topic, partitions=1)
    client.publish_many(topic, [b"slow", b"waits"])
    with started(app, "app:handle", topic) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        (app / "fifo").write_text("go on")
        out, err = process.communicate(timeout=120)
    # The second message may have been taken before the signal was heard, or not: it is never half done.
    assert (out.splitlines()[0], process.returncode) == ("done slow", Exit.OK)
    assert client.group(topic).members == []
    assert client.lag(topic).total == (0 if "done waits" in out else 1)
    lines = err.splitlines()
    assert "started" in lines[0]
    assert "stopped" in lines[-1]


@pytest.mark.tier("test")
def test_failures_are_told_with_their_traceback_and_end_as_dead_letters(app, client):
    client.create_topic("worker-fails", partitions=1)
    client.publish_many("worker-fails", [b"bad", b"never", b"good"])
    with started(app, "app:handle", "worker-fails", "--retries", "0") as process:
        assert process.stdout.readline() == "done good\n"
        process.terminate()
        _, err = process.communicate(timeout=120)
    assert process.returncode == Exit.OK
    assert 'app.py", line' in err
    assert "ValueError: cannot pack this" in err
    while "worker-fails.dlq" not in client.topics():
        pass  # The letters come a moment later.
    found = islice(client.read("worker-fails.dlq", follow=True), 2)
    assert sorted(message.value for _, message in found) == [b"bad", b"never"]


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("target", "word", "options"),
    [
        ("app:later", "later", ["--concurrency", "4"]),
        ("app:Shelf.put", "put", ["--concurrency", "4"]),
        ("app:handle", "done", ["--processes", "--deadline", "1m"]),
    ],
)
def test_coroutines_functions_of_classes_and_processes(app, client, target, word, options):
    client.create_topic(f"worker-{word}", partitions=1)
    client.publish(f"worker-{word}", b"x")
    with started(app, target, f"worker-{word}", *options) as process:
        assert process.stdout.readline() == f"{word} x\n"
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == Exit.OK
    assert client.lag(f"worker-{word}").total == 0


@pytest.mark.tier("test")
def test_reload_takes_the_changed_file_and_outlives_a_broken_one(app, client):
    client.create_topic("worker-reload", partitions=1)
    client.publish("worker-reload", b"one")
    with started(app, "app:handle", "worker-reload", "--reload") as process:
        assert process.stdout.readline() == "done one\n"
        (app / "app.py").write_text("def handle(message:\n")
        while "SyntaxError" not in process.stderr.readline():
            assert process.poll() is None
        (app / "app.py").write_text(APP.replace("done ", "changed "))
        client.publish("worker-reload", b"two")
        assert process.stdout.readline() == "changed two\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == Exit.OK
    assert client.lag("worker-reload").total == 0
    assert client.group("worker-reload").members == []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("app", "MODULE:FUNCTION"),
        (":handle", "MODULE:FUNCTION"),
        ("missing_module:handle", "there is no module missing_module"),
        ("wrong_app:handel", "has no handel; it has handle"),
        ("wrong_app:number", "is a int, not a function"),
        ("broken_app:handle", "ZeroDivisionError"),
        ("needs_app:handle", "No module named 'not_installed'"),
    ],
)
def test_a_target_that_is_no_function_is_named(call, tmp_path, monkeypatch, target, said):
    (tmp_path / "wrong_app.py").write_text("number = 3\ndef handle(message): ...\n")
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    (tmp_path / "needs_app.py").write_text("import not_installed\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = call("worker", target, "--topic", "t", "--group", "g", "--app-dir", str(tmp_path))
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert said in done.err
    assert "cli/worker.py" not in done.err


def test_a_topic_that_is_not_there_is_told_at_once(call):
    done = call("worker", "penstock.model:check_name", "--topic", "nowhere", "--group", "g")
    assert (done.code, done.out) == (Exit.REFUSED, "")
    assert "there is no topic nowhere" in done.err
