"""How a run ends: one exit code for each kind of outcome, one readable line for each error."""

import contextlib
import os
import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from ..errors import Damaged, Fatal, PenstockError, Refused, Unauthenticated, Unavailable

PROGRAM = "penstock"


class Exit(IntEnum):
    """Exit codes; scripts rely on them."""

    OK = 0
    FOUND_PROBLEMS = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130
    # 128 + SIGPIPE, what a shell reports for any program whose reader went away.
    OUTPUT_CLOSED = 141


MEANINGS = {
    Exit.OK: "done",
    Exit.FOUND_PROBLEMS: "a check found problems, or stored bytes are damaged",
    Exit.USAGE: "the command line is wrong",
    Exit.REFUSED: "the request was refused; repeating it will not help",
    Exit.UNAVAILABLE: "something it needs is not there; try again later",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
    Exit.OUTPUT_CLOSED: "nobody reads the output any more (as in `| head`)",
}

EXIT_OF_FAMILY: dict[type[PenstockError], Exit] = {
    Refused: Exit.REFUSED,
    Unavailable: Exit.UNAVAILABLE,
    Damaged: Exit.FOUND_PROBLEMS,
    Fatal: Exit.UNAVAILABLE,
}


def run(command: click.Command, args: Sequence[str]) -> int:
    """Run a command to its exit code. Only a bug of ours gets through as an exception."""
    try:
        # Not command.main(): it answers a closed pipe with exit code 1, which here means something else.
        with command.make_context(PROGRAM, list(args)) as context:
            command.invoke(context)
        sys.stdout.flush()  # Here, where a closed pipe can still be answered.
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.REFUSED
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except PenstockError as error:
        complain(f"{error}{hint_of(error)} ({error.code})")
        return exit_of(error)
    except BrokenPipeError:
        abandon_stdout()
        return Exit.OUTPUT_CLOSED
    except OSError as error:
        about = f"{error.filename}: " if error.filename is not None else ""
        complain(f"{about}{error.strerror or error}")
        return Exit.UNAVAILABLE
    return Exit.OK


def exit_of(error: PenstockError) -> Exit:
    return next(
        (code for family, code in EXIT_OF_FAMILY.items() if isinstance(error, family)),
        Exit.REFUSED,
    )


def hint_of(error: PenstockError) -> str:
    """What a server cannot know: how this program is told."""
    return "; here with --key-file or PENSTOCK_KEY" if isinstance(error, Unauthenticated) else ""


def complain(text: str) -> None:
    """One line on stderr, whatever the text holds; quiet when stderr is closed too."""
    with contextlib.suppress(BrokenPipeError):
        click.echo("Error: " + " ".join(text.split()), err=True)


def abandon_stdout() -> None:
    """Make the interpreter's last flush go nowhere, so that it does not complain about the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
