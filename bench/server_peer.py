"""Servers to compare with, each as a process of its own: one that does nothing, and ours on a slow disk.

    python -m bench.server_peer empty
    python -m bench.server_peer slow DATA_DIR

Both say on stderr where they listen, as `penstock serve` does.
"""

import asyncio
import os
import sys
import time
from typing import Any

SLOW_SYNC_S = 0.005


async def answer_nothing(_scope: Any, receive: Any, send: Any) -> None:
    """The least that a handler has to do: read the body, send an answer."""
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def serve_nothing() -> None:
    import uvicorn
    import uvloop

    from penstock.server.serving import address_of, listen

    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        answer_nothing,
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    say(address_of(listener, is_tls=False))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


def serve_slowly(data: str) -> None:
    """Run the server on a disk whose fsync takes as long as a real one's."""
    from penstock.server.logs import configure_logging
    from penstock.server.serving import Serving
    from penstock.server.settings_sources import read_settings

    sync_really = os.fdatasync

    def sync_slowly(descriptor: int) -> None:
        time.sleep(SLOW_SYNC_S)
        sync_really(descriptor)

    os.fdatasync = sync_slowly  # type: ignore[assignment]  # The same, later.
    os.fsync = sync_slowly  # type: ignore[assignment]  # The same, later.
    flags = {("broker", "port"): 0, ("broker", "binary_port"): 0, ("broker", "data_dir"): data}
    # A log that is not read fills its pipe, and then the server waits.
    settings = read_settings(flags={**flags, ("log", "level"): "error"})
    Serving(settings, lambda: settings, configure_logging(settings.log)).run(say)


def say(address: str, _binary: str = "") -> None:
    sys.stderr.write(f"listens on {address}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    if sys.argv[1] == "empty":
        serve_nothing()
    else:
        serve_slowly(sys.argv[2])
