"""Starts brokers as forks of a process that has loaded them, and kills them: a start takes a tenth of the time.

Reads lines of JSON: the words of `penstock` and where its output goes, or null to kill the broker that runs. Answers a
line when that is done.
"""

import json
import os
import signal
import sys
import traceback

from penstock.cli import main
from penstock.server import serving
from tests.client.servers import ENDED


def start(words: list[str], output: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, stream in enumerate((nothing, written, written)):
        os.dup2(stream, number)
    sys.argv = ["penstock", *words]
    try:
        main()
    except BaseException:
        # The process ends without the interpreter's own words.
        traceback.print_exc()
    finally:
        sys.stderr.write(f"{ENDED}\n")
        sys.stderr.flush()
        os._exit(1)


def serve_lines() -> None:
    assert serving.Serving, "loaded before the first fork"
    pid = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pid = 0
        else:
            pid = start(*asked)
        sys.stdout.write("done\n")
        sys.stdout.flush()
    if pid:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve_lines()
