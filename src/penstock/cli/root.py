"""The table of commands, and the command that holds them."""

import io
import os
import sys

import click

from .exits import MEANINGS, PROGRAM, run
from .lazy_group import LazyCommand, LazyGroup

COMPLETION_VARIABLE = "_PENSTOCK_COMPLETE"  # The shell's script sets it to ask for completions.

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))

# A new command is one line here and one module beside this one.
COMMANDS = {
    "serve": LazyCommand("penstock.cli.serve:serve", "Run the broker as a server."),
    "promote": LazyCommand(
        "penstock.cli.standby:promote",
        "Have this machine's node lead: after a failure, or planned.",
    ),
    "standby": LazyCommand("penstock.cli.standby:standby", "Look at a broker and its standby."),
    "certs": LazyCommand(
        "penstock.cli.certs:certs", "Make certificates for a broker and its standby."
    ),
    "topic": LazyCommand(
        "penstock.cli.topic:topic", "Make, list, look at, change and delete topics."
    ),
    "produce": LazyCommand("penstock.cli.produce:produce", "Publish messages to a server."),
    "consume": LazyCommand("penstock.cli.consume:consume", "Print messages of a server."),
    "worker": LazyCommand(
        "penstock.cli.worker:worker", "Call a Python function for every message of a group."
    ),
    "group": LazyCommand("penstock.cli.group:group", "Look at groups, move them and forget them."),
    "delay": LazyCommand("penstock.cli.delay:delay", "Messages that wait for their time."),
    "schedule": LazyCommand(
        "penstock.cli.schedule:schedule", "Messages that come again and again."
    ),
    "transactions": LazyCommand(
        "penstock.cli.transactions:transactions", "List transactions, look at them, abort them."
    ),
    "commits": LazyCommand(
        "penstock.cli.commits:commits", "List names of commits, look at them, forget them."
    ),
    "dlq": LazyCommand(
        "penstock.cli.dlq:dlq", "Look at dead letters, correct them, send them back."
    ),
    "trace": LazyCommand(
        "penstock.cli.trace:trace", "Where a message is, and everything that happened to it."
    ),
    "schema": LazyCommand(
        "penstock.cli.schema:schema", "Register, list, look at, check and compare schemas."
    ),
    "top": LazyCommand("penstock.cli.top:top", "Watch topics, lanes, groups and lag, live."),
    "pipeline": LazyCommand(
        "penstock.cli.pipeline:pipeline", "Run what a YAML file describes, on Spark."
    ),
    "archive": LazyCommand(
        "penstock.cli.archive:archive", "Topics into a lake, exactly once, with proof."
    ),
    "replay": LazyCommand(
        "penstock.cli.replay:replay", "A part of a topic into a topic once more, each message once."
    ),
    "copy": LazyCommand(
        "penstock.cli.replay:copy", "A topic into another one, with other partitions; may follow."
    ),
    "export": LazyCommand(
        "penstock.cli.export:export", "A topic with delayed messages and groups into a directory."
    ),
    "import": LazyCommand(
        "penstock.cli.export:import_topic", "What was exported into another broker, once."
    ),
    "load": LazyCommand("penstock.cli.load:load", "Files into a topic, each row once."),
    "sql": LazyCommand("penstock.cli.sql:sql", "A query over topics and lakes; a table or a plot."),
    "spark": LazyCommand(
        "penstock.cli.spark:spark", "Where a stream that read from Kafka is, to go on here."
    ),
    "context": LazyCommand("penstock.cli.context:context", "Several servers, by name."),
    "keys": LazyCommand("penstock.cli.keys:keys", "Make, list, rotate and revoke API keys."),
    "audit": LazyCommand("penstock.cli.audit:audit", "Check the log of what administrators did."),
    "config": LazyCommand(
        "penstock.cli.config:config", "Check settings, show them, list what there is."
    ),
    "bench": LazyCommand(
        "penstock.cli.bench:bench", "Put load on a running server and report what it does."
    ),
    "queue": LazyCommand(
        "penstock.cli.queue:queue", "Look into a queue on disk, put, get, clean up."
    ),
    "log": LazyCommand(
        "penstock.cli.log:log", "Look into the files of a log, check and repair them."
    ),
    "completion": LazyCommand(
        "penstock.cli.completion:completion", "Print a shell completion script."
    ),
}

EXIT_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())

EPILOG = f"""\b
Examples:
  penstock serve                   the broker, on 127.0.0.1:8080
  penstock produce orders lamp     a message
  penstock consume orders          all of them
  penstock top                     what goes on, live
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


ALIASES = {
    "pub": "produce",
    "publish": "produce",
    "send": "produce",
    "sub": "consume",
    "subscribe": "consume",
    "read": "consume",
    "status": "top",
    "topics": "topic",
    "groups": "group",
}


class Root(LazyGroup):
    table = COMMANDS
    aliases = ALIASES


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


def complete_streams() -> None:
    """Replace standard streams that the caller closed (`>&-`) by /dev/null.

    Otherwise the next file that is opened gets the number of the stream, and output goes into that file.
    """
    for number, (name, flags) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)
            os.set_inheritable(null, null == number)
            mode = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, open(null, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open until the process ends


def main() -> None:
    """The console script."""
    complete_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal does not have are escaped, instead of raising an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    if asked := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, asked))
    sys.exit(run(root, sys.argv[1:]))
