"""`python -m bench`: run the cases of a bench, show what they found."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.exits import Exit
from penstock.cli.lazy_group import unknown

from . import BENCHES, load_cases

if TYPE_CHECKING:
    from .measure import Effort
    from .report import Case, Result

EPILOG = """\b
Examples:
  python -m bench --list                      the benches
  python -m bench codec --list                the cases of one
  python -m bench codec --quick               a table, in under a minute
  python -m bench codec --case encode --json  one case, one JSON object a line
  python -m bench codec --plot codec.png      a picture of the results against the goals
  python -m bench codec --check               exit code 1 when a goal is not met
  python -m bench broker --peers redis,nats   against these brokers, started on loopback

Only ratios taken in one run compare: the speed of a shared machine drifts from hour to hour.
"""


def complete_name(_ctx: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return [name for name in BENCHES if name.startswith(start)]


@click.command(epilog=EPILOG)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--list", "is_list", is_flag=True, help="List the benches, or the cases of NAME.")
@click.option("--case", "wanted", multiple=True, metavar="CASE", help="Only this case; repeatable.")
@click.option("--quick", is_flag=True, help="Fewer and shorter turns; under a minute.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line instead of a table.")
@click.option(
    "--check", is_flag=True, help="Exit with 1 when a goal is missed or cannot be judged."
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also draw the results against their goals (.png, .svg, .pdf).",
)
@click.option(
    "--peers",
    metavar="NAMES",
    help="For bench broker: the peers, such as redis,nats,rabbitmq,beanstalkd (all of them), or none.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    name: str | None,
    *,
    is_list: bool,
    wanted: tuple[str, ...],
    quick: bool,
    is_json: bool,
    check: bool,
    picture: Path | None,
    peers: str | None,
) -> None:
    """Measure bench NAME on this machine, against its baselines and goals."""
    if name is None and is_list:
        for known, entry in BENCHES.items():
            click.echo(f"{known:12}{entry.summary}")
        return
    if name is None:
        raise click.UsageError("name a bench, or list them with --list", ctx)
    if name not in BENCHES:
        raise unknown("bench", name, BENCHES, ctx)
    cases = chosen(cases_of(name, peers, ctx), wanted, ctx)
    if is_list:
        click.echo("\n".join(case.name for case in cases))
        return
    require_drawable(picture)
    results = []
    for result in measured(name, cases, effort_of(quick=quick), is_json=is_json):
        results.append(result)
        if is_json:
            click.echo(result.to_json())
    if not is_json:
        show(results)
    if picture is not None:
        from .plot import plot

        plot(results, picture)
    if check and any(result.goal is not None and not result.ok for result in results):
        ctx.exit(Exit.FOUND_PROBLEMS)


def cases_of(name: str, peers: str | None, ctx: click.Context) -> tuple["Case", ...]:
    """Returns the cases of a bench; for the race between brokers those with these peers."""
    if peers is None:
        return load_cases(name)
    if name != "broker":
        raise click.UsageError(f"--peers is for bench broker; {name} has none", ctx)
    from .broker import cases
    from .broker_peers import PEERS

    names = [one.strip() for one in peers.split(",") if one.strip() not in {"", "none"}]
    for one in names:
        if one not in PEERS:
            raise unknown("peer", one, PEERS, ctx)
    return cases(names)


def chosen(
    cases: tuple["Case", ...], wanted: tuple[str, ...], ctx: click.Context
) -> tuple["Case", ...]:
    by_name = {case.name: case for case in cases}
    for word in wanted:
        if word not in by_name:
            raise unknown("case", word, by_name, ctx)
    return tuple(case for case in cases if not wanted or case.name in wanted)


def effort_of(*, quick: bool) -> "Effort":
    from .measure import FULL, QUICK

    return QUICK if quick else FULL


def measured(
    name: str, cases: tuple["Case", ...], effort: "Effort", *, is_json: bool
) -> Iterator["Result"]:
    from .report import result_of

    for case in cases:
        with progress(f"{name} {case.name}", is_silent=is_json):
            result = result_of(name, case, case.measure(effort))
        yield result


def progress(text: str, *, is_silent: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    if is_silent or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def show(results: list["Result"]) -> None:
    from .table import coloured, plain

    if not sys.stdout.isatty():
        click.echo(plain(results))
    else:
        from rich.console import Console

        Console().print(coloured(results))
    show_peers(results)


def show_peers(results: list["Result"]) -> None:
    """For a race: print the figures of all brokers, and which were left out and why."""
    from .table import peers_table, skipped

    if lines := peers_table(results):
        click.echo(f"\n{lines}")
    for name, reason in skipped(results).items():
        click.echo(f"{name} was left out: {reason}", err=True)


def require_drawable(picture: Path | None) -> None:
    """Refuse before the measurement if the plot cannot be drawn."""
    from importlib.util import find_spec

    if picture is None:
        return
    if not picture.parent.is_dir():
        raise click.UsageError(f"--plot: there is no directory {picture.parent}")
    if find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install 'penstock[bench]'")
