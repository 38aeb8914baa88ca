"""Workers whose handlers run in processes: outcomes, late ones that are killed, processes that die, and stops."""

import os
import signal
import subprocess
import sys

import pytest

from penstock.client import AsyncClient, Client
from penstock.errors import Refused

from .process_handlers import handle
from .servers import until

pytestmark = pytest.mark.tier("test")


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


def filled(client, topic, notes, *values):
    client.create_topic(topic, partitions=1, backoff_base_ms=1)
    for value in values:
        client.publish(topic, value, headers=[("notes", str(notes))])


def lines(notes) -> list[list[str]]:
    return [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_finished(client, group) -> bool:
    return client.lag(group).total == 0


def test_every_outcome_of_a_handler_comes_back(client, tmp_path):
    notes = tmp_path / "notes"
    filled(client, "processes", notes, b"good", b"fails", b"never", b"dies", b"again", b"last")
    told = []
    worker = client.worker(
        "processes",
        "processes",
        handle,
        processes=True,
        retries=0,
        on_failure=lambda message, error: told.append((message.value, error)),
    )
    with worker:
        until(lambda: is_finished(client, "processes"))
    done = lines(notes)
    assert [line[0] for line in done if line[0] != "again"] == [
        "good",
        "fails",
        "never",
        "dies",
        "last",
    ]
    assert [line[2] for line in done if line[0] == "again"] == ["1", "2"]
    assert os.getpid() not in {int(line[1]) for line in done}
    assert [value for value, _ in told] == [b"fails", b"dies"]
    until(lambda: len(client.dead_letters("processes")) == 3)
    letters = {one.value: one.last_error for one in client.dead_letters("processes")}
    assert letters[b"never"] == "no order"
    summary, place = letters[b"fails"].splitlines()
    assert summary == "ValueError: cannot pack this"
    assert "process_handlers.py" in place
    assert "exit code -9" in letters[b"dies"]
    until(lambda: not any(is_there(int(line[1])) for line in done))


def test_a_late_handler_is_killed_and_runs_no_second_time(client, tmp_path):
    notes = tmp_path / "notes"
    filled(client, "overdue", notes, b"stuck", b"next")
    with client.worker("overdue", "overdue", handle, processes=True, retries=0, deadline="4s"):
        until(lambda: is_finished(client, "overdue"))
    (stuck, pid, _), (following, other, _) = lines(notes)
    assert (stuck, following) == ("stuck", "next")
    assert pid != other
    assert not is_there(int(pid))
    until(lambda: len(client.dead_letters("overdue")) == 1)
    (letter,) = client.dead_letters("overdue")
    assert "longer than 4 s" in letter.last_error


def test_a_deadline_may_be_a_month(client, tmp_path):
    notes = tmp_path / "notes"
    filled(client, "month", notes, b"good", b"again")
    with client.worker(
        "month", "month", handle, processes=True, retries=1, deadline="30d"
    ) as worker:
        until(lambda: is_finished(client, "month"))
    assert worker.failed == 0
    assert [line[0] for line in lines(notes)] == ["good", "again", "again"]


def test_a_stop_kills_what_does_not_end_within_its_grace(client, tmp_path):
    notes = tmp_path / "notes"
    filled(client, "graceless", notes, b"stuck")
    with client.worker("graceless", "graceless", handle, processes=True, grace="1ms"):
        until(lambda: lines(notes))
    (line,) = lines(notes)
    until(lambda: not is_there(int(line[1])))


def test_a_signal_for_all_processes_lets_a_handler_finish(client, tmp_path):
    """As systemd stops a unit: SIGTERM to the worker, and to the processes of its handlers."""
    notes, go_on = tmp_path / "notes", tmp_path / "go-on"
    os.mkfifo(go_on)
    pipe = os.open(go_on, os.O_RDWR)
    filled(client, "sigterm", notes, b"first", b"waits")
    with client.worker("sigterm", "sigterm", handle, processes=True, retries=0) as worker:
        until(lambda: len(lines(notes)) == 2)
        os.kill(int(lines(notes)[1][1]), signal.SIGTERM)
        worker.stop()
        os.write(pipe, b"x")
    os.close(pipe)
    assert (worker.done, worker.failed) == (2, 0)
    assert is_finished(client, "sigterm")


FORGETFUL = """
import sys
from penstock.client import Client
from tests.client.process_handlers import handle
from tests.client.servers import until

url, notes = sys.argv[1:]
if __name__ == "__main__":
    client = Client(url)
    client.worker("unclosed", "unclosed", handle, processes=True).__enter__()
    until(lambda: "stuck" in open(notes).read())
"""


def test_a_program_that_forgets_its_worker_ends_and_so_do_the_handlers(client, url, tmp_path):
    notes, program = tmp_path / "notes", tmp_path / "forgetful.py"
    notes.touch()
    program.write_text(FORGETFUL)
    filled(client, "unclosed", notes, b"stuck")
    command = [sys.executable, str(program), url, str(notes)]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=os.environ | path, check=True, timeout=120)
    (line,) = lines(notes)
    until(lambda: not is_there(int(line[1])))


def test_what_no_process_could_run_is_refused(client):
    def inner(_message) -> None: ...

    for handler in (inner, lambda _: None, client.lag):
        with pytest.raises(Refused):
            client.worker("orders", "billing", handler, processes=True)
    with pytest.raises(Refused):
        client.worker("orders", "billing", handle, processes=True, concurrency=257)
    with pytest.raises(Refused):
        client.worker("orders", "billing", handle, processes=2)
    with pytest.raises(Refused):
        AsyncClient("penstock://127.0.0.1:1").worker("orders", "billing", handle, processes=True)
