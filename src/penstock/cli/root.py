"""The table of commands, and the command that holds them."""

import os
import sys

import click

from .exits import MEANINGS, PROGRAM, run
from .lazy import Lazy, LazyGroup

COMPLETION_VARIABLE = "_PENSTOCK_COMPLETE"  # Set by the shell's script when it asks us for words.

# A new command is one line here and one module beside this one.
COMMANDS = {
    "serve": Lazy("penstock.cli.serve:serve", "Run the broker as a server."),
    "keys": Lazy("penstock.cli.keys:keys", "Make, list, rotate and revoke API keys."),
    "config": Lazy("penstock.cli.config:config", "Check settings, show them, list what there is."),
    "topic": Lazy("penstock.cli.topic:topic", "Make, list, look at and delete topics."),
    "produce": Lazy("penstock.cli.produce:produce", "Publish messages to a server."),
    "consume": Lazy("penstock.cli.produce:consume", "Print messages of a server."),
    "demo": Lazy("penstock.cli.demo:demo", "Write a log, kill the writer, recover, and prove it."),
    "bench": Lazy("penstock.cli.bench:bench", "Measure this machine against the goals."),
    "log": Lazy("penstock.cli.log:log", "Look into the files of a log, check and repair them."),
    "completion": Lazy("penstock.cli.completion:completion", "Print a shell completion script."),
    "queue": Lazy("penstock.cli.queue:queue", "Look into a queue on disk, put, get, clean up."),
}

EXIT_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())

EPILOG = f"""\b
Examples:
  penstock serve                   the broker, on 127.0.0.1:8080
  penstock demo                    a log is written, killed and recovered
  penstock bench codec --quick     measure encoding and decoding
  penstock bench --list            what can be measured
  penstock COMMAND --help          more about one command

\b
Exit codes:
{EXIT_CODES}
"""


def print_version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if not is_asked or ctx.resilient_parsing:
        return
    from .. import __version__

    click.echo(f"penstock {__version__}")
    ctx.exit()


class Root(LazyGroup):
    table = COMMANDS


@click.group(
    cls=Root,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and exit.",
)
def root() -> None:
    """A durable message log and a work queue in one."""


def main() -> None:
    """The console script."""
    if asked := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, asked))
    sys.exit(run(root, sys.argv[1:]))
