"""The demo: a log and a broker at work, killed in the middle, and what is left of it."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from penstock.cli.exits import Exit
from penstock.cli.lazy_group import unknown

from .scene import Scene, Stage, show

EPILOG = """\b
Examples:
  python -m examples.demo                    the show; its data stays, and it says where and how to look at it
  python -m examples.demo --json             what it found, as one JSON object
  python -m examples.demo --part shop        only one part: log, shop or lake
  python -m examples.demo --data-dir ./demo  leave the data there
  python -m examples.demo --remove           leave nothing behind

\b
Ctrl-C ends everything that it started and removes its data.
Exit codes: 0 everything that was promised was kept, 1 something was not.
"""

# The parts in their order: a name, and "module:function" beside this file. The function gets a `Stage` and yields
# `Scene`s; whatever earlier parts left is below `stage.directory`, and `stage.leave` says what a part leaves to look at
# when the show is over. A further part is a line at the end.
PARTS = {
    "log": "log:log_scenes",
    "shop": "shop:shop_scenes",
    "lake": "lake:lake_scenes",
}

Facts = dict[str, object]


@click.command(epilog=EPILOG)
@click.option("--json", "is_json", is_flag=True, help="One JSON object instead of the show.")
@click.option("--part", "wanted", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new directory for its data; a temporary one if not said.",
)
@click.option("--remove", "is_removed", is_flag=True, help="Remove the data at the end.")
@click.pass_context
def demo(
    ctx: click.Context,
    /,
    *,
    is_json: bool,
    wanted: tuple[str, ...],
    data_dir: Path | None,
    is_removed: bool,
) -> None:
    """Kill a log and a broker in the middle of their work, and prove that nothing promised is lost.

    Then orders are published, some urgent, some for later, some of them bad; workers handle them; it is shown live.
    """
    for name in wanted:
        if name not in PARTS:
            raise unknown("part", name, PARTS)
    facts: Facts = {}
    is_good = True
    with directory_of(data_dir, is_removed=is_removed) as directory:
        stage = Stage(directory, is_quiet=is_json, is_kept=not is_removed)
        for scene in scenes(stage, wanted or tuple(PARTS)):
            facts[scene.name] = scene.facts
            is_good = is_good and scene.is_good
            if not is_json:
                show(scene)
    if is_json:
        import json

        click.echo(json.dumps(facts))
    if not is_good:
        ctx.exit(Exit.FOUND_PROBLEMS)


def scenes(stage: Stage, names: tuple[str, ...]) -> Iterator[Scene]:
    from importlib import import_module

    for name in names:
        module, _, function = PARTS[name].partition(":")
        yield from getattr(import_module(f"{__package__}.{module}"), function)(stage)
    if stage.is_kept:
        yield of_looking(stage)


def of_looking(stage: Stage) -> Scene:
    """Returns the data that is left, and the commands that show it; a test runs them."""
    ends = [("the data", str(stage.directory)), ("remove it", f"rm -r {stage.directory}")]
    facts: Facts = {
        "data_dir": str(stage.directory),
        "commands": [command for _, command in stage.left],
    }
    return Scene("look", "Look around", [ends[0], *stage.left, ends[1]], facts)


@contextmanager
def directory_of(chosen: Path | None, *, is_removed: bool) -> Iterator[Path]:
    """Returns a new directory. It stays if the demo came to its end, unless the user asks to remove it."""
    if chosen is None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    else:
        # Not into what is there: we remove what we made, and must not remove anything else.
        chosen.mkdir(parents=True)
        directory = chosen.absolute()
    is_done = False
    try:
        with ended_by_signals():
            yield directory
        is_done = True
    finally:
        if is_removed or not is_done:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal clean up like Ctrl-C, or the broker process would go on."""
    before = {one: signal.signal(one, interrupted) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
