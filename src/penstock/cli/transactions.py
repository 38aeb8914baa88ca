"""`penstock transactions`: which are open, what they have staged, and an end for one that hangs."""

from typing import TYPE_CHECKING

import click

from .output import Output, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..api.transactions import Transaction

EPILOG = """\b
Examples:
  penstock transactions list                        the open or last one of every producer
  penstock transactions list --state Ongoing        those that are open
  penstock transactions describe 614-3              what it has staged, or where its messages are
  penstock transactions abort 614-3                 an end for one that hangs
"""

_COLUMNS = ["transaction", "producer", "state", "epoch", "open_s", "messages", "bytes", "reason"]
_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


@click.group(epilog=EPILOG)
def transactions() -> None:
    """List transactions, look at them and abort them."""


def row_of(one: "Transaction") -> dict[str, object]:
    return {
        "transaction": one.transaction_id,
        "producer": one.name,
        "state": one.state,
        "epoch": one.epoch,
        "open_s": None if one.open_ms is None else one.open_ms / 1000,
        "messages": sum(each.messages for each in one.participants),
        "bytes": sum(each.size_bytes for each in one.participants),
        "reason": one.reason,
    }


@transactions.command("list", epilog="Example: penstock transactions list --state Ongoing")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@remote_options
@output_options
def list_transactions(
    *, state: str | None, limit: int, broker: BrokerOptions, output: Output
) -> None:
    """Show the open or last transaction of every producer."""
    from ..api.json.forms import json_of
    from ..api.transactions import ListTransactions

    with connected(broker) as client:
        found = client.execute(ListTransactions(state, limit=limit))
    rows = map(row_of, found) if output.is_table else map(json_of, found)
    output.rows(rows, _COLUMNS, empty="there are no transactions")


@transactions.command(epilog="Example: penstock transactions describe 614-3 --json")
@click.argument("transaction")
@remote_options
@output_options
def describe(transaction: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show what a transaction has staged, or where its messages are."""
    from ..api.json.forms import json_of
    from ..api.transactions import DescribeTransaction

    with connected(broker) as client:
        found = client.execute(DescribeTransaction(transaction))
    if not output.is_table:
        output.record(json_of(found))
        return
    staged = [f"{one.topic}/{one.partition}: {one.messages}" for one in found.participants]
    offsets = [
        f"{one.topic}/{one.partition}/{one.offset}: {one.message_count}" for one in found.places
    ]
    output.record({**row_of(found), "staged": staged, "offsets": offsets})


@transactions.command(epilog="Example: penstock transactions abort 614-3")
@click.argument("transaction")
@remote_options
@output_options
def abort(transaction: str, *, broker: BrokerOptions, output: Output) -> None:
    """Abort an open transaction. Exit code 3 if it is decided already."""
    from ..api.json.forms import json_of
    from ..api.transactions import ForceAbort

    with connected(broker) as client:
        end = client.execute(ForceAbort(transaction))
    output.outcome(f"{end.transaction_id} is aborted", json_of(end))
