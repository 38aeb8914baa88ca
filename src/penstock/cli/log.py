"""`penstock log`: look into the files of a log, check them, repair them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING

import click

from ..errors import AlreadyOpen, PenstockError, Refused
from .exits import Exit, exit_of, print_error
from .lazy_group import LazyCommand, LazyGroup
from .log_locations import LogLocation, find_logs, is_data_directory
from .log_output import (
    LockNotices,
    ignore,
    print_change,
    print_fields,
    print_location,
    print_problem,
    print_report,
    run_steps,
)

if TYPE_CHECKING:
    from ..broker.inventory import Inventory
    from ..log.doctor.verify import Problem
    from ..model import LogId
    from ..ports import Disk

EPILOG = """\b
Examples:
  penstock log verify data                         check every log in a data directory
  penstock log stats data/topics/default/orders.1  figures of the logs of a topic
  penstock log dump DIR --offset 500 --limit 10    some messages
  penstock log repair DIR --dry-run                what a repair would do

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
Exit codes: 0 nothing but notes, 1 torn or damaged, 2 wrong usage, 3 no log there or no right to read it.
"""

REPAIR_EPILOG = """\b
Examples:
  penstock log repair data --dry-run      what it would do; changes nothing
  penstock log repair data
  penstock log repair DIR --log-id 0x1f   where the file 'identity' of a copied log is lost
  penstock log repair data --forget-progress   where a partition has lost its directory 'state'

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
    "dump": LazyCommand("penstock.cli.log:dump", "Print messages, or the heads of batches."),
    "verify": LazyCommand("penstock.cli.log:verify", "Check every byte and say what is wrong."),
    "repair": LazyCommand("penstock.cli.log:repair", "Make a damaged log whole; destroys nothing."),
    "stats": LazyCommand(
        "penstock.cli.log:stats", "Print figures: sizes, offsets, epochs, indexes."
    ),
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
    """Returns the directory. Not `click.Path`: for that a directory without read permission does not exist."""
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
    from ..log.doctor.verify import verify_steps

    notices = LockNotices()

    def check(location: LogLocation, disk: "Disk") -> bool:
        is_live = notices.warn(location)
        print_location(location, is_json=is_json)
        wanted = replacing_id(disk, location, log_id)
        steps = verify_steps(disk, location.directory, log_id=wanted, is_live=is_live)
        report = run_steps(
            steps, location, lambda step: print_problem(step, location, is_json=is_json)
        )
        print_report(report, location, is_json=is_json)
        return report.is_good

    ctx.exit(with_inventory(directory, for_each_log(directory, check), is_json=is_json))


def with_inventory(directory: Path, outcome: Exit, *, is_json: bool) -> Exit:
    """Check a whole data directory behind its logs, too. Returns the worse outcome."""
    if not is_data_directory(directory) or check_inventory(directory, is_json=is_json):
        return outcome
    return max(outcome, Exit.FOUND_PROBLEMS)


def check_inventory(directory: Path, *, is_json: bool) -> bool:
    """Print what is missing in a data directory and what does not belong there. Returns whether it is good."""
    from ..log.doctor.verify import Severity
    from ..runtime.lock import holder_of
    from .log_text import problem_fields, problem_text

    found = inventory_of(directory)
    if holder_of(directory) is not None and not found.is_good:
        # A broker makes and deletes topics meanwhile: only problems that are found twice count.
        again = inventory_of(directory)
        found.problems = [one for one in found.problems if one in again.problems]
    location = LogLocation(directory, "", str(directory))
    print_location(location, is_json=is_json)
    for problem in found.problems:
        fields = {"type": "problem", **problem_fields(problem, f"{directory}/{problem.path}")}
        print_fields(location, fields, problem_text(problem, problem.path), is_json=is_json)
    counts = {one.value: found.counts[one] for one in Severity}
    summary = {
        "type": "directory",
        "is_good": found.is_good,
        "topics": found.topics,
        "partitions": found.partitions,
        "problems": counts,
    }
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    text = "; ".join(
        [
            "  good" if found.is_good else "  NOT GOOD",
            f"meta knows {found.topics} topics with {found.partitions} partitions",
            words or "no problems",
        ]
    )
    print_fields(location, summary, text, is_json=is_json)
    return found.is_good


