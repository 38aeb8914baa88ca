"""A broker for Kafka clients: `penstock serve`, as users start it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_READY = re.compile(r"(https?://\S+) and penstocks?://127\.0\.0\.1:(\d+)")
_STOP_TIMEOUT_S = 120


class KafkaAddress(NamedTuple):
    host: str
    port: int
    # Of the other listener.
    http: str = ""
    pid: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@contextmanager
def running_broker(
    data: Path, environment: Mapping[str, str] | None = None
) -> Iterator[KafkaAddress]:
    """Serve a directory until the end of the block."""
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--binary-port", "0"]
    server = subprocess.Popen(
        [*command, "--data-dir", str(data)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_BROKER__AUTO_CREATE_TOPICS": "true", **(environment or {})},
    )
    assert server.stderr is not None
    try:
        seen = []
        for line in server.stderr:
            seen.append(line)
            if found := _READY.search(line):
                break
        else:
            raise AssertionError(f"no broker: {''.join(seen)}")
        yield KafkaAddress("127.0.0.1", int(found[2]), found[1], server.pid)
    finally:
        server.terminate()
        server.wait(_STOP_TIMEOUT_S)
        rest = server.stderr.read()
        server.stderr.close()
    assert "Traceback" not in rest, rest
