"""`penstock dlq`: dead letters of a server: look at them, correct them, send them back."""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..errors import NotFound
from .arguments import header_pairs, partition_offset, time_argument
from .confirm import confirm, yes_option
from .dlq_history import history
from .exits import Exit
from .output import Output, one_line_of, output_options, say_more, text_of
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..api.dead_letters import DeadLetter as StoredLetter
    from ..api.letters import Discarded, Redriven
    from ..client import Client, Letters
    from ..client.dead_letters import DeadLetter, Redrive

EPILOG = """\b
Examples:
  penstock dlq list orders                             what was given up, and why
  penstock dlq list orders --group-by error            how many by reason, error or consumer
  penstock dlq history orders --lake lake              what went wrong, since the lake began
  penstock dlq show orders 0/3                         one of them, with its story
  penstock dlq edit orders 0/3 --value '{"id": 7}'     correct one and send it back to the topic
  penstock dlq edit orders 0/3                         the same in your editor
  penstock dlq redrive orders --all --dry-run          what would go back
  penstock dlq redrive orders --reason REJECTED --after 1h --rate 50
  penstock dlq redrive orders 0/3 0/4 --target group   these two, only to the group that failed
  penstock dlq redrive orders --sql "SELECT partition, offset FROM letters WHERE last_error LIKE '%price%'" --dry-run
  penstock dlq discard orders --error 'no such user'   listed no more, and sent nowhere
"""

PAGE_LETTERS = 500
# The limit of a call that has none of the user's: one without a limit ends at `REDRIVE_LIMIT` dead letters.
EVERY_LETTER = 1 << 31
REASONS = ["MAX_RETRIES_EXCEEDED", "REJECTED", "TTL_EXPIRED"]
LISTED = ["place", "reason", "attempts", "group", "error", "key", "value"]


@click.group(epilog=EPILOG)
def dlq() -> None:
    """Look at dead letters, correct them, send them back or discard them."""


dlq.add_command(history)


def letter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the conditions that select dead letters; the command gets `letters`."""

    @click.option(
        "--reason", type=click.Choice(REASONS, case_sensitive=False), help="Why it was given up."
    )
    @click.option("--group", shell_complete=complete_group, help="The group that gave up.")
    @click.option("--error", help="The last error, or its first line.")
    @click.option("--after", help="Given up after this time; 1h is an hour ago.")
    @click.option("--before", help="Given up before this time.")
    @functools.wraps(command)
    def run(*args: Any, after: str | None, before: str | None, **more: Any) -> None:
        from ..client import Letters

        conditions: dict[str, Any] = {
            "after": None if after is None else time_argument("--after", after),
            "before": None if before is None else time_argument("--before", before),
            **{name: more.pop(name) for name in ("reason", "group", "error")},
        }
        command(*args, letters=Letters(**conditions), **more)

    return run


@dlq.command("list", epilog="Example: penstock dlq list orders --group-by reason")
@click.argument("topic", shell_complete=complete_topic)
@letter_options
@click.option(
    "--group-by",
    type=click.Choice(["reason", "error", "consumer"]),
    help="Count them instead, by this.",
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@remote_options
@output_options
def list_letters(
    topic: str,
    *,
    letters: "Letters",
    group_by: str | None,
    limit: int,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Show what was given up, and why."""
    from ..api.json.dead_letters import dead_letter_out

    with connected(broker) as client:
        if group_by is not None:
            counts = client.count_dead_letters(topic, group_by, selection=letters)
            output.rows(counts, [group_by, "count", "first", "last"], empty="no dead letters")
            return
        found = stored_letters(client, topic, letters, limit + 1)
    shown = found[:limit]
    rows = map(row_of, shown) if output.is_table else map(dead_letter_out, shown)
    output.rows(rows, LISTED, empty="no dead letters")
    if len(found) > limit:
        say_more(limit)


def stored_letters(
    client: "Client", topic: str, letters: "Letters", limit: int, start: tuple[int, int] = (0, 0)
) -> "list[StoredLetter]":
    """Returns the first dead letters from a place on that are selected, at most `limit`."""
    from msgspec.structs import replace

    from ..api.dead_letters import BrowseDeadLetters
    from ..api.letters import selection_of

    found: list[StoredLetter] = []
    command = BrowseDeadLetters(topic, selection_of(letters), min(limit, PAGE_LETTERS), start)
    while True:
        page = client.execute(command)
        found += page.letters
        if page.cursor is None or len(found) >= limit:
            return found[:limit]
        command = replace(command, cursor=page.cursor)


def row_of(one: "StoredLetter") -> dict[str, Any]:
    died = one.provenance
    return {
        "place": f"{one.partition}/{one.offset}",
        "reason": died.dlq_reason,
        "attempts": died.delivery_attempts,
        "group": died.group,
        "error": died.last_error.partition("\n")[0],
        "key": one_line_of(one.message.key),
        "value": one_line_of(one.message.value),
    }


