"""Handlers for tests of workers with processes: another process imports them."""

import os
import signal
import time
from pathlib import Path

from penstock.client import Reject, Retry


def handle(message) -> None:
    """Do what the value says, and leave a line in the file that a header names."""
    (_, name), *_ = message.headers
    with Path(name.decode()).open("a") as file:
        file.write(f"{message.value.decode()} {os.getpid()} {message.attempts}\n")
    match message.value:
        case b"fails":
            raise ValueError("cannot pack this")
        case b"never":
            raise Reject("no order")
        case b"again" if message.attempts == 1:
            raise Retry("not yet", delay="1ms")
        case b"dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"waits":
            with Path(name.decode()).with_name("go-on").open("rb", buffering=0) as pipe:
                pipe.read(1)
        case b"stuck":
            time.sleep(3600)
