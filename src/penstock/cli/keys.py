"""`penstock keys`: API keys of a broker, asked of it or directly in its data directory."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

import click

from ..contexts import KEY_VARIABLE
from .arguments import seconds_in, span
from .output import Output, Row, fields_of, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from msgspec import Struct

    from ..api.command import Command
    from ..api.keys import NewKey
    from ..broker.node import Node
    from ..server.audit import AuditLog

R = TypeVar("R")

EPILOG = f"""\b
Examples:
  penstock keys create ops --role admin --data-dir ./data     the first one, while no broker runs
  penstock keys create shop --role producer --prefix orders --server penstock://127.0.0.1:9092
  penstock keys list --context live
  penstock keys rotate pk-0123456789ab --grace 24h --server penstock://127.0.0.1:9092
  penstock keys revoke pk-0123456789ab --data-dir ./data

\b
A key is shown when it is made, and never again: only its hash is kept. The key to ask a server with is the context's,
that of --key-file, or {KEY_VARIABLE}.
"""

DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data of a broker that does not run.",
)


@click.group(epilog=EPILOG)
def keys() -> None:
    """Make, list, rotate and revoke API keys."""


@keys.command(
    epilog="Example: penstock keys create shop --role producer --prefix orders --data-dir ./data"
)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["admin", "producer", "consumer", "readonly"]),
    required=True,
    help="What the key may do.",
)
@click.option("--prefix", "prefixes", multiple=True, help="Only topics that begin so; repeatable.")
@click.option("--expires-in", type=span, help='For how long: "30d", "12h"; for ever if not said.')
@DATA_DIR
@remote_options
@output_options
def create(
    name: str,
    *,
    role: str,
    prefixes: tuple[str, ...],
    expires_in: str | None,
    data_dir: Path | None,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Make a key for NAME and show it, once."""
    if expires_in is not None and seconds_in(expires_in) < 1:
        raise click.UsageError(f"--expires-in: at least 1s, got {expires_in}")
    from ..api.keys import CreateKey
    from ..api.principals import Role

    lifetime_ms = int(seconds_in(expires_in) * 1000) if expires_in is not None else 0
    key_id = f"pk-{token_hex(6)}"
    command = CreateKey(name, Role(role), prefixes, lifetime_ms, key_id)
    if is_remote(data_dir, broker):
        with connected(broker) as client:
            new = client.execute(command)
    else:
        with offline_keys(data_dir, is_made=True) as offline:
            new = offline.audited(command, f"key {key_id} ({name}, {role}) created")
    show_new_key(new, output)


@keys.command("list", epilog="Example: penstock keys list --data-dir ./data --json")
@DATA_DIR
@remote_options
@output_options
def list_keys(*, data_dir: Path | None, broker: BrokerOptions, output: Output) -> None:
    """Show all keys, without their secrets."""
    from ..api.json.keys import key_out
    from ..api.keys import ListKeys

    if is_remote(data_dir, broker):
        with connected(broker) as client:
            listed = client.execute(ListKeys())
    else:
        with offline_keys(data_dir) as offline:
            listed = offline.execute(ListKeys())
    rows: list[Row | Struct] = [key_out(one) for one in listed]
    if output.is_table:
        rows = [{**(key := fields_of(one)), "topics": topics_of(key["prefixes"])} for one in rows]
    output.rows(rows, ["key_id", "role", "name", "topics", "expires_at"], empty="no keys yet")


def topics_of(prefixes: list[str]) -> str:
    return ", ".join(f"{prefix}*" for prefix in prefixes) or "all topics"


@keys.command(epilog="Example: penstock keys rotate pk-0123456789ab --grace 1h --data-dir ./data")
@click.argument("key_id")
@click.option(
    "--grace", type=span, default="24h", show_default=True, help="How long the old secret works on."
)
@DATA_DIR
@remote_options
@output_options
def rotate(
    key_id: str, *, grace: str, data_dir: Path | None, broker: BrokerOptions, output: Output
) -> None:
    """Make a new secret for KEY_ID and show it, once."""
    from ..api.keys import DescribeKey, RotateKey

    command = RotateKey(key_id, int(seconds_in(grace) * 1000))
    if is_remote(data_dir, broker):
        with connected(broker) as client:
            new = client.execute(command)
    else:
        with offline_keys(data_dir) as offline:
            name = offline.execute(DescribeKey(key_id)).name
            new = offline.audited(command, f"key {key_id} ({name}) rotated")
    show_new_key(new, output)


@keys.command(epilog="Example: penstock keys revoke pk-0123456789ab --data-dir ./data")
@click.argument("key_id")
@click.option(
    "--force", "is_forced", is_flag=True, help="Even if no other key of an administrator is left."
)
@DATA_DIR
@remote_options
@output_options
def revoke(
    key_id: str, *, is_forced: bool, data_dir: Path | None, broker: BrokerOptions, output: Output
) -> None:
    """End KEY_ID, at once."""
    from ..api.keys import DescribeKey, RevokeKey

    if is_remote(data_dir, broker):
        with connected(broker) as client:
            client.execute(RevokeKey(key_id, is_forced=is_forced))
    else:
        with offline_keys(data_dir) as offline:
            name = offline.execute(DescribeKey(key_id)).name
            # Who has the directory can make another one: there is nothing to lose.
            command = RevokeKey(key_id, is_forced=True)
            offline.audited(command, f"key {key_id} ({name}) revoked")
    output.outcome(f"revoked {key_id}", {"key_id": key_id, "revoked": True})


def is_remote(data_dir: Path | None, broker: BrokerOptions) -> bool:
    """Whether to ask a server. UsageError: neither a server nor a directory is named; there is no default."""
    if data_dir is None and not broker.is_named:
        raise click.UsageError("say where: --data-dir, or --server for a broker that runs")
    return data_dir is None


def show_new_key(made: "NewKey", output: Output) -> None:
    from ..api.json.keys import key_out

    output.outcome(made.text, key_out(made.key, made.text))
    if output.is_table:
        click.echo("Keep it: it is not shown again.", err=True)


class OfflineKeys:
    """The keys of a directory that no broker has open."""

    def __init__(self, node: "Node", audit: "AuditLog") -> None:
        self._node, self._audit = node, audit

    def execute(self, command: "Command[R]") -> "R":
        """Returns the reply to a command, or raises what it was refused with."""
        from ..api.principals import LOCAL
        from .offline import offline_now

        return self._node.execute(command, LOCAL, offline_now()).outcome()

    def audited(self, command: "Command[R]", what: str) -> "R":
        """Execute a change of the keys. Its line is in the audit log before, and is removed if it is refused."""
        from ..api.principals import Action

        with self._audit.noted("command line", Action.CHANGE_KEYS.value, what):
            return self.execute(command)


@contextmanager
def offline_keys(data_dir: Path | None, *, is_made: bool = False) -> Iterator[OfflineKeys]:
    """The keys of a data directory. FileMissing: there is none, and it is not to be made."""
    from ..config import StorageConfig
    from ..errors import FileMissing
    from ..runtime import RealDisk, SystemClock
    from ..server.audit import AuditLog
    from .offline import node_on

    assert data_dir is not None, "`is_remote` was asked before"
    if not is_made and not data_dir.joinpath("meta").is_dir():
        raise FileMissing(f"a broker's data in {data_dir}")
    with (
        RealDisk(data_dir, StorageConfig()) as disk,
        node_on(disk) as node,
        closing(AuditLog(disk, SystemClock().now_ns)) as audit,
    ):
        yield OfflineKeys(node, audit)
