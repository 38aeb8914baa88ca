"""Exit codes of commands, and one line of text for each error."""

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from ..errors import (
    Damaged,
    Fatal,
    Internal,
    PartitionFaulty,
    PenstockError,
    Refused,
    Unauthenticated,
    Unavailable,
)

PROGRAM = "penstock"
# To try again later is no use.
_NO_RIGHTS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Exit(IntEnum):
    """Exit codes; scripts rely on them."""

    OK = 0
    FOUND_PROBLEMS = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130
    # 128 + SIGPIPE, as a shell reports it for a program whose reader has closed the pipe.
    OUTPUT_CLOSED = 141


MEANINGS = {
    Exit.OK: "done",
    Exit.FOUND_PROBLEMS: "a check found problems, or stored bytes are damaged or missing",
    Exit.USAGE: "the command line is wrong",
    Exit.REFUSED: "the request was refused; repeating it will not help",
    Exit.UNAVAILABLE: "something it needs is not there; try again later",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
    Exit.OUTPUT_CLOSED: "no program reads the output any more (as in `| head`)",
}

EXIT_OF_FAMILY: dict[type[PenstockError], Exit] = {
    Refused: Exit.REFUSED,
    Unavailable: Exit.UNAVAILABLE,
    Damaged: Exit.FOUND_PROBLEMS,
    Fatal: Exit.UNAVAILABLE,
    Internal: Exit.UNAVAILABLE,
}


def run(command: click.Command, args: Sequence[str]) -> int:
    """Run a command and return its exit code. An exception is a bug of this program."""
    try:
        # Not command.main(): that returns exit code 1 for a closed pipe.
        with command.make_context(PROGRAM, list(args)) as context:
            command.invoke(context)
        sys.stdout.flush()  # Raises BrokenPipeError here, and not at the interpreter's end.
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.REFUSED
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except PenstockError as error:
        is_keyless = isinstance(error, Unauthenticated)
        hint = "; here with --key-file or PENSTOCK_KEY" if is_keyless else ""
        print_error(f"{error}{hint} ({error.code})")
        return exit_of(error)
    except BrokenPipeError:
        discard_stdout()
        return Exit.OUTPUT_CLOSED
    except OSError as error:
        about = f"{error.filename}: " if error.filename is not None else ""
        print_error(f"{about}{error.strerror or error}")
        try:
            sys.stdout.flush()
        except (
            OSError
        ):  # A full disk: what is still to be written would fail once more, with exit code 120.
            discard_stdout()
        return Exit.REFUSED if error.errno in _NO_RIGHTS else Exit.UNAVAILABLE
    return Exit.OK


def exit_of(error: PenstockError) -> Exit:
    if isinstance(error, PartitionFaulty):
        return Exit.FOUND_PROBLEMS  # To try again later is no use.
    return next(
        (code for family, code in EXIT_OF_FAMILY.items() if isinstance(error, family)),
        Exit.REFUSED,
    )


def print_error(text: str) -> None:
    """Print a text as one line on stderr. Prints nothing when stderr is closed."""
    with contextlib.suppress(BrokenPipeError):
        click.echo("Error: " + " ".join(text.split()), err=True)


def discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
