"""The options of commands that talk to a server: which server, with which key."""

import functools
import os
from collections.abc import Callable
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
