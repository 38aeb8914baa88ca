"""`penstock demo`: a log is written, killed, recovered and read, and a broker works through orders; with figures."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from .exits import Exit

if TYPE_CHECKING:
    from ..log.verify import Report
    from .demo_orders import Worked
    from .demo_story import Encoded, Proven, Recovered, Sought, Written

EPILOG = """\b
Examples:
  penstock demo           the show, in a temporary directory
  penstock demo --json    what it found, as one JSON object

\b
Exit codes: 0 everything that was acknowledged is there, 1 something is not.
"""

Facts = dict[str, dict[str, object]]


class Scene(NamedTuple):
    """One part of the show. `facts` go into the JSON object under `name`."""

    name: str
    title: str
    lines: list[tuple[str, str]]
    facts: dict[str, object]
    is_good: bool = True


@click.command(epilog=EPILOG)
@click.option("--json", "is_json", is_flag=True, help="One JSON object instead of the show.")
@click.pass_context
def demo(ctx: click.Context, *, is_json: bool) -> None:
    """Write a log, kill the writer, recover, prove that nothing promised is lost, and work through some orders."""
    facts: Facts = {}
    is_good = True
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        for scene in scenes(Path(directory) / "data", is_quiet=is_json):
            facts[scene.name] = scene.facts
            is_good = is_good and scene.is_good
            if not is_json:
                show(scene)
    if is_json:
        import json

        click.echo(json.dumps(facts))
    if not is_good:
        ctx.exit(Exit.FOUND_PROBLEMS)


def scenes(root: Path, *, is_quiet: bool) -> Iterator[Scene]:
    from . import demo_story as story
    from .demo_orders import work_through_orders

    yield of_encoding(story.encode_some())
    with waiting("another process writes, with an fsync before each answer", is_quiet=is_quiet):
        written = story.write_and_kill(root)
    yield of_writing(written)
    with story.recovered(root) as (disk, log, recovered):
        yield of_recovery(recovered)
        yield of_proof(story.prove(log, written.acks))
        yield of_seeking(story.seek(log, written.acks[len(written.acks) // 2]))
        yield of_verifying(story.verify_log(disk))
    with waiting("a broker works through orders", is_quiet=is_quiet):
        worked = work_through_orders(root.parent / "broker")
    yield of_work(worked)


def of_encoding(found: "Encoded") -> Scene:
    lines = [
        ("keys and values", f"{found.content_bytes:,} bytes in {found.messages} messages"),
        ("as a batch", f"{found.batch_bytes:,} bytes, {found.bytes_a_message:.1f} a message"),
        ("with zstd", f"{found.zstd_bytes:,} bytes"),
        ("encoding", f"{found.encode_ns_a_message:,} ns a message"),
    ]
    facts = {**asdict(found), "bytes_a_message": round(found.bytes_a_message, 1)}
    return Scene("encoding", "A batch of messages", lines, facts)


def of_writing(found: "Written") -> Scene:
    per_s = round(found.messages / found.elapsed_s)
    lines = [
        (
            "acknowledged",
            f"{found.messages:,} messages in {len(found.acks):,} batches, all fsynced",
        ),
        ("rate", f"{per_s:,} messages/s, {len(found.acks) / found.elapsed_s:,.0f} batches/s"),
        ("then", "SIGKILL, in the middle of it"),
        ("and", f"{found.torn_bytes:,} bytes of half a batch, as a power cut leaves them"),
    ]
    facts: dict[str, object] = {
        "messages": found.messages,
        "batches": len(found.acks),
        "elapsed_s": round(found.elapsed_s, 3),
        "messages_per_s": per_s,
        "torn_bytes": found.torn_bytes,
    }
    return Scene("writing", "Written by a process that was killed", lines, facts)


def of_recovery(found: "Recovered") -> Scene:
    lines = [
        ("opened in", f"{found.elapsed_ms:.1f} ms"),
        (
            "scanned",
            f"{found.scanned_bytes:,} of {found.log_bytes:,} bytes, from the checkpoint on",
        ),
        ("cut", f"{found.cut_bytes:,} bytes ({found.cut_reason}), kept in a file beside it"),
    ]
    return Scene("recovery", "Opened again", lines, asdict(found), is_good=found.cut_bytes > 0)


def of_proof(found: "Proven") -> Scene:
    lost = found.acknowledged - found.present
    lines = [
        ("acknowledged", f"{found.acknowledged:,} batches"),
        ("there, and equal", f"{found.present:,}"),
        ("lost", f"{lost:,}"),
        ("there, never acknowledged", f"{found.unacknowledged:,}, which is allowed"),
    ]
    return Scene("proof", "Nothing promised is lost", lines, asdict(found), is_good=lost == 0)


def of_seeking(found: "Sought") -> Scene:
    value = (found.message.value or b"").decode()
    lines = [
        (f"offset {found.offset:,}", f"{value} in {found.by_offset_us:.0f} us"),
        (
            "the time of that append",
            f"first offset {found.offset_at_its_time:,} in {found.by_time_us:.0f} us",
        ),
    ]
    facts: dict[str, object] = {
        "offset": found.offset,
        "value": value,
        "by_offset_us": round(found.by_offset_us, 1),
        "by_time_us": round(found.by_time_us, 1),
        "offset_at_its_time": found.offset_at_its_time,
    }
    is_good = found.offset_at_its_time <= found.offset == found.message.offset
    return Scene("seeking", "Found by offset and by time", lines, facts, is_good)


def of_verifying(found: "Report") -> Scene:
    problems = {severity.value: count for severity, count in found.problems.items()}
    lines = [
        ("checked", f"{found.messages:,} messages in {found.batches:,} batches, every byte"),
        ("segments", f"{found.segments:,}, {found.size:,} bytes"),
        ("verdict", "good" if found.is_good else f"problems: {problems}"),
    ]
    facts: dict[str, object] = {
        "messages": found.messages,
        "batches": found.batches,
        "segments": found.segments,
        "bytes": found.size,
        "problems": problems,
    }
    return Scene("verify", "Verified", lines, facts, found.is_good)


def of_work(found: "Worked") -> Scene:
    urgent = ", ".join(f"{count} {lane}" for lane, count in found.first_hundred.items())
    lines = [
        ("published", f"{found.orders:,} orders, {found.reminders:,} reminders for later"),
        ("the first hundred", f"{urgent}, though all lanes were as full"),
        ("handled", f"{found.handled:,}, {found.twice} of them twice"),
        ("closed and opened again", f"after {found.restarted_at:,} of them"),
        ("failed once and retried", f"{found.retried:,}"),
        ("given up", f"{found.dead:,} dead letters, each with its story"),
        ("reminders before their time", f"{found.early}"),
        ("in all", f"{found.elapsed_s:.1f} s"),
    ]
    facts = {**asdict(found), "elapsed_s": round(found.elapsed_s, 3)}
    return Scene("orders", "A day in a shop", lines, facts, found.is_good)


def waiting(text: str, *, is_quiet: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    if is_quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def show(scene: Scene) -> None:
    width = max(len(label) for label, _ in scene.lines)
    if not sys.stdout.isatty():
        click.echo(scene.title)
        for label, text in scene.lines:
            click.echo(f"  {label:{width}}  {text}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=25, justify="right")
    for label, text in scene.lines:
        grid.add_row(label, Text(text))
    console.print(f"[bold {'green' if scene.is_good else 'red'}]{scene.title}")
    console.print(grid, "")
