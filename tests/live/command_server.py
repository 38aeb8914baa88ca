"""Runs the `penstock` command in forked children, so that a trial does not pay for the start of an interpreter.

Run as a program it reads one JSON object a line. `{"words": [...], "output": PATH}` forks a child that opens PATH (a
FIFO or a file) as its stdout and stderr and runs `penstock WORDS`; the answer is its process id. `{"wait": PID}`
answers the exit code once the child is gone, minus the signal if one killed it.
"""

import json
import os
import sys
from importlib import import_module

from penstock.cli import main

# Imported once, for all children.
for name in (
    "penstock.cli.log",
    "penstock.log.doctor.verify",
    "penstock.server.serving",
    "uvloop",
):
    import_module(name)


def serve() -> None:
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if "wait" in order:
            status = os.waitpid(order["wait"], 0)[1]
            answer(os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            child(order["words"], order["output"])
        answer(pid)


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def child(words: list[str], output: str) -> None:
    """The command as a shell would run it. Nothing may return into the loop of the parent."""
    code = 1
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        sys.argv = ["penstock", *words]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
