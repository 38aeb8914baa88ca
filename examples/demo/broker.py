"""A broker process for the demo: started, killed, started again."""

import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import IO, Self

from penstock.errors import Unavailable

_STOP_TIMEOUT_S = 30
_LINES_KEPT = 20


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Delay signals until after the block: in the middle of a start they would leave the broker process running."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {
        one: signal.signal(one, lambda number, _frame: came.append(number)) for one in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in came:
        signal.raise_signal(one)


class BrokerProcess:
    """`penstock serve` on a data directory. A second start uses the port of the first, so that clients find it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = 0
        self.address = ""
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._listener: Thread | None = None

    def start(self) -> None:
        """Start the broker and wait until it listens."""
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            with signals_held_back():
                stderr = self._begin()
            self._find_address(stderr)
        except BaseException:
            self.kill()
            raise

    def _begin(self) -> IO[str]:
        command = [sys.executable, "-m", "penstock", "serve", "--log-level", "warning"]
        words = ["--port", "0", "--binary-port", str(self.port), "--data-dir", str(self.data)]
        # A session of its own, so that Ctrl-C only reaches the demo, which then stops the broker. Settings of the
        # environment and of the present directory are not for it.
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, *words],
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.data,
            start_new_session=True,
            env={name: one for name, one in os.environ.items() if not name.startswith("PENSTOCK_")},
        )
        assert self._process.stderr is not None, "it is a pipe"
        return self._process.stderr

    def _find_address(self, lines: IO[str]) -> None:
        for line in lines:
            self._said.append(line)
            if found := re.search(r"listens on http://\S+ and (penstock://\S+:(\d+))", line):
                self.address, self.port = found[1], int(found[2])
                # The output has to be read, or the broker stops when the pipe is full.
                self._listener = Thread(target=self._said.extend, args=(lines,), daemon=True)
                self._listener.start()
                return
        raise Unavailable(f"the broker did not start: {' '.join(self._said)[-500:]}")

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._listener is not None:
            self._listener.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def stop(self) -> None:
        """Stop the broker with SIGTERM; kill it if it does not end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"the broker did not stop within {_STOP_TIMEOUT_S} s") from None
        finally:
            self.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an interrupt the demo does not wait.
        (self.stop if kind is None else self.kill)()
