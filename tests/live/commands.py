"""Brokers and other `penstock` commands as processes of their own, started by `command_server.py`."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PROGRAM = Path(__file__).with_name("command_server.py")
PATIENCE_S = 240


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Ended(NamedTuple):
    """Exit code, and everything that was printed."""

    code: int
    output: str


class Commands:
    """Forks children for the commands of a test; `scratch` holds their pipes."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._numbers = count()
        self._server = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(PATIENCE_S)
        self._server.stdout.close()

    def start(self, *words: str, output: Path) -> int:
        return self._ask({"words": words, "output": str(output)})

    def wait(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def _ask(self, order: dict[str, Any]) -> int:
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        return int(self._server.stdout.readline())

    def run(self, *words: str) -> Ended:
        """A command to its end."""
        output = self.scratch / f"output-{next(self._numbers)}"
        code = self.wait(self.start(*words, output=output))
        text = output.read_text(errors="replace")
        output.unlink()
        return Ended(code, text)

    def serve(self, data: Path, *words: str) -> "Broker":
        pipe = self.scratch / f"pipe-{next(self._numbers)}"
        os.mkfifo(pipe)
        more = ("--port", "0", "--data-dir", str(data), *words)
        pid = self.start("serve", *more, output=pipe)
        lines = pipe.open("r", errors="replace")
        pipe.unlink()
        return Broker(self, pid, lines)

    @contextmanager
    def broker(self, data: Path, *words: str) -> Iterator["Broker"]:
        """A broker that is killed at the end, if it still runs."""
        broker = self.serve(data, *words)
        try:
            yield broker
        finally:
            broker.end(signal.SIGKILL)


class Broker:
    """`penstock serve`. `address` is empty if it refused to start, and then it is gone."""

    def __init__(self, commands: Commands, pid: int, lines: Any) -> None:
        self._commands, self._pid, self._lines = commands, pid, lines
        self._printed: list[str] = []
        self._connection: http.client.HTTPConnection | None = None
        self.exit_code: int | None = None
        self.key = ""
        self.address = self._address()
        if not self.address:
            self._gone()

    def _address(self) -> str:
        for line in self._lines:
            self._printed.append(line)
            if found := re.search(r"listens on (https?://\S+)", line):
                return found[1]
        return ""

    @property
    def output(self) -> str:
        """What it has printed; all of it once it has ended."""
        return "".join(self._printed)

    def call(
        self, method: str, target: str, body: object = None, *, key: str | None = None
    ) -> Reply:
        """One request, with the key of the broker if no other is given."""
        if self._connection is None:
            port = urlsplit(self.address).port
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"content-type": "application/json"} if body is not None else {}
        if sent := self.key if key is None else key:
            headers["authorization"] = f"Bearer {sent}"
        content = None if body is None else json.dumps(body)
        self._connection.request(method, target, body=content, headers=headers)
        answer = self._connection.getresponse()
        return Reply(answer.status, answer.read())

    def must(self, method: str, target: str, body: object = None) -> Any:
        """The answer of a request that has to succeed."""
        reply = self.call(method, target, body)
        assert reply.status < 300, f"{method} {target}: {reply.status} {reply.body[:500]!r}"
        return reply.json if reply.body else None

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code. Once more does nothing."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
            self._gone()
        return self.exit_code

    def _gone(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._printed += self._lines
        self._lines.close()
        self.exit_code = self._commands.wait(self._pid)
