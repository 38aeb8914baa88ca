"""`penstock keys`: API keys of a broker, over HTTP or directly in its data directory."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import Output, output_options
from .remote import KEY_VARIABLE, Place, connected, remote_options
from .spans import seconds_in, span

if TYPE_CHECKING:
    from ..server.keys import KeyRing, Noting

EPILOG = f"""\b
Examples:
  penstock keys create ops --role admin --data-dir ./data     the first one, while no broker runs
  penstock keys create shop --role producer --prefix orders --server http://127.0.0.1:8080
  penstock keys list --context live
  penstock keys rotate pk-0123456789ab --grace 24h --server http://127.0.0.1:8080
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
    place: Place,
    output: Output,
) -> None:
    """Make a key for NAME and show it, once."""
    if expires_in is not None and seconds_in(expires_in) < 1:
        raise click.UsageError(f"--expires-in: at least 1s, got {expires_in}")
    if is_remote(data_dir, place):
        from ..client.keys import create as call

        sent: dict[str, Any] = {"name": name, "role": role, "prefixes": list(prefixes)}
        if expires_in is not None:
            sent["expires_in"] = expires_in
        with connected(place) as client:
            made = client.run(call(sent))
    else:
        from ..api.principals import Role
        from ..server.http.times import span_ms

        ttl_s = span_ms("--expires-in", expires_in or "0s") // 1000
        with ring_of(data_dir) as (ring, noting):
            stored, text = ring.create(
                name, Role(role), prefixes=prefixes, ttl_s=ttl_s, noting=noting
            )
        made = {"key_id": stored.key_id, "key": text}
    show_made(made, output)


@keys.command("list", epilog="Example: penstock keys list --data-dir ./data --json")
@DATA_DIR
@remote_options
@output_options
def list_keys(*, data_dir: Path | None, place: Place, output: Output) -> None:
    """Show all keys, without their secrets."""
    if is_remote(data_dir, place):
        found = list(listed(place))
    else:
        from ..api.units import time_text

        with ring_of(data_dir) as (ring, _):
            found = [
                {
                    "key_id": one.key_id,
                    "name": one.name,
                    "role": one.role.value,
                    "prefixes": list(one.prefixes),
                    "expires_at": time_text(ends) if (ends := one.secrets[-1].expires_at) else None,
                }
                for one in ring.all()
            ]
    if output.is_table:
        found = [{**one, "topics": topics_of(one["prefixes"])} for one in found]
    output.rows(found, ["key_id", "role", "name", "topics", "expires_at"], empty="no keys yet")


def topics_of(prefixes: list[str]) -> str:
    return ", ".join(f"{prefix}*" for prefix in prefixes) or "all topics"


def listed(place: Place) -> Iterator[dict[str, Any]]:
    from ..client.keys import listed as call

    with connected(place) as client:
        page = client.run(call(None))
        yield from page["keys"]
        while page.get("cursor") is not None:
            page = client.run(call(page["cursor"]))
            yield from page["keys"]


@keys.command(epilog="Example: penstock keys rotate pk-0123456789ab --grace 1h --data-dir ./data")
@click.argument("key_id")
@click.option(
    "--grace", type=span, default="24h", show_default=True, help="How long the old secret works on."
)
@DATA_DIR
@remote_options
@output_options
def rotate(key_id: str, *, grace: str, data_dir: Path | None, place: Place, output: Output) -> None:
    """Make a new secret for KEY_ID and show it, once."""
    if is_remote(data_dir, place):
        from ..client.keys import rotate as call

        with connected(place) as client:
            made = client.run(call(key_id, grace))
    else:
        from ..server.http.times import span_ms

        with ring_of(data_dir) as (ring, noting):
            grace_s = span_ms("--grace", grace) // 1000
            stored, text = ring.rotate(key_id, grace_s=grace_s, noting=noting)
        made = {"key_id": stored.key_id, "key": text}
    show_made(made, output)


@keys.command(epilog="Example: penstock keys revoke pk-0123456789ab --data-dir ./data")
@click.argument("key_id")
@DATA_DIR
@remote_options
@output_options
def revoke(key_id: str, *, data_dir: Path | None, place: Place, output: Output) -> None:
    """End KEY_ID, at once."""
    if is_remote(data_dir, place):
        from ..client.keys import revoke as call

        with connected(place) as client:
            client.run(call(key_id))
    else:
        with ring_of(data_dir) as (ring, noting):
            ring.revoke(key_id, noting=noting)
    output.said(f"revoked {key_id}", {"key_id": key_id, "revoked": True})


def is_remote(data_dir: Path | None, place: Place) -> bool:
    """A server or a directory has to be named: keys are no place for a default."""
    if data_dir is None and not place.is_named:
        raise click.UsageError("say where: --data-dir, or --server for a broker that runs")
    return data_dir is None


def show_made(made: dict[str, Any], output: Output) -> None:
    output.said(made["key"], {"key_id": made["key_id"], "key": made["key"]})
    if output.is_table:
        click.echo("Keep it: it is not shown again.", err=True)


@contextmanager
def ring_of(data_dir: Path | None) -> "Iterator[tuple[KeyRing, Noting]]":
    """The keys of a directory that no broker has open, and what notes changes of them in its audit log.

    The lock that keeps a second broker out keeps us out too.
    """
    from ..api.principals import Action
    from ..config import StorageConfig
    from ..runtime import RealDisk, SystemClock
    from ..server.audit import AuditLog
    from ..server.keys import KeyRing

    assert data_dir is not None, "asked before"
    with closing(RealDisk(str(data_dir), StorageConfig())):
        now_ns = SystemClock().now_ns
        ring = KeyRing(data_dir, now_ns)
        with closing(AuditLog(data_dir, now_ns)) as audit:
            yield ring, partial(audit.noted, "command line", Action.CHANGE_KEYS.value)
