"""`penstock queue`: a queue on disk, from the shell."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import header_pairs, span
from .exits import Exit
from .output import Output, one_line_of, output_options, say_more, text_of

if TYPE_CHECKING:
    from ..api.received import Received
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

COUNT = click.IntRange(min=1)
GET_MESSAGES = 500  # Leased at a time; a member of a group may have 1000.
GET_LEASE = "12h"  # The longest there is: a pager may read the pipe whenever its user has time.
DIRECTORY = click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR"
)


@click.group(epilog=EPILOG)
def queue() -> None:
    """Look into a queue on disk, put messages in and take them out."""


@queue.command(epilog="Example: penstock queue stats ./jobs --json")
@DIRECTORY
@output_options
def stats(directory: Path, *, output: Output) -> None:
    """How many messages there are, and how large the queue is."""
    with opened(directory) as found:
        figures = asdict(found.stats())
    for kind in ("write", "age"):  # What they measure is this process, which has done nothing.
        figures.pop(kind)
    if not output.is_table:
        output.record(figures)
        return
    for name, figure in figures.items():
        click.echo(f"{name.replace('_', ' '):14}{figure:>14,}")


@queue.command(epilog="Example: penstock queue peek ./jobs --count 3")
@DIRECTORY
@click.option("--count", type=COUNT, default=10, show_default=True, help="At most so many.")
@output_options
def peek(directory: Path, *, count: int, output: Output) -> None:
    """Show the next messages and leave them where they are."""
    with opened(directory) as found:
        for message in found.peek_many(count):
            show(message, output=output)


@queue.command(epilog="Example: ls | penstock queue put ./jobs - --key photos")
@DIRECTORY
@click.argument("values", nargs=-1, required=True)
@click.option("--key", help="Key of every message.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@click.option("--priority", default="normal", show_default=True, help="critical to background.")
@click.option("--ttl", type=span, help='Not handed out after this long: "30s", "2h".')
@output_options
def put(
    directory: Path,
    values: tuple[str, ...],
    *,
    key: str | None,
    headers: tuple[str, ...],
    priority: str,
    ttl: str | None,
    output: Output,
) -> None:
    """Add each of VALUES as a message; `-` stands for the lines of the standard input."""
    options: dict[str, Any] = {"key": key, "headers": header_pairs(headers), "priority": priority}
    if ttl is not None:
        options["ttl"] = ttl
    with opened(directory, is_made=True) as found:
        ids = found.put_many(list(contents(values)), **options)
    sentence = f"put {len(ids)}, ids {ids[0]} to {ids[-1]}" if ids else "put nothing"
    output.outcome(sentence, {"ids": list(ids)})


@queue.command(epilog="Example: penstock queue get ./jobs --count 100 --json")
@DIRECTORY
@click.option("--count", type=COUNT, default=1, show_default=True, help="At most so many.")
@click.option(
    "--timeout", type=span, default="0s", show_default=True, help="How long to wait for the first."
)
@output_options
@click.pass_context
def get(ctx: click.Context, directory: Path, *, count: int, timeout: str, output: Output) -> None:
    """Take messages out and print them. Nothing there: exit code 1."""
    from ..embedded.answers import release

    left = count
    # Not acked by the queue itself: that finishes messages also when the block ends because they cannot be printed.
    with opened(directory, auto_ack=False) as found:
        while left and (messages := found.get_many(min(left, GET_MESSAGES), timeout)):
            found.extend(messages, GET_LEASE)
            try:
                for message in messages:
                    show(message, output=output)
                sys.stdout.flush()  # Before they are acked: a closed pipe or a full disk must not cost a message.
            except BaseException:
                release(found, messages)  # Nor an attempt.
                raise
            found.ack(messages)
            left, timeout = left - len(messages), "0s"
    if left == count:
        ctx.exit(Exit.FOUND_PROBLEMS)


@queue.command(epilog="Example: penstock queue compact ./jobs --older-than 0s")
@DIRECTORY
@click.option(
    "--older-than",
    type=span,
    help="Finished messages older than this; retention decides if unsaid.",
)
@output_options
def compact(directory: Path, *, older_than: str | None, output: Output) -> None:
    """Free the disk space of finished messages."""
    with opened(directory) as found:
        freed = found.compact(older_than)
    sentence = f"removed {freed.segments_removed} files, freed {freed.bytes_freed:,} bytes"
    output.outcome(sentence, freed._asdict())


@queue.command("dead-letters", epilog="Example: penstock queue dead-letters ./jobs --json")
@DIRECTORY
@click.option("--count", type=COUNT, default=100, show_default=True, help="At most so many.")
@output_options
def dead_letters(directory: Path, *, count: int, output: Output) -> None:
    """Show messages that were given up, and why."""
    with opened(directory) as found:
        letters = found.dead_letters(count + 1)
        for dead in letters[:count]:
            if not output.is_table:
                line = {"id": dead.id, "reason": dead.reason, "error": dead.error}
                more = {"attempts": dead.attempts, "key": text_of(dead.key)}
                output.item({**line, **more, "value": text_of(dead.value)})
            else:
                why = f"{dead.reason} after {dead.attempts}: {dead.error}"
                click.echo(f"{dead.id}\t{why}\t{one_line_of(dead.value)}")
    if len(letters) > count:
        say_more(count, "--count")


@queue.command(epilog="Example: penstock queue requeue ./jobs 17 18")
@DIRECTORY
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@output_options
@click.pass_context
def requeue(
    ctx: click.Context, directory: Path, ids: tuple[int, ...], *, is_all: bool, output: Output
) -> None:
    """Hand dead letters out once more: those with IDS, or all. Exit code 1 if one of them could not."""
    if bool(ids) == is_all:
        raise click.UsageError("say which: some ids, or --all")
    with opened(directory) as found:
        chosen = (
            None if is_all else [one for one in found.dead_letters(sys.maxsize) if one.id in ids]
        )
        done = found.requeue(chosen)
    missing = set(ids) - {one.id for one in chosen or ()}
    if missing:
        click.echo(f"no dead letters: {', '.join(map(str, sorted(missing)))}", err=True)
    output.outcome(f"requeued {done.requeued}, failed {done.failed}", done._asdict())
    if missing or done.failed:
        ctx.exit(Exit.FOUND_PROBLEMS)


def opened(directory: Path, *, is_made: bool = False, auto_ack: bool = True) -> "Queue":
    from ..embedded.open_queue import open_queue
    from ..errors import FileMissing

    with suppress(FileNotFoundError, NotADirectoryError):
        directory.joinpath(
            "meta"
        ).stat()  # PermissionError: `is_dir` would say that there is nothing.
    is_empty = not directory.joinpath("meta").is_dir()
    # In the directory of a broker `open_queue` would make one more topic. The second pattern is that of an earlier
    # version, whose directory is refused by name.
    queues = [*directory.glob("topics/*/queue.*"), *directory.glob("topics/queue.*")]
    is_brokers = not is_empty and not queues
    if is_brokers or (is_empty and not is_made):
        raise FileMissing(f"a queue in {directory}")
    return open_queue(directory, auto_ack=auto_ack)


def contents(values: tuple[str, ...]) -> Iterator[bytes]:
    for value in values:
        if value == "-":
            yield from (line.rstrip(b"\n") for line in sys.stdin.buffer)
        else:
            yield value.encode(errors="surrogateescape")


def show(message: "Received", *, output: Output) -> None:
    if output.is_table:
        click.echo(f"{message.id}\t{one_line_of(message.value)}")
        return
    from ..api.json.messages import PRIORITY_NAMES

    line = {
        "id": message.id,
        "key": text_of(message.key),
        "value": text_of(message.value),
        "headers": [[name, text_of(value)] for name, value in message.headers],
        "priority": PRIORITY_NAMES[message.priority],
        "timestamp_ns": str(message.timestamp),
        "attempts": message.attempts,
    }
    output.item(line)