def inventory_of(directory: Path) -> "Inventory":
    from ..broker.inventory import take_inventory
    from ..runtime import RealDisk
    from ..sim import SimDisk

    with RealDisk.open_read_only(directory) as disk:
        return take_inventory(disk, SimDisk(is_forgetful=True))


@click.command(epilog=STATS_EPILOG)
@directory_argument
@json_option
@log_id_option
@click.pass_context
def stats(ctx: click.Context, directory: Path, *, is_json: bool, log_id: "LogId | None") -> None:
    """Figures of every log in DIR, from the heads of the batches alone."""
    from ..log.doctor.stats import stats_steps
    from .log_text import stats_fields, stats_text

    notices = LockNotices()

    def measure(location: LogLocation, disk: "Disk") -> bool:
        notices.warn(location)
        steps = stats_steps(disk, location.directory, log_id=known_id(disk, location, log_id))
        found = run_steps(steps, location, ignore)
        print_location(location, is_json=is_json)
        print_fields(location, stats_fields(found), stats_text(found), is_json=is_json)
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

    logs = find_logs(directory)
    if len(logs) > 1:
        known = ", ".join(location.shown for location in logs[:5])
        raise click.UsageError(f"there are {len(logs)} logs; name one of {known}", ctx)
    (location,) = logs
    LockNotices().warn(location)
    is_whole = True
    with RealDisk.open_read_only(location.root) as disk:
        seed = seed_of(known_id(disk, location, log_id))
        wanted = Dump(
            location=location, seed=seed, offset=offset, is_heads=is_heads, is_json=is_json
        )
        for line in islice(wanted.lines(disk), limit):
            click.echo(line.text)
            is_whole = is_whole and line.is_whole
    ctx.exit(Exit.OK if is_whole else Exit.FOUND_PROBLEMS)


@click.command(epilog=REPAIR_EPILOG)
@directory_argument
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done; change nothing.")
@click.option(
    "--forget-progress",
    "is_forgetting",
    is_flag=True,
    help="Begin the state anew of partitions that have lost it: what groups had finished comes again.",
)
@json_option
@log_id_option
@click.pass_context
def repair(
    ctx: click.Context,
    directory: Path,
    *,
    is_dry: bool,
    is_forgetting: bool,
    is_json: bool,
    log_id: "LogId | None",
) -> None:
    """Make every log in DIR whole again: nothing is destroyed, and what is good stays readable.

    Of a whole data directory it also says which partitions are missing: those it cannot bring back.
    """
    if is_forgetting and (is_dry or not is_data_directory(directory)):
        raise click.UsageError(
            "--forget-progress is for a whole data directory, and not for a dry run", ctx
        )
    notices = LockNotices()

    def mend(location: LogLocation, disk: "Disk") -> bool:
        if is_dry:
            notices.warn(location)
        print_location(location, is_json=is_json)
        return repair_one(disk, location, log_id, is_dry=is_dry, is_json=is_json)

    outcome = for_each_log(directory, mend, is_changed=not is_dry, is_inside_only=True)
    if is_forgetting and forget_progress(directory, is_json=is_json):
        # What could not be repaired before may be gone.
        outcome = for_each_log(directory, mend, is_changed=True, is_inside_only=True)
    ctx.exit(with_inventory(directory, outcome, is_json=is_json))


def forget_progress(directory: Path, *, is_json: bool) -> bool:
    """Begin the state of those partitions anew that have lost it, and print which. Returns whether there were any."""
    from .offline import forget_states

    location = LogLocation(directory, "", str(directory))
    forgotten = forget_states(directory)
    for one in forgotten:
        groups = ", ".join(one.groups) or "none that is known"
        text = f"  forgotten  {one.topic}/{one.partition}: its messages come again; groups at its start: {groups}"
        text += f"; what was left is in {one.kept_as}" if one.kept_as else ""
        print_fields(location, {"type": "forgotten", **one._asdict()}, text, is_json=is_json)
    return bool(forgotten)


