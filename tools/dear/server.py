"""The broker that is judged: `penstock serve` in a process of its own, whose objects can be counted from inside.

    python -m dear.server serve --data-dir DIR ...

The product has no door for debugging. This program runs its command line as it is, beside a thread that answers each
line of stdin with a line of JSON on stdout: how many commands are reachable, by their type.
"""

import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from select import select

START_S = 600.0
TOOLS = Path(__file__).parents[1]
"""Where a child process has to start for `python -m dear.name` to be found."""
_SETTINGS = ("--set", "auth.enabled=true", "--log-level", "error")


class NotWell(Exception):
    """The broker ended, or says nothing any more."""


class JudgedBroker:
    """A broker process. It can be started again on the same data."""

    def __init__(self, directory: Path, words: tuple[str, ...] = ()) -> None:
        self.directory, self._words = directory, words
        self.log = directory / "log"
        self.http = self.binary = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it was started"
        return self._process

    @property
    def admin_key(self) -> str:
        return (self.directory / "data" / "admin.key").read_text().strip()

    def start(self) -> None:
        """Return when it listens. NotWell: it ended before."""
        at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as log:
            command = [sys.executable, "-m", "dear.server", "serve", "--port", "0"]
            command += ["--binary-port", "0", "--data-dir", str(self.directory / "data")]
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                [*command, *_SETTINGS, *self._words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=TOOLS,
            )
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            said = self.log.read_text(errors="replace")[at:]
            if ports := re.search(r"listens on http://\S+?:(\d+) and penstock://\S+?:(\d+)", said):
                self.http, self.binary = int(ports[1]), int(ports[2])
                return
            if self.process.poll() is not None:
                raise NotWell(f"the broker did not start: {said[-500:]}")
            time.sleep(0.05)
        raise NotWell(f"the broker did not listen within {START_S:g} s")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=START_S)
            finally:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def resident_bytes(self) -> int:
        """NotWell: the process is gone."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except FileNotFoundError:
            raise NotWell("the broker ended") from None
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        if resident is None:
            raise NotWell("the broker ended")
        return int(resident[1]) * 1024

    def commands_held(self, patience_s: float) -> Mapping[str, int]:
        """How many commands are reachable in the broker, by type. NotWell: it does not say."""
        process = self.process
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        try:
            process.stdin.write("count\n")
            process.stdin.flush()
        except OSError:
            raise NotWell("the broker ended") from None
        if not select([process.stdout], [], [], patience_s)[0]:
            raise NotWell(f"the broker did not count its objects within {patience_s:g} s")
        line = process.stdout.readline()
        if not line:
            raise NotWell("the broker ended")
        counts: dict[str, int] = json.loads(line)
        return counts

    def tracebacks(self) -> int:
        """How many lines of its log tell of a mistake of the server."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")


@contextmanager
def judged_broker(directory: Path, *words: str) -> Iterator[JudgedBroker]:
    """A broker on the data in a directory, running; it is killed at the end."""
    broker = JudgedBroker(directory, words)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def count_commands() -> dict[str, int]:
    """The commands that objects made since the start refer to, by type.

    Nothing is collected before: what hangs together in a cycle stays for as long as it takes the collector to come.
    A command of plain fields is not known to the collector, so what refers to it is asked. What was there at the start
    is frozen, and not among these objects.
    """
    from penstock.api.command import Command

    objects = gc.get_objects()
    commands = {
        id(command): type(command).__name__
        for command in (*objects, *gc.get_referents(*objects))
        if isinstance(command, Command)
    }
    return dict(Counter(commands.values()))


def _answer_counts() -> None:
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(count_commands()) + "\n")
        sys.stdout.flush()
    # The judge is gone, and this broker was its own.
    os._exit(0)


def main() -> None:
    from penstock.cli import main as penstock

    threading.Thread(target=_answer_counts, daemon=True).start()
    penstock()


if __name__ == "__main__":
    main()
