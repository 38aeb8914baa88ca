"""The options of commands that talk to a server: which server, with which key."""

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..contexts import (
    CA_FILE_VARIABLE,
    CONTEXT_VARIABLE,
    DEFAULT_SERVER,
    KEY_VARIABLE,
    SERVER_VARIABLE,
    Context,
    contexts_path,
    read_contexts,
    read_key,
    server_and_key,
)

if TYPE_CHECKING:
    from ..client import Client


# A user who has pressed Tab waits for so long.
_COMPLETION_S = 2.0


class BrokerOptions(NamedTuple):
    """The server, key and certificates that the command line names."""

    server: str | None
    context: str | None
    key_file: Path | None
    ca_file: Path | None = None

    @property
    def is_named(self) -> bool:
        """Whether an option, a variable or a current context names the server."""
        variables = map(os.environ.get, (SERVER_VARIABLE, CONTEXT_VARIABLE))
        is_said = bool(self.server or self.context or any(variables))
        return is_said or read_contexts(contexts_path()).current is not None

    def found(self) -> tuple[Context, str | None]:
        """Returns the server and its key; files of the command line come before all others."""
        found, key = server_and_key(self.server, self.context)
        if self.ca_file is not None:
            found = replace(found, ca_file=str(self.ca_file.expanduser().absolute()))
        return found, key if self.key_file is None else read_key(self.key_file)


def complete_context(_ctx: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return [name for name in read_contexts(contexts_path()).by_name if name.startswith(start)]


def complete_topic(ctx: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return names_at_the_server(ctx, start, lambda client: client.topics())


def complete_group(ctx: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return names_at_the_server(ctx, start, lambda client: [one.group for one in client.groups()])


def names_at_the_server(
    ctx: click.Context, start: str, names: Callable[["Client"], Iterable[str]]
) -> list[str]:
    """Returns names that begin so, of the server that the words before name; none if it does not answer soon."""
    from ..client import Client, ClientSettings, RetryPolicy
    from ..errors import PenstockError

    named = (ctx.params.get(name) for name in ("server", "context", "key_file", "ca_file"))
    try:
        context, key = BrokerOptions(*named).found()
        settings = ClientSettings(
            timeout_s=_COMPLETION_S,
            connect_timeout_s=_COMPLETION_S,
            retry=RetryPolicy(retries=0),
            ca_file=context.ca_file,
        )
        with Client(context.server, key=key, settings=settings) as client:
            return [name for name in names(client) if name.startswith(start)]
    except (PenstockError, OSError, click.ClickException):
        return []  # An error would stand in the middle of the line that the user types.


_SERVER = click.option(
    "--server",
    metavar="URL",
    help=f"Address of the broker, {DEFAULT_SERVER} if nothing says another; also {SERVER_VARIABLE}.",
)
_CONTEXT = click.option(
    "--context",
    metavar="NAME",
    shell_complete=complete_context,
    help=f"A server by name (penstock context); also {CONTEXT_VARIABLE}.",
)
_KEY_FILE = click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"A file with the key; otherwise the context's, or {KEY_VARIABLE}.",
)


_CA_FILE = click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Certificates to trust; otherwise the context's, {CA_FILE_VARIABLE}, or the system's.",
)


def remote_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --server, --context, --key-file and --ca-file; the command gets `broker`."""

    @_SERVER
    @_CONTEXT
    @_KEY_FILE
    @_CA_FILE
    @functools.wraps(command)
    def run(
        *args: Any,
        server: str | None,
        context: str | None,
        key_file: Path | None,
        ca_file: Path | None,
        **more: Any,
    ) -> None:
        if server is not None and context is not None:
            raise click.UsageError("--server and --context: give one of them")
        command(*args, broker=BrokerOptions(server, context, key_file, ca_file), **more)

    return run


def connected(broker: BrokerOptions) -> "Client":
    from ..client import Client, ClientSettings, RetryPolicy

    context, key = broker.found()
    # A user waits at a terminal: better to fail soon than to try for long.
    settings = ClientSettings(retry=RetryPolicy(retries=1), ca_file=context.ca_file)
    return Client(context.server, key=key, settings=settings)
