"""`penstock log`: look into the files of a log, check them, repair them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING

import click

from ..errors import AlreadyOpen, PenstockError, Refused
from .exits import Exit, complain, exit_of
from .lazy import Lazy, LazyGroup
from .log_places import Place, find_places, is_data_directory
from .log_show import (
    InUse,
    ignore,
    run_steps,
    say,
    say_name,
    say_problem,
    say_report,
)

if TYPE_CHECKING:
    from ..model import LogId
    from ..ports import Disk

EPILOG = """\b
Examples:
  penstock log verify data                       check every log in a data directory
  penstock log stats data/topics/orders.1        figures of the logs of a topic
  penstock log dump DIR --offset 500 --limit 10  some messages
  penstock log repair DIR --dry-run              what a repair would do

DIR is the directory of a log (.../partition-0/messages), or one that has logs somewhere below it.
All but repair only read, also while a broker runs.
"""

VERIFY_EPILOG = """\b
Examples:
  penstock log verify data
  penstock log verify data --json | jq 'select(.severity == "damage")'

\b
A problem is one of
  note     the log works, or puts it right by itself when it is opened
  torn     what a crash left half written; the next open cuts it off and keeps it in a file
  damage   stored messages are gone, or the log cannot be opened: see penstock log repair

\b
Exit codes: 0 nothing but notes, 1 torn or damaged, 2 wrong usage, 3 no log there.
"""

REPAIR_EPILOG = """\b
Examples:
  penstock log repair data --dry-run      what it would do; changes nothing
  penstock log repair data
  penstock log repair DIR --log-id 0x1f   where the file 'identity' is lost

What it takes out of a segment it keeps in a file beside it, named .cut-<byte>. Empty ranges stand for
messages that are lost, so that all others keep their offsets. It can be interrupted and run again.

\b
Exit codes: 0 all logs are good now, 1 something is left, 2 wrong usage, 3 in use or not a log.
"""

DUMP_EPILOG = """\b
Examples:
  penstock log dump DIR                          all messages, one a line
  penstock log dump DIR --offset 500 --limit 10
  penstock log dump DIR --heads                  one line a batch
  penstock log dump DIR --json | jq -r .value

Keys and values are shown as text if they are UTF-8, else as base64.
"""

STATS_EPILOG = """\b
Examples:
  penstock log stats data
  penstock log stats DIR --json | jq .compression_ratio
