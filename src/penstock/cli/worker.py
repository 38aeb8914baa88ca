"""`penstock worker`: calls a function of the user's program for every message of a group."""

import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from .arguments import span
from .consume import start_of
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..client.worker import WorkerOptions

EPILOG = """\b
Examples:
  penstock worker app:pack --topic orders --group packing
  penstock worker app:pack --topic orders --group packing --concurrency 8 --deadline 30s
  penstock worker shop.jobs:Mailer.send --topic mails --topic news --group mailer --retries 3
  penstock worker app:pack --topic orders --group packing --reload     while you write app.py

\b
app.py holds `def pack(message): ...` (or `async def`). A message is finished when the function returns, and tried again
when it raises; penstock.client.Reject makes it a dead letter at once. SIGTERM and Ctrl-C wait for functions that
run (--grace), give back what waits, leave the group and exit with 0. Lines about it go to stderr.
"""

_RELOAD = "--reload"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class WorkerCommand(click.Command):
    """Keeps the words it was called with: `--reload` calls it again with the others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = [word for word in args if word != _RELOAD]
        return super().parse_args(ctx, args)


@click.command(cls=WorkerCommand, epilog=EPILOG)
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option(
    "--topic",
    "-t",
    "topics",
    shell_complete=complete_topic,
    multiple=True,
    required=True,
    help="May be given again.",
)
@click.option(
    "--group",
    "-g",
    shell_complete=complete_group,
    required=True,
    help="Work as a member of this group.",
)
@click.option("--concurrency", "-c", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--processes", is_flag=True, help="Each in a process, killed at the deadline.")
@click.option(
    "--retries", type=click.IntRange(min=0), help="Give up after so many; or the topic's."
)
@click.option("--deadline", type=span, help="A function that takes longer has failed.")
@click.option("--grace", type=span, default="30s", show_default=True, help="For running functions.")
@click.option("--from", "start", help="Where a new group begins: earliest (default) or latest.")
@click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Where MODULE is looked for first; this directory, if nothing is said.",
)
@click.option(
    _RELOAD, "is_reloaded", is_flag=True, help="Start again when a .py file below it changes."
)
@remote_options
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    target: str,
    *,
    topics: tuple[str, ...],
    group: str,
    start: str | None,
    app_dir: Path,
    is_reloaded: bool,
    broker: BrokerOptions,
    **given: Any,
) -> None:
    """Call FUNCTION of MODULE for every message."""
    if is_reloaded:
        from .reload import run_reloading

        ctx.exit(run_reloading(["worker", *ctx.obj], app_dir))
    options: Any = {name: one for name, one in given.items() if one is not None}
    options["start"] = start_of(group, start, None, None)
    handler = handler_of(target, app_dir)
    with connected(broker) as client:
        for topic in topics:
            client.topic(topic)  # A wrong name or address is told now, and not after `patience`.
    logging.basicConfig(format=_FORMAT)  # Does nothing if the program has set up its own.
    logging.getLogger("penstock").setLevel(logging.INFO)
    work(broker, list(topics), group, handler, options)


def work(
    broker: BrokerOptions,
    topics: list[str],
    group: str,
    handler: Callable[..., Any],
    options: "WorkerOptions",
) -> None:
    """Work until SIGTERM or Ctrl-C: coroutine functions in asyncio's loop, others in threads."""
    from ..client import AsyncClient, Client, ClientSettings

    context, key = broker.found()
    settings = ClientSettings(ca_file=context.ca_file)
    if not is_asynchronous(handler):
        with Client(context.server, key=key, settings=settings) as client:
            client.worker(topics, group, handler, **options).run()
        return

    async def run() -> None:
        async with AsyncClient(context.server, key=key, settings=settings) as client:
            await client.worker(topics, group, handler, **options).run()

    import asyncio

    asyncio.run(run())


def is_asynchronous(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - the function of an object that can be called
    )


def handler_of(target: str, app_dir: Path) -> Callable[..., Any]:
    """Returns what MODULE:FUNCTION names. UsageError: it names nothing that can be called."""
    name, sign, path = target.partition(":")
    if not sign or not name or not path or name.startswith("."):
        raise click.UsageError(f"{target!r} is not MODULE:FUNCTION, such as app:pack")
    sys.path.insert(0, str(app_dir.absolute()))
    found: Any = module_of(name, app_dir)
    for part in path.split("."):
        if not hasattr(found, part):
            known = [one for one, value in vars(found).items() if is_candidate(one, value)]
            advice = f"; it has {', '.join(known[:10])}" if known else ""
            raise click.UsageError(f"{name} has no {path}{advice}")
        found = getattr(found, part)
    if not callable(found):
        raise click.UsageError(f"{target} is a {type(found).__name__}, not a function")
    handler: Callable[..., Any] = found
    return handler


def is_candidate(name: str, value: object) -> bool:
    return inspect.isfunction(value) and not name.startswith("_")


def module_of(name: str, app_dir: Path) -> Any:
    """Imports a module of the user. UsageError, with the places in the user's files, if that fails."""
    try:
        return import_module(name)
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            raise click.UsageError(f"there is no module {name} in {app_dir.absolute()}") from None
        if isinstance(error, Exception):
            raise click.UsageError(import_failure(name, error)) from None
        raise


def import_failure(name: str, error: Exception) -> str:
    lines = traceback.format_exception(type(error), error, own_places(error.__traceback__))
    return f"{name} cannot be imported\n{''.join(lines).rstrip()}"


def own_places(trace: TracebackType | None) -> TracebackType | None:
    """Returns the traceback from the first place in the user's files on."""
    ours: Sequence[str] = (__file__, import_module.__code__.co_filename)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen "):
            return trace
        trace = trace.tb_next
    return None
