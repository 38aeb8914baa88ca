"""`penstock keys`: API keys of a broker, over HTTP or directly in its data directory."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from ..server.keys import KeyRing

KEY_VARIABLE = "PENSTOCK_KEY"
_TIMEOUT_S = 30

EPILOG = f"""\b
Examples:
  penstock keys create ops --role admin --data-dir ./data     the first one, while no broker runs
  penstock keys create shop --role producer --prefix orders --server http://127.0.0.1:8080
  penstock keys list --server http://127.0.0.1:8080
  penstock keys rotate pk-0123456789ab --grace 24h --server http://127.0.0.1:8080
  penstock keys revoke pk-0123456789ab --data-dir ./data

\b
A key is shown when it is made, and never again: only its hash is kept. With --server the key to use is taken
from {KEY_VARIABLE}.
"""

DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data of a broker that does not run.",
)
SERVER = click.option("--server", help="Address of a broker that runs.")
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


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
@click.option("--expires-in", help='For how long: "30d", "12h"; for ever if not said.')
@DATA_DIR
@SERVER
@JSON
def create(
    name: str, *, is_json: bool, server: str | None, data_dir: Path | None, **more: Any
) -> None:
    """Make a key for NAME and show it, once."""
    sent = {"name": name, "role": more["role"], "prefixes": list(more["prefixes"])}
    if more["expires_in"] is not None:
        sent["expires_in"] = more["expires_in"]
    if server is not None:
        made = call(server, "POST", "/admin/keys", sent)
    else:
        from ..broker.authorise import Role
        from ..server.http.times import span_ms

        ttl_s = span_ms("--expires-in", more["expires_in"] or 0) // 1000
        with ring_of(data_dir, "create a key") as ring:
            stored, text = ring.create(
                name, Role(more["role"]), prefixes=more["prefixes"], ttl_s=ttl_s
            )
        made = {"key_id": stored.key_id, "key": text}
    show_made(made, is_json=is_json)


@keys.command("list", epilog="Example: penstock keys list --data-dir ./data --json")
@DATA_DIR
@SERVER
@JSON
def list_keys(*, data_dir: Path | None, server: str | None, is_json: bool) -> None:
    """Show all keys, without their secrets."""
    if server is not None:
        found = call(server, "GET", "/admin/keys?limit=10000")["keys"]
    else:
        with ring_of(data_dir, "list keys") as ring:
            found = [
                {
                    "key_id": one.key_id,
                    "name": one.name,
                    "role": one.role.value,
                    "prefixes": list(one.prefixes),
                }
                for one in ring.all()
            ]
    for one in found:
        if is_json:
            click.echo(json.dumps(one))
        else:
            where = ", ".join(f"{prefix}*" for prefix in one["prefixes"]) or "all topics"
            click.echo(f"{one['key_id']}  {one['role']:9} {one['name']:20} {where}")


@keys.command(epilog="Example: penstock keys rotate pk-0123456789ab --grace 1h --data-dir ./data")
@click.argument("key_id")
@click.option("--grace", default="24h", show_default=True, help="How long the old secret works on.")
@DATA_DIR
@SERVER
@JSON
def rotate(
    key_id: str, *, grace: str, data_dir: Path | None, server: str | None, is_json: bool
) -> None:
    """Make a new secret for KEY_ID and show it, once."""
    if server is not None:
        made = call(server, "POST", f"/admin/keys/{key_id}/rotate", {"grace": grace})
    else:
        from ..server.http.times import span_ms

        with ring_of(data_dir, "rotate a key") as ring:
            stored, text = ring.rotate(key_id, grace_s=span_ms("--grace", grace) // 1000)
        made = {"key_id": stored.key_id, "key": text}
    show_made(made, is_json=is_json)


@keys.command(epilog="Example: penstock keys revoke pk-0123456789ab --data-dir ./data")
@click.argument("key_id")
@DATA_DIR
@SERVER
def revoke(key_id: str, *, data_dir: Path | None, server: str | None) -> None:
    """End KEY_ID, at once."""
    if server is not None:
        call(server, "DELETE", f"/admin/keys/{key_id}")
    else:
        with ring_of(data_dir, "revoke a key") as ring:
            ring.revoke(key_id)
    click.echo(f"revoked {key_id}")


def show_made(made: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps({"key_id": made["key_id"], "key": made["key"]}))
    else:
        click.echo(made["key"])
        click.echo("Keep it: it is not shown again.", err=True)


@contextmanager
def ring_of(data_dir: Path | None, what: str) -> "Iterator[KeyRing]":
    """The keys of a directory that no broker has open: the lock that keeps a second one out keeps us out too."""
    from ..config import StorageConfig
    from ..runtime import RealDisk, SystemClock
    from ..server.audit import AuditLog
    from ..server.keys import KeyRing

    if data_dir is None:
        raise click.UsageError("say where: --data-dir, or --server for a broker that runs")
    disk = RealDisk(str(data_dir), StorageConfig())
    now_ns = SystemClock().now_ns
    try:
        audit = AuditLog(data_dir, now_ns)
        yield KeyRing(data_dir, now_ns)
        audit.write("command line", what, "keys.json")
        audit.close()
    finally:
        disk.close()


def call(server: str, method: str, target: str, body: object = None) -> Any:
    """One request to a broker that runs."""
    from http.client import HTTPConnection, HTTPSConnection

    place = urlsplit(server)
    if place.scheme not in {"http", "https"} or not place.hostname:
        raise click.UsageError(f"--server: {server!r} is not an address like http://127.0.0.1:8080")
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.hostname, place.port, timeout=_TIMEOUT_S)
    headers = {"content-type": "application/json"}
    if key := os.environ.get(KEY_VARIABLE):
        headers["authorization"] = f"Bearer {key}"
    try:
        connection.request(method, target, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    found = json.loads(content) if content else {}
    if answer.status >= 400:
        raise click.ClickException(f"{found.get('message', answer.reason)} ({found.get('error')})")
    return found
