"""`penstock queue`: a queue on disk, from the shell."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exits import Exit

if TYPE_CHECKING:
    from ..broker.received import Received
    from ..embedded.queue import Queue

EPILOG = """\b
Examples:
  penstock queue put ./jobs "resize cat.jpg"      one message
  ls | penstock queue put ./jobs -                one message for each line
  penstock queue get ./jobs --count 10 --json     take ten
  penstock queue peek ./jobs                      look at the next ten
  penstock queue stats ./jobs                     how many, how large
  penstock queue dead-letters ./jobs              what was given up, and why
  penstock queue requeue ./jobs --all             hand dead letters out once more
  penstock queue compact ./jobs --older-than 1h   free the space of finished messages

One process owns a queue: while another one has it open, every command says so.
"""

DIRECTORY = click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR"
)
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


@click.group(epilog=EPILOG)
def queue() -> None:
    """Look into a queue on disk, put messages in and take them out."""


@queue.command(epilog="Example: penstock queue stats ./jobs --json")
@DIRECTORY
@JSON
def stats(directory: Path, *, is_json: bool) -> None:
    """How many messages there are, and how large the queue is."""
    with opened(directory) as found:
        figures = asdict(found.stats())
    for kind in ("write", "age"):  # What they measure is this process, which has done nothing.
        figures.pop(kind)
    if is_json:
        click.echo(json.dumps(figures))
        return
    for name, figure in figures.items():
        click.echo(f"{name.replace('_', ' '):14}{figure:>14,}")


@queue.command(epilog="Example: penstock queue peek ./jobs --count 3")
@DIRECTORY
@click.option("--count", default=10, show_default=True, help="At most so many.")
@JSON
def peek(directory: Path, *, count: int, is_json: bool) -> None:
    """Show the next messages and leave them where they are."""
    with opened(directory) as found:
        for message in found.peek_many(count):
            show(message, is_json=is_json)


@queue.command(epilog="Example: ls | penstock queue put ./jobs - --key photos")
@DIRECTORY
@click.argument("values", nargs=-1, required=True)
@click.option("--key", help="Key of every message.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@click.option("--priority", default="normal", show_default=True, help="critical to background.")
@click.option("--ttl", help='Not handed out after this long: "30s", "2h".')
@JSON
def put(
    directory: Path,
    values: tuple[str, ...],
    *,
    key: str | None,
    headers: tuple[str, ...],
    priority: str,
    ttl: str | None,
    is_json: bool,
) -> None:
    """Add each of VALUES as a message; `-` stands for the lines of the standard input."""
    options: dict[str, Any] = {"key": key, "headers": pairs(headers), "priority": priority}
    if ttl is not None:
        options["ttl"] = ttl
    with opened(directory, is_made=True) as found:
        ids = found.put_many(list(contents(values)), **options)
    if is_json:
        click.echo(json.dumps({"ids": list(ids)}))
    else:
        click.echo(f"put {len(ids)}, ids {ids[0]} to {ids[-1]}" if ids else "put nothing")


@queue.command(epilog="Example: penstock queue get ./jobs --count 100 --json")
@DIRECTORY
@click.option("--count", default=1, show_default=True, help="At most so many.")
@click.option("--timeout", default="0s", show_default=True, help="How long to wait for the first.")
@JSON
@click.pass_context
def get(ctx: click.Context, directory: Path, *, count: int, timeout: str, is_json: bool) -> None:
    """Take messages out and print them. Nothing there: exit code 1."""
    with opened(directory) as found:
        messages = found.get_many(count, timeout)
        for message in messages:
            show(message, is_json=is_json)
        sys.stdout.flush()  # Before they are gone: a closed pipe must not cost a message.
    if not messages:
        ctx.exit(Exit.FOUND_PROBLEMS)


@queue.command(epilog="Example: penstock queue compact ./jobs --older-than 0s")
@DIRECTORY
@click.option(
    "--older-than", help="Finished messages older than this; retention decides if unsaid."
)
@JSON
def compact(directory: Path, *, older_than: str | None, is_json: bool) -> None:
    """Free the disk space of finished messages."""
    with opened(directory) as found:
        freed = found.compact(older_than)
    if is_json:
        click.echo(json.dumps(freed._asdict()))
    else:
        click.echo(f"removed {freed.segments_removed} files, freed {freed.bytes_freed:,} bytes")


@queue.command("dead-letters", epilog="Example: penstock queue dead-letters ./jobs --json")
@DIRECTORY
@click.option("--count", default=100, show_default=True, help="At most so many.")
@JSON
def dead_letters(directory: Path, *, count: int, is_json: bool) -> None:
    """Show messages that were given up, and why."""
    with opened(directory) as found:
        for dead in found.dead_letters(count):
            if is_json:
                line = {"id": dead.id, "reason": dead.reason, "error": dead.error}
                more = {"attempts": dead.attempts, "key": text_of(dead.key)}
                click.echo(json.dumps({**line, **more, "value": text_of(dead.value)}))
            else:
                why = f"{dead.reason} after {dead.attempts}: {dead.error}"
                click.echo(f"{dead.id}\t{why}\t{printed(dead.value)}")


@queue.command(epilog="Example: penstock queue requeue ./jobs 17 18")
@DIRECTORY
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@JSON
def requeue(directory: Path, ids: tuple[int, ...], *, is_all: bool, is_json: bool) -> None:
    """Hand dead letters out once more: those with IDS, or all."""
    if bool(ids) == is_all:
        raise click.UsageError("say which: some ids, or --all")
    with opened(directory) as found:
        chosen = None if is_all else [one for one in found.dead_letters(10_000) if one.id in ids]
        done = found.requeue(chosen)
    if is_json:
        click.echo(json.dumps(done._asdict()))
    else:
        click.echo(f"requeued {done.requeued}, failed {done.failed}")


def opened(directory: Path, *, is_made: bool = False) -> "Queue":
    from ..embedded.open_queue import open_queue
    from ..errors import FileMissing

    if not is_made and not directory.joinpath("meta").is_dir():
        raise FileMissing(f"a queue in {directory}")
    return open_queue(directory)


def contents(values: tuple[str, ...]) -> Iterator[bytes]:
    for value in values:
        if value == "-":
            yield from (line.rstrip(b"\n") for line in sys.stdin.buffer)
        else:
            yield value.encode(errors="surrogateescape")


def pairs(headers: tuple[str, ...]) -> list[tuple[str, str]]:
    for header in headers:
        if "=" not in header:
            raise click.UsageError(f"--header: {header!r} is not NAME=VALUE")
    return [(name, value) for name, _, value in (header.partition("=") for header in headers)]


def show(message: "Received", *, is_json: bool) -> None:
    if not is_json:
        click.echo(f"{message.id}\t{printed(message.value)}")
        return
    line = {
        "id": message.id,
        "key": text_of(message.key),
        "value": text_of(message.value),
        "headers": [[name, text_of(value)] for name, value in message.headers],
        "priority": int(message.priority),
        "timestamp_ns": str(message.timestamp),
        "attempts": message.attempts,
    }
    click.echo(json.dumps(line))


def text_of(content: bytes | None) -> str | dict[str, str] | None:
    """Text if it is UTF-8, otherwise base64 that says so."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(content).decode()}


def printed(content: bytes | None) -> str:
    """One line whatever is inside."""
    if content is None:
        return "(null)"
    text = content.decode(errors="backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()
