"""Runs a pipeline from a terminal: the session, the progress bar, the signals, the output."""

import functools
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from .exits import Exit
from .output import Output
from .progress import Bar
from .remote import BrokerOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ..spark.pipelines.archive import PipelineProgress
    from ..spark.pipelines.model import Pipeline
    from ..spark.pipelines.report import PipelineIdentity, Reporter


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --master and --remote; the command gets `master`."""

    @click.option(
        "--master",
        metavar="URL",
        help="A Spark master, such as spark://host:7077; here, if not said.",
    )
    @click.option(
        "--remote", metavar="URL", help="A Spark Connect server, such as sc://host:15002."
    )
    @functools.wraps(command)
    def run(*args: Any, master: str | None, remote: str | None, **more: Any) -> None:
        if master is not None and remote is not None:
            raise click.UsageError("--master and --remote: give one of them")
        if remote is not None and not remote.startswith("sc://"):
            raise click.UsageError(f"--remote: {remote} does not begin with sc://")
        command(*args, master=remote or master or "", **more)

    return run


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """Returns an event that Ctrl-C and SIGTERM set. The second Ctrl-C raises KeyboardInterrupt."""
    stop = Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        click.echo("stopping after this commit; once more to stop at once", err=True)

    # The session must have started before: Spark sets its own handler.
    before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def server_of(broker: BrokerOptions) -> Iterator[dict[str, str | None]]:
    """Returns address and files of a server for tasks. A key without a file is in a temporary one inside the block."""
    context, key = broker.found()
    found = {"server": context.server, "key_file": context.key_file, "ca_file": context.ca_file}
    if broker.key_file is not None:
        found["key_file"] = str(broker.key_file.absolute())
    if key is None or found["key_file"] is not None:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder) / "key"
        path.touch(mode=0o600)
        path.write_text(key)
        yield {**found, "key_file": str(path)}


@contextmanager
def reported(broker: BrokerOptions, identity: "PipelineIdentity") -> Iterator["Reporter"]:
    """Returns what to call with progress, which goes to the broker, if it answers: a job on a lake needs none."""
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.report import Reporter

    with server_of(broker) as server:
        remote = Remote(server["server"] or "", server["key_file"], server["ca_file"])
        with Reporter(identity, remote) as reporter:
            yield reporter


def run_pipeline(
    found: "Pipeline", file: Path | None, *, master: str, is_once: bool, output: Output
) -> None:
    """Run a pipeline until its end or a signal; exit code 1 if some topics could not be read.

    One that runs once and is ended by a signal has exit code 130: there may be more to do.
    JSON has one record at the end of a pipeline that runs once, otherwise one for each commit; and the rows of a
    pipeline that shows some, alone. Refused: it needs Spark, and that is not installed.
    """
    from ..spark.pipelines.model import PipelineKind
    from ..spark.pipelines.runner import LOCAL_MASTER, needs_spark, open_session, remote_of, run
    from ..spark.pipelines.table import json_lines, plain
    from ..spark.pipelines.views import add_import_folder

    if file is not None:
        add_import_folder(file.absolute().parent)
    if is_once and found.topics:
        remote_of(found).require_broker()
    spark = None
    if needs_spark(found, master):
        require_spark()
        with Bar(f"{found.name}: Spark starts", is_wanted=output.is_table):
            spark = open_session(found, master or LOCAL_MASTER)
    try:
        with stop_on_signals() as stop, Bar(found.name, is_wanted=output.is_table) as bar:
            last: dict[str, Any] = {}
            has_shown = False

            def tell(progress: "PipelineProgress") -> None:
                last.update(asdict(progress))
                bar.at(progress.messages, note_of(progress))
                if not output.is_table and not is_once:
                    output.item({"pipeline": found.name, **last})
                    sys.stdout.flush()

            def show(table: "pa.Table") -> None:
                nonlocal has_shown
                has_shown = True
                if text := plain(table) if output.is_table else json_lines(table):
                    click.echo(text)

            run(spark, found, stop, is_once=is_once, tell=tell, show=show)
    finally:
        if spark is not None:
            spark.stop()
    if last and not has_shown and (is_once or output.is_table):
        sentence = f"{found.name}: {last['messages']:,} messages in {last['commits']:,} commits"
        output.outcome(sentence, {"pipeline": found.name, **last})
    if problems := last.get("problems"):
        for name, problem in problems.items():
            click.echo(f"problem: {name}: {problem}", err=True)
    is_cut_off = is_once and stop.is_set() and found.kind is not PipelineKind.SQL
    if problems or is_cut_off:
        code = Exit.INTERRUPTED if is_cut_off else Exit.FOUND_PROBLEMS
        click.get_current_context().exit(code)


def note_of(progress: "PipelineProgress") -> str:
    if progress.error:
        return f"waiting: {progress.error[:80]}"
    left = f", {progress.lag:,} to go" if progress.lag else ""
    return f"{progress.messages:,} messages, {progress.commits:,} commits{left}"


def require_spark() -> None:
    """Refused: Spark or Arrow is not installed."""
    _require("pyspark", "pyarrow", extra="spark")


def require_arrow() -> None:
    """Refused: Arrow is not installed."""
    _require("pyarrow", extra="arrow")


def _require(*modules: str, extra: str) -> None:
    from importlib.util import find_spec

    from ..errors import Refused

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise Refused(f"this needs {' and '.join(missing)}: pip install 'penstock[{extra}]'")
