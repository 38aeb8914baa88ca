"""`penstock export` and `penstock import`: a topic from one broker into another, by way of a directory."""

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import NotFound, PenstockError, Refused
from .output import Output, output_options
from .progress import Bar
from .remote import BrokerOptions, complete_topic, connected, remote_options
from .replay import patient

if TYPE_CHECKING:
    from ..api.delays import DelayedMessage
    from ..client import Client
    from .exported import DelayedLine, Exported, ExportReader, PartitionFile
    from .transfer import Range, Run, Transfer

_PAGE = 1000
_DELAYED_A_COMMIT = 100

EXPORT_EPILOG = """\b
Examples:
  penstock export orders --to orders.export --dry-run      how much it is
  penstock export orders --to orders.export
  penstock import orders.export --context live             into another broker

\b
The directory gets its name when everything is in it. Schedules, dead letters, schemas, keys, leases and receipts are
not exported.
"""
IMPORT_EPILOG = """\b
Examples:
  penstock import orders.export --dry-run                  what it would do
  penstock import orders.export --server penstock://10.0.0.7:9092
  penstock import orders.export --topic orders-restored    under another name

\b
The same command again goes on where the last one ended, and publishes nothing twice.
"""


@click.command(epilog=EXPORT_EPILOG)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A directory that is not there yet.",
)
@click.option("--rate", type=click.IntRange(min=1), help="At most so many messages each second.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
def export(
    topic: str,
    *,
    folder: Path,
    rate: int | None,
    is_dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Write TOPIC into a directory: settings, messages, those that are delayed, and how far its groups are.

    What is there when it begins. An export that is cut off leaves no directory: run it again.
    """
    from .exported import summary
    from .transfer import DEAD_LETTER_SUFFIX

    if topic.endswith(DEAD_LETTER_SUFFIX):
        raise Refused(f"{topic} has dead letters: penstock dlq redrive sends them back")
    folder = folder.absolute()
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} is there already, and was not changed: name a new directory")
    with connected(broker) as client:
        found = survey(client, topic)
        stored_bytes = client.topic(topic).total_size_bytes
    for what in found.left_out:
        click.echo(f"left out of the export of {topic}: {what}", err=True)
    if is_dry_run:
        facts = {**summary(found.exported), "left_out": found.left_out}
        output.record({**facts, "bytes": stored_bytes, "dry_run": True})
        return
    try:
        with patient(broker) as client:
            made = write_export(client, found, folder, rate, output)
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror or error}") from error
    facts = {**summary(made), "left_out": found.left_out}
    output.outcome(
        f"{folder}: {facts['offsets']:,} offsets and {facts['delayed']:,} delayed messages of {topic}",
        {"directory": str(folder), **facts, "dry_run": False},
    )


class Survey(NamedTuple):
    """What an export has, before its messages are read."""

    exported: "Exported"
    waiting: "list[DelayedLine]"
    left_out: list[str]


def survey(client: "Client", topic: str) -> Survey:
    """Returns what an export of the topic has. NotFound.

    Each message is on one side: one that comes while this looks is in its partition, and no more among those that wait.
    """
    from .exported import VERSION, DelayedLine, Exported, PartitionFile

    described = client.topic(topic)
    begins = {number: described.ends(number).latest for number in range(described.partitions)}
    # Before the ends below. A message that came after them, and before it was listed, would be on neither side.
    listed = [*pending(client, topic)]
    waiting = [
        DelayedLine.of(one.partition, one.id, one.due_ns, one.delay_key, one.message)
        for one in listed
        if one.message is not None
    ]
    left_out = [f"schedule {one.key}" for one in client.schedules(topic)]
    if unreadable := len(listed) - len(waiting):
        left_out.append(f"delayed messages that cannot be read: {unreadable:,}")
    partitions, came = [], set[tuple[int, int]]()
    for number, begin in begins.items():
        first = client.fetch(topic, number, limit=1, max_bytes=1)
        partitions.append(PartitionFile(number, first.earliest, first.latest, first.seed))
        came.update((number, one) for one in delay_ids(client, topic, number, begin, first.latest))
    waiting = [one for one in waiting if (one.partition, one.id) not in came]
    offsets = {one.group: client.offsets(one.group).get(topic) for one in client.groups()}
    exported = Exported(
        version=VERSION,
        id=uuid.uuid4().hex,
        topic=topic,
        config=described.config,
        partitions=partitions,
        groups={group: found for group, found in offsets.items() if found},
        delayed=len(waiting),
    )
    return Survey(exported, waiting, left_out)


def pending(client: "Client", topic: str) -> "Iterator[DelayedMessage]":
    """Returns the messages that wait for their time."""
    from ..api.delays import FIRST_PLACE, ListDelayed

    after = FIRST_PLACE
    while True:
        page = client.execute(ListDelayed(topic, _PAGE, after))
        yield from page.messages
        if page.cursor is None:
            return
        after = page.cursor


def delay_ids(client: "Client", topic: str, partition: int, at: int, end: int) -> Iterator[int]:
    """Returns the ids of the messages of a range that were delayed."""
    from ..api.fetch import Read
    from ..api.start import Start

    while at < end:
        read = client.execute(Read(topic, partition, Start.at_offset(at)))
        yield from (one for offset, one in read.delay_ids.items() if offset < end)
        if read.next_offset <= at:
            return
        at = read.next_offset


def write_export(
    client: "Client", surveyed: Survey, folder: Path, rate: int | None, output: Output
) -> "Exported":
    """Writes the files beside the directory, which gets its name in the end."""
    import msgspec

    from .exported import DELAYED_FILE, TOPIC_FILE, write_synced
    from .transfer import Run, Selection, Transfer

    found = surveyed.exported
    job = Transfer(
        kind="export",
        name=f"export.{found.topic}",
        source=found.topic,
        target="",
        selection=Selection(),
        rate=rate,
    )
    run = Run(client, job, len(found.partitions), lambda _: None)
    run.lag = total = sum(one.end - one.start for one in found.partitions)
    # One name for all tries, so that what a killed one left does not stay.
    unseen = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(unseen, ignore_errors=True)
    unseen.mkdir(parents=True)
    run.report("starting")
    try:
        with Bar(job.name, total, is_wanted=output.is_table) as bar:
            files = [write_partition(client, unseen, run, bar, one) for one in found.partitions]
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in surveyed.waiting)
        write_synced(unseen / DELAYED_FILE, text)
        made = msgspec.structs.replace(found, partitions=files)
        write_synced(unseen / TOPIC_FILE, msgspec.json.format(msgspec.json.encode(made)))
        unseen.rename(folder)
    except BaseException as error:
        shutil.rmtree(unseen, ignore_errors=True)
        run.report("failed", str(error))
        raise
    run.report("stopped")
    return made


def write_partition(
    client: "Client", folder: Path, run: "Run", bar: Bar, one: "PartitionFile"
) -> "PartitionFile":
    """Writes the batches of a partition as they are stored. Refused: the topic was made again meanwhile."""
    import os

    import msgspec

    from ..client.fetch import LIMIT_MAX_BATCHES
    from .exported import partition_file
    from .transfer import FETCH_BYTES

    job, at = run.job, one.start
    with partition_file(folder, one.partition).open("wb") as file:
        while at < one.end:
            limit = LIMIT_MAX_BATCHES if job.rate is None else job.rate
            fetched = client.fetch(
                job.source, one.partition, offset=at, limit=limit, max_bytes=FETCH_BYTES
            )
            if fetched.seed != one.seed:
                raise Refused(f"topic {job.source} was deleted and made again: export it again")
            if fetched.next_offset <= at:
                break
            batches = [(head, batch) for head, batch in fetched.batches if head.next_offset > at]
            file.writelines(batch for _, batch in batches)
            run.count(sum(head.message_count for head, _ in batches), fetched.next_offset - at)
            at = fetched.next_offset
            bar.at(run.messages, run.messages)
        file.flush()
        os.fsync(file.fileno())
        return msgspec.structs.replace(one, size=file.tell())


class ImportPlan(NamedTuple):
    """An import that was checked: what goes where, and from which files."""

    job: "Transfer"
    ranges: "list[Range]"
    exported: "Exported"
    reader: "ExportReader"
    delayed: "list[DelayedLine]"


@click.command("import", epilog=IMPORT_EPILOG)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--topic", help="Its name there; if not said, the one it had.")
@click.option("--rate", type=click.IntRange(min=1), help="At most so many messages each second.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
def import_topic(
    folder: Path,
    *,
    topic: str | None,
    rate: int | None,
    is_dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Make the topic that DIR holds, with its settings, publish its messages, and set its groups where they were.

    A topic that is there and has other messages is refused.
    """
    from .exported import ExportReader, read_delayed, read_exported, summary
    from .transfer import Selection, Transfer

    exported = read_exported(folder)
    reader, delayed = ExportReader(folder, exported), read_delayed(folder, exported)
    target = topic or exported.topic
    job = Transfer(
        kind="import",
        name=f"import.{target[:200]}.{exported.id[:8]}",
        source="",
        target=target,
        selection=Selection(),
        rate=rate,
        is_by_partition=True,
    )
    with connected(broker) as client:
        ranges = [ready_range(client, job, one) for one in exported.partitions]
        check_target(client, job, exported, ranges)
    if is_dry_run:
        left = sum(one.left for one in ranges)
        output.record({**summary(exported), "topic": target, "left": left, "dry_run": True})
        return
    with patient(broker) as client:
        run = run_import(client, ImportPlan(job, ranges, exported, reader, delayed), output)
    facts = {**summary(exported), "topic": target, **run.facts(), "dry_run": False}
    output.outcome(f"{run.messages:,} messages of {folder} are in {target}", facts)


def ready_range(client: "Client", job: "Transfer", one: "PartitionFile") -> "Range":
    from .transfer import Range

    done = max(one.start, job.position(client, one.partition, one.seed))
    return Range(one.partition, one.start, one.end, done, one.seed)


def check_target(
    client: "Client", job: "Transfer", exported: "Exported", ranges: "list[Range]"
) -> None:
    """Refused: the topic is there, and has messages that are not of this import, or other partitions."""
    try:
        found = client.topic(job.target)
    except NotFound:
        return
    if found.partitions != len(exported.partitions):
        raise Refused(
            f"topic {job.target} has {found.partitions} partitions, not {len(exported.partitions)}: "
            "import under another name, and penstock copy"
        )
    is_begun = any(one.done > one.start for one in ranges) or delayed_done(client, job)
    if not is_begun and any(found.ends(one.partition).latest for one in ranges):
        raise Refused(f"topic {job.target} has messages already: import under another --topic")


def run_import(client: "Client", plan: ImportPlan, output: Output) -> "Run":
    """Makes the topic, and moves everything into it, groups last."""
    from .transfer import Run

    job, ranges, exported = plan.job, plan.ranges, plan.exported
    total = sum(one.left for one in ranges)
    with Bar(job.name, total, is_wanted=output.is_table) as bar:
        run = Run(
            client,
            job,
            len(ranges),
            lambda run: bar.at(run.messages, f"{run.messages:,} messages, {run.lag:,} to go"),
            plan.reader.read,
        )
        client.create_topic(job.target, partitions=len(ranges), exist_ok=True, **exported.config)
        run.report("starting")
        try:
            run.move(ranges)
            import_delayed(client, job, exported, plan.delayed)
            import_groups(client, job, exported, plan.reader)
        except PenstockError as error:
            run.report("failed", str(error))
            raise
        run.report("stopped")
    return run


def delayed_done(client: "Client", job: "Transfer") -> int:
    """Returns how many delayed messages an import has published: a commit name counts them."""
    from ..api.commits import DescribeCommitName

    try:
        return client.execute(DescribeCommitName(f"{job.name}.delayed")).sequence or 0
    except NotFound:
        return 0


def import_delayed(
    client: "Client", job: "Transfer", exported: "Exported", lines: "list[DelayedLine]"
) -> None:
    """Publishes delayed messages for their time, but for those that an earlier run has counted."""
    done = delayed_done(client, job)
    while done < len(lines):
        some = lines[done : done + _DELAYED_A_COMMIT]
        for one in some:
            options: dict[str, Any] = {
                "key": one.key,
                "headers": one.headers,
                "partition": one.partition,
                "priority": one.priority,
                "deliver_at": max(one.due_ns, time.time_ns()),
                # If this run dies before the commit below, the broker knows these.
                "idempotency_key": f"{exported.id}-{one.partition}-{one.id}",
                "delay_key": one.delay_key,
            }
            given = {option: value for option, value in options.items() if value is not None}
            client.publish(job.target, one.value, acks="all", **given)
        done += len(some)
        client.commit_stagings(f"{job.name}.delayed", done, exported.id, [])


def import_groups(
    client: "Client", job: "Transfer", exported: "Exported", reader: "ExportReader"
) -> None:
    """Sets the groups where they were: offsets there count messages from 0, without the gaps that were here."""
    for group, offsets in exported.groups.items():
        places = {
            partition: reader.count_before(partition, offset)
            for partition, offset in offsets.items()
        }
        reached = {partition: place for partition, place in places.items() if place}
        if reached:
            client.commit(group, {job.target: reached})
