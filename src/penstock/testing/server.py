"""A broker process for tests: started on a free port, stopped at the end."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import Unavailable

# A stop syncs every log: of some hundred topics on a busy machine that takes a while.
_STOP_TIMEOUT_S = 120


@contextmanager
def running_server(data: Path, *words: str) -> Iterator[str]:
    """Runs `penstock serve` on a data directory, with more `words` for its command line.

    Returns its address for clients.
    """
    ports = ("--port", "0", "--binary-port", "0")
    command = [sys.executable, "-m", "penstock", "serve", *ports, "--data-dir", str(data)]
    server = subprocess.Popen(  # noqa: S603 - our own program, and the test's own words
        [*command, *words], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None, "it is a pipe"
    try:
        yield _address(server.stderr)
    finally:
        server.terminate()
        try:
            server.communicate(timeout=_STOP_TIMEOUT_S)
        finally:
            server.kill()


def _address(lines: Iterator[str]) -> str:
    said = []
    for line in lines:
        if found := re.search(r"listens on https?://\S+ and (penstocks?://\S+)", line):
            return found[1]
        said.append(line)
    raise Unavailable(f"the broker did not start: {' '.join(said)[-500:]}")