@dlq.command(epilog="Example: penstock dlq show orders 0/3 --json")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("where", metavar="PARTITION/OFFSET")
@remote_options
@output_options
def show(topic: str, where: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show one dead letter with its story."""
    from ..api.json.dead_letters import dead_letter_out
    from ..client import Letters

    place = partition_offset(where)
    with connected(broker) as client:
        letters = stored_letters(client, topic, Letters(), 1, place)
    if not letters or (letters[0].partition, letters[0].offset) != place:
        raise NotFound("dead letter", f"{topic} {where}")
    found, message = dead_letter_out(letters[0]), letters[0].message
    if not output.is_table:
        output.record(found)
        return
    story = {
        "place": f"{found.partition}/{found.offset}",
        "came from": f"{found.original_topic} {found.original_partition}/{found.original_offset}",
        "published": found.original_timestamp,
        "reason": found.dlq_reason,
        "error": found.last_error,
        "given up": found.dlq_timestamp,
        "by group": found.group,
        "by consumer": found.last_consumer,
        "deliveries": found.delivery_attempts,
        "first delivery": found.first_delivery or "never",
        "last delivery": found.last_delivery or "never",
        "headers": {name: one_line_of(value) for name, value in message.headers},
        "key": one_line_of(message.key),
        "value": one_line_of(message.value),
    }
    output.record(story)


@dlq.command(epilog="""Example: penstock dlq edit orders 0/3 --value '{"id": 7}' --dry-run""")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("where", metavar="PARTITION/OFFSET")
@click.option("--value", help="The value it shall have.")
@click.option("--key", help="The key it shall have; it may go to another partition.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Its headers, instead of those it has; repeatable.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
@click.pass_context
def edit(
    ctx: click.Context,
    topic: str,
    where: str,
    *,
    value: str | None,
    key: str | None,
    headers: tuple[str, ...],
    is_dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Correct a dead letter and send it back to its topic.

    Without --value, --key and --header your editor opens with the value; saved without a change, nothing happens.
    """
    from ..client import Letters

    at = partition_offset(where)
    changes = {"value": value, "key": key}
    with connected(broker) as client:
        letter = client.dead_letter(topic, *at)
        if value is None and key is None and not headers:
            changes["value"] = in_editor(letter)
        done = client.redrive(
            topic,
            selection=Letters(offsets=[at]),
            edit={name: one for name, one in changes.items() if one is not None},
            headers=header_pairs(headers) or None,
            dry_run=is_dry_run,
        )
    report(ctx, done, output)


def in_editor(letter: "DeadLetter") -> str:
    """Open an editor and return the changed value. UsageError: no text, or no terminal. ClickException: no change."""
    before = text_of(letter.value)
    if not isinstance(before, str):
        raise click.UsageError("the value is not text: give the new one with --value")
    if not sys.stdin.isatty():
        raise click.UsageError("say what to change: --value, --key or --header")
    after = click.edit(before)
    if after is None or after == before:
        raise click.ClickException("nothing was changed, so nothing was sent back")
    return after if before.endswith("\n") else after.removesuffix("\n")


@dlq.command(epilog="Example: penstock dlq redrive orders --reason REJECTED --dry-run")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("places", nargs=-1, metavar="[PARTITION/OFFSET]...")
@letter_options
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option(
    "--sql",
    "query",
    default="",
    metavar="QUERY",
    help="Those whose partition and offset a query over the view letters has. Needs Spark.",
)
@click.option(
    "--target",
    type=click.Choice(["topic", "group"]),
    default="topic",
    show_default=True,
    help="To every group of the topic, or only to the group that failed.",
)
@click.option("--rate", type=click.IntRange(min=1), help="So many each second.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
@click.pass_context
def redrive(
    ctx: click.Context,
    /,
    topic: str,
    places: tuple[str, ...],
    *,
    letters: "Letters",
    is_all: bool,
    query: str,
    broker: BrokerOptions,
    output: Output,
    **more: Any,
) -> None:
    """Send dead letters back. Exit code 1 if some could not go.

    The view letters has partition, offset, timestamp, key, value, headers, priority, and why each died: dlq_reason,
    last_error, group, delivery_attempts, dlq_timestamp, original_topic, original_offset and more.
    """
    from ..client.dead_letters import Redrive

    if query:
        if places or is_all:
            raise click.UsageError("--sql says which: give neither places nor --all")
        letters = letters._replace(offsets=query_letters(topic, query, broker))
    order = Redrive(meant(letters, places, is_all=is_all), **more)
    with connected(broker) as client:
        done = send_back(client, topic, order)
    report(ctx, done, output)
    if done.matched < min(len(set(places)), order.limit or len(places)):
        click.echo("some of those places have no dead letter, or none of that kind", err=True)
        ctx.exit(Exit.FOUND_PROBLEMS)
    if query and order.limit is None and (over := len(letters.offsets or ()) - done.matched) > 0:
        click.echo(f"{over:,} that the query has went back before, or are discarded", err=True)


def query_letters(topic: str, query: str, broker: BrokerOptions) -> list[tuple[int, int]]:
    """Returns the dead letters that a query selects. NotFound: there are none. Refused: the query is wrong."""
    from .pipeline_runner import require_spark, server_of
    from .progress import Bar

    require_spark()
    from ..spark.pipelines.letter_query import letters_topic, selected_letters
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.runner import LOCAL_MASTER, session_at

    with server_of(broker) as server, Bar("Spark"):
        with connected(broker) as client:
            client.topic(letters_topic(topic))
        remote = Remote(server["server"] or "", server["key_file"], server["ca_file"])
        spark = session_at(LOCAL_MASTER, "penstock dlq", {})
        try:
            return selected_letters(spark, remote, topic, query)
        finally:
            spark.stop()


def meant(letters: "Letters", places: tuple[str, ...], *, is_all: bool) -> "Letters":
    """Which dead letters a command line says. UsageError if it says none, or all and some."""
    if places:
        letters = letters._replace(offsets=[partition_offset(one) for one in places])
    if any(one is not None for one in letters) == is_all:
        raise click.UsageError("say which: places, conditions such as --reason, or --all")
    return letters


@dlq.command(epilog="Example: penstock dlq discard orders --error 'no such user' --dry-run")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("places", nargs=-1, metavar="[PARTITION/OFFSET]...")
@letter_options
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@yes_option
@remote_options
@output_options
def discard(
    *,
    topic: str,
    places: tuple[str, ...],
    letters: "Letters",
    is_all: bool,
    is_sure: bool,
    limit: int | None,
    dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Have dead letters listed no more, and send them nowhere.

    Their messages stay in TOPIC.dlq for its retention.
    """
    chosen = meant(letters, places, is_all=is_all)
    with connected(broker) as client:
        done = client.discard(topic, selection=chosen, limit=limit or EVERY_LETTER, dry_run=True)
        if not dry_run:
            loss = f"{done.matched} dead letters of {topic} are discarded"
            confirm(topic, loss, client.url, is_sure=is_sure)
            done = take_out(client, topic, chosen, done.matched)
    would = "would be" if done.dry_run else "are"
    count = done.matched if done.dry_run else done.discarded
    output.outcome(f"{done.matched} found, {count} {would} discarded", done)


def take_out(client: "Client", topic: str, letters: "Letters", matched: int) -> "Discarded":
    """Discard the first `matched` dead letters that are selected. Returns the sum of all calls."""
    from ..api.dead_letters import REDRIVE_LIMIT
    from ..api.letters import Discarded

    discarded = 0
    while discarded < matched:
        limit = min(matched - discarded, REDRIVE_LIMIT)
        done = client.discard(topic, selection=letters, limit=limit)
        if not done.discarded:
            break  # Another client has discarded or redriven the rest.
        discarded += done.discarded
    return Discarded(matched, discarded)


def send_back(client: "Client", topic: str, order: "Redrive") -> "Redriven":
    """Redrive dead letters. Returns the sum of all calls, which are bounded: with a rate each one ends after some
    seconds, and a dead letter that comes back from its consumers meanwhile is not sent again.
    """
    from ..api.dead_letters import REDRIVE_LIMIT
    from ..api.letters import Redriven
    from .progress import Bar

    whole = order._replace(limit=order.limit or EVERY_LETTER, dry_run=True)
    planned = client.redrive(topic, **whole._asdict())
    if order.dry_run:
        return planned
    redriven = 0
    failed: list[dict[str, Any]] = []
    with Bar(topic, planned.matched) as bar:
        while redriven + len(failed) < planned.matched:
            bar.at(redriven, redriven)
            # Those that cannot go are looked at again in each call.
            limit = min(planned.matched - redriven, REDRIVE_LIMIT + len(failed))
            done = client.redrive(topic, **order._replace(limit=limit)._asdict())
            is_stuck = not done.redriven and len(done.failed) <= len(failed)
            redriven, failed = redriven + done.redriven, done.failed
            if is_stuck:
                break  # The rest cannot be redriven, or another client has redriven it.
    return Redriven(planned.matched, redriven, failed)


def report(ctx: click.Context, done: "Redriven", output: Output) -> None:
    would = "would go" if done.dry_run else "went"
    count = done.matched - len(done.failed) if done.dry_run else done.redriven
    output.outcome(f"{done.matched} found, {count} {would} back, {len(done.failed)} cannot", done)
    if output.is_table:
        output.rows(done.failed, ["partition", "offset", "reason"])
    if done.failed:
        ctx.exit(Exit.FOUND_PROBLEMS)