"""

COMMANDS = {
    "dump": Lazy("penstock.cli.log:dump", "Print messages, or the heads of batches."),
    "verify": Lazy("penstock.cli.log:verify", "Check every byte and say what is wrong."),
    "repair": Lazy("penstock.cli.log:repair", "Make a damaged log whole; destroys nothing."),
    "stats": Lazy("penstock.cli.log:stats", "Print figures: sizes, offsets, epochs, indexes."),
}


class LogGroup(LazyGroup):
    table = COMMANDS


@click.group(cls=LogGroup, epilog=EPILOG)
def log() -> None:
    """Look into the files of a log, check them, repair them."""


def read_log_id(_ctx: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise click.BadParameter(f"{text!r} is not a number of 64 bits, such as 77 or 0x4d")
    return number


def read_directory(_ctx: click.Context, _argument: click.Parameter, text: str) -> Path:
    """Not `click.Path`: to that a directory which we may not look at does not exist."""
    directory = Path(text)
    try:
        is_directory = S_ISDIR(directory.stat().st_mode)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise click.BadParameter(f"{text}: {reason}") from None
    if not is_directory:
        raise click.BadParameter(f"{text} is not a directory")
    return directory


directory_argument = click.argument("directory", metavar="DIR", callback=read_directory)
json_option = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
log_id_option = click.option(
    "--log-id",
    metavar="ID",
    callback=read_log_id,
    help="The log's id, if the file 'identity' cannot be read.",
)


@click.command(epilog=VERIFY_EPILOG)
@directory_argument
@json_option
@log_id_option
@click.pass_context
def verify(ctx: click.Context, directory: Path, *, is_json: bool, log_id: "LogId | None") -> None:
    """Check every log in DIR: checksums, offsets, times, contents, indexes, strange files.

    Of a whole data directory also whether every partition that meta knows is there, and what else lies about.
    """
    from ..log.doctor.verify import verifying

    in_use = InUse()

    def check(place: Place, disk: "Disk") -> bool:
        is_live = in_use.warn(place)
        say_name(place, is_json=is_json)
        steps = verifying(disk, place.directory, log_id=log_id, is_live=is_live)
        report = run_steps(steps, place, lambda step: say_problem(step, place, is_json=is_json))
        say_report(report, place, is_json=is_json)
        return report.is_good

    outcome = for_each_log(directory, check)
    if is_data_directory(directory):
        from .log_inventory import check_inventory

        is_good = check_inventory(directory, is_json=is_json)
        outcome = outcome if is_good else max(outcome, Exit.FOUND_PROBLEMS)
    ctx.exit(outcome)


@click.command(epilog=STATS_EPILOG)
@directory_argument
@json_option
@log_id_option
@click.pass_context
def stats(ctx: click.Context, directory: Path, *, is_json: bool, log_id: "LogId | None") -> None:
    """Figures of every log in DIR, from the heads of the batches alone."""
    from ..log.doctor.stats import measuring
    from .log_words import stats_fields, stats_text

    in_use = InUse()

    def measure(place: Place, disk: "Disk") -> bool:
        in_use.warn(place)
        steps = measuring(disk, place.directory, log_id=known_id(disk, place, log_id))
        found = run_steps(steps, place, ignore)
        say_name(place, is_json=is_json)
        say(place, stats_fields(found), stats_text(found), is_json=is_json)
        return True

    ctx.exit(for_each_log(directory, measure))


@click.command(epilog=DUMP_EPILOG)
@directory_argument
@click.option("--offset", type=click.IntRange(0), default=0, help="Start here.")
@click.option(
    "--limit", type=click.IntRange(0, sys.maxsize), help="Print so many lines at the most."
)
@click.option("--heads", "is_heads", is_flag=True, help="Print the heads of batches only.")
@json_option
@log_id_option
@click.pass_context
def dump(
    ctx: click.Context,
    directory: Path,
    *,
    offset: int,
    limit: int | None,
    is_heads: bool,
    is_json: bool,
    log_id: "LogId | None",
) -> None:
    """Print the messages of one log as they are stored; what cannot be read is said, and the rest goes on."""
    from itertools import islice

    from ..codec import seed_of
    from ..runtime import RealDisk
    from .log_dump import Dump

    places = find_places(directory)
    if len(places) > 1:
        known = ", ".join(place.shown for place in places[:5])
        raise click.UsageError(f"there are {len(places)} logs; name one of {known}", ctx)
    (place,) = places
    InUse().warn(place)
    is_whole = True
    with RealDisk.open_read_only(place.root) as disk:
        seed = seed_of(known_id(disk, place, log_id))
        wanted = Dump(place=place, seed=seed, offset=offset, is_heads=is_heads, is_json=is_json)
        for line in islice(wanted.lines(disk), limit):
            click.echo(line.text)
            is_whole = is_whole and line.is_whole
    ctx.exit(Exit.OK if is_whole else Exit.FOUND_PROBLEMS)


@click.command(epilog=REPAIR_EPILOG)
@directory_argument
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done; change nothing.")
@json_option
@log_id_option
@click.pass_context
def repair(
    ctx: click.Context, directory: Path, *, is_dry: bool, is_json: bool, log_id: "LogId | None"
) -> None:
    """Make every log in DIR whole again: nothing is destroyed, and what is good stays readable."""
    from .log_repair import repair_one

    in_use = InUse()

    def mend(place: Place, disk: "Disk") -> bool:
        if is_dry:
            in_use.warn(place)
        say_name(place, is_json=is_json)
        return repair_one(disk, place, log_id, is_dry=is_dry, is_json=is_json)

    ctx.exit(for_each_log(directory, mend, is_changed=not is_dry))


def for_each_log(
    directory: Path, act: Callable[[Place, "Disk"], bool], *, is_changed: bool = False
) -> Exit:
    """Act on every log; one that fails does not keep the others from their turn. The worst outcome counts."""
    outcome, in_use = Exit.OK, InUse()
    for place in find_places(directory):
        try:
            with open_disk(place.root, is_changed=is_changed) as disk:
                found = Exit.OK if act(place, disk) else Exit.FOUND_PROBLEMS
        except AlreadyOpen as error:
            in_use.refuse(place, error)
            found = exit_of(error)
        except PenstockError as error:
            complain(f"{place.shown}: {error} ({error.code})")
            found = exit_of(error)
        outcome = max(outcome, found)
    return outcome


@contextmanager
def open_disk(root: Path, *, is_changed: bool) -> Iterator["Disk"]:
    """For changes the directory is locked; for looking it need not be ours."""
    from ..config import StorageConfig
    from ..runtime import RealDisk

    opened = RealDisk(root, StorageConfig()) if is_changed else RealDisk.open_read_only(root)
    with opened as disk:
        yield disk


def known_id(disk: "Disk", place: Place, given: "LogId | None") -> "LogId":
    """The id that the log says it has, or the one given."""
    from ..log.doctor.verify import identity_of

    found, problem = identity_of(disk, place.directory)
    log_id = given if found is None else found
    if log_id is None:
        assert problem is not None
        raise Refused(f"{place.show(problem.path)}: {problem.reason}; give the id with --log-id")
    return log_id
