"""Servers that come and go."""

import json
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

# A port below those that the system gives to servers: none of ours listens there.
NOWHERE = "penstock://127.0.0.1:1"
# A start syncs every log that it finds. On a busy machine that takes minutes; one that fails is seen at once.
START_S = 300
ENDED = "the broker has ended"


def until(found, seconds=120):
    """Wait for a condition; returns its value."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return value


class Server:
    """A broker process that keeps its port and its data from one life to the next."""

    def __init__(self, data, *words):
        self.data, self.words, self.port = data, words, 0
        self.process, self.is_over = None, False
        self._one_at_a_time = threading.Lock()

    @property
    def url(self):
        return f"penstock://127.0.0.1:{self.port}"

    def restart(self, pause_s=0.2):
        """Dead for a moment, and there again."""
        with self._one_at_a_time:
            if not self.is_over:
                self.kill()
                time.sleep(pause_s)
                self.start()

    def end(self):
        with self._one_at_a_time:
            self.is_over = True
            self.kill()

    def start(self):
        place = ["serve", "--data-dir", str(self.data)]
        words = ["--port", "0", "--binary-port", str(self.port), *self.words]
        output = self.data.with_name("output.txt")
        output.unlink(missing_ok=True)
        output.touch()
        self._launch([*place, *words], output)
        listens = re.compile(r"listens on http://\S+ and penstock://\S+:(\d+)\b.*\n")
        until(lambda: listens.search(output.read_text()) or self._has_ended(output), START_S)
        found = listens.search(output.read_text())
        assert found, f"it did not start: {output.read_text()}"
        self.port = int(found[1])

    def _has_ended(self, _output):
        return self.process.poll() is not None

    def _launch(self, words, output):
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words], stderr=stream
            )

    def kill(self):
        self.process.kill()
        self.process.wait()


class ForkedServer(Server):
    """A broker for many lives: each is the fork of a process that has loaded the modules of a broker."""

    def __init__(self, data, *words):
        super().__init__(data, *words)
        self._launcher = subprocess.Popen(
            [sys.executable, "-m", "tests.client.broker_launcher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def _launch(self, words, output):
        self._ask([words, str(output)])

    def kill(self):
        self._ask(None)

    def _has_ended(self, output):
        return ENDED in output.read_text()

    def end(self):
        super().end()
        self._launcher.communicate()

    def _ask(self, what):
        self._launcher.stdin.write(json.dumps(what) + "\n")
        self._launcher.stdin.flush()
        assert self._launcher.stdout.readline() == "done\n"


@contextmanager
def restartable(data, *words, kind=Server):
    server = kind(data, *words)
    server.start()
    try:
        yield server
    finally:
        server.end()
