"""Runs a command in a process of its own, and starts it again when files change. For development."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import click

_LOOK_S = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Directories of tools and packages: large, and not what the user edits.
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def run_reloading(words: Sequence[str], directory: Path) -> int:
    """Run `penstock WORDS` until SIGTERM or Ctrl-C, again after each change of a .py file. Returns its exit code.

    A command that ended by itself, such as after a syntax error, is started at the next change. A second Ctrl-C kills
    the command.
    """
    stop = Event()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def once(_number: int, _frame: object) -> None:
        restore()
        stop.set()

    for number in _SIGNALS:
        signal.signal(number, once)
    try:
        return _run_until(stop, [sys.executable, "-m", "penstock", *words], directory)
    finally:
        restore()


def _run_until(stop: Event, command: list[str], directory: Path) -> int:
    while True:
        known = stamps(directory)
        # Its own session: Ctrl-C of the terminal comes to this process only, which passes on one SIGTERM.
        with subprocess.Popen(command, start_new_session=True) as process:  # noqa: S603  # Our own words again.
            try:
                changed = _next_change(stop, known, directory)
                process.terminate()
                process.wait()
            finally:
                process.kill()  # Does nothing to a process that has ended.
        if changed is None:
            return max(
                0, process.returncode
            )  # Below 0: the SIGTERM came before its handler was there.
        click.echo(f"{changed} has changed, starting again", err=True)


def _next_change(stop: Event, known: dict[Path, tuple[int, int]], directory: Path) -> Path | None:
    """Returns a file that is new, gone or changed; None after a signal."""
    while not stop.wait(_LOOK_S):
        differing = known.items() ^ stamps(directory).items()
        if differing:
            return min(path for path, _ in differing)
    return None


def stamps(directory: Path) -> dict[Path, tuple[int, int]]:
    """Returns time and size of all .py files below a directory."""
    found = {}
    for path in python_files(directory):
        try:
            status = path.stat()
        except OSError:
            continue  # Removed between the listing and this look.
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def python_files(directory: Path) -> Iterator[Path]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [
            one for one in directories if one not in _SKIPPED and not one.startswith(".")
        ]
        yield from (Path(parent, one) for one in files if one.endswith(".py"))