def repair_one(
    disk: "Disk", location: LogLocation, log_id: "LogId | None", *, is_dry: bool, is_json: bool
) -> bool:
    """Plan a repair, print it, do it, and check the log. Returns whether the log is good."""
    from ..config import LogConfig
    from ..log.doctor.repair import changes_of, repair_steps
    from ..log.doctor.repair_plan import plan_steps
    from ..log.doctor.verify import Severity, verify_steps

    wanted = replacing_id(disk, location, log_id)
    plan = run_steps(plan_steps(disk, location.directory, log_id=wanted), location, ignore)
    for change in changes_of(plan):
        print_change(change, location, is_json=is_json)
    for obstacle in plan.obstacles:
        print_problem(obstacle, location, is_json=is_json)
    if plan.obstacles:
        click.echo(f"{location.shown}: not for us to touch, so nothing was changed", err=True)
        return False
    if is_dry:
        return not plan.is_needed
    try:
        run_steps(repair_steps(plan, LogConfig()), location, ignore)
    except KeyboardInterrupt:
        click.echo(f"{location.shown}: interrupted; run the repair again to finish it", err=True)
        raise

    def print_serious(problem: "Problem") -> None:
        if problem.severity is not Severity.NOTE:
            print_problem(problem, location, is_json=is_json)

    report = run_steps(verify_steps(disk, location.directory), location, print_serious)
    print_report(report, location, is_json=is_json)
    return report.is_good


def for_each_log(
    directory: Path,
    act: Callable[[LogLocation, "Disk"], bool],
    *,
    is_changed: bool = False,
    is_inside_only: bool = False,
) -> Exit:
    """Call `act` for every log, also after one has failed. Returns the worst outcome.

    `is_inside_only` refuses logs to which a link leads out of the directory: the lock of another one protects them.
    """
    outcome, notices = Exit.OK, LockNotices()
    for location in find_logs(directory):
        if is_inside_only and not location.is_below(directory):
            print_error(
                f"{location.shown}: a link leads out of {directory}, to {location.real}; name that directory itself"
            )
            outcome = max(outcome, Exit.REFUSED)
            continue
        try:
            with open_disk(location.root, is_changed=is_changed) as disk:
                found = Exit.OK if act(location, disk) else Exit.FOUND_PROBLEMS
        except AlreadyOpen as error:
            notices.refuse(location, error)
            found = exit_of(error)
        except PenstockError as error:
            print_error(f"{location.shown}: {error} ({error.code})")
            found = exit_of(error)
        outcome = max(outcome, found)
    return outcome


@contextmanager
def open_disk(root: Path, *, is_changed: bool) -> Iterator["Disk"]:
    """Returns the disk of a directory: locked for changes, otherwise read only and without the lock."""
    from ..config import StorageConfig
    from ..runtime import RealDisk

    opened = RealDisk(root, StorageConfig()) if is_changed else RealDisk.open_read_only(root)
    with opened as disk:
        yield disk


def replacing_id(disk: "Disk", location: LogLocation, given: "LogId | None") -> "LogId | None":
    """Returns the id that was given, or where the file `identity` cannot be read, the id by the path of the log."""
    from ..broker.lost_state import log_id_at
    from ..log.doctor.verify import identity_of

    if given is not None or identity_of(disk, location.directory)[0] is not None:
        return given
    return log_id_at(location.directory) or log_id_at(location.real.as_posix())


def known_id(disk: "Disk", location: LogLocation, given: "LogId | None") -> "LogId":
    """Returns the id in the log's file `identity`, the one given, or that of its path. Refused: there is none."""
    from ..log.doctor.verify import identity_of

    found, problem = identity_of(disk, location.directory)
    log_id = replacing_id(disk, location, given) if found is None else found
    if log_id is None:
        assert problem is not None
        raise Refused(f"{location.show(problem.path)}: {problem.reason}; give the id with --log-id")
    return log_id
