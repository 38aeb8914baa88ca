"""The options of commands that talk to a server: which server, with which key."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .contexts import Context, contexts_path, read_contexts, read_key

if TYPE_CHECKING:
    from ..client import Client

CONTEXT_VARIABLE = "PENSTOCK_CONTEXT"
KEY_VARIABLE = "PENSTOCK_KEY"
CA_FILE_VARIABLE = "PENSTOCK_CA_FILE"
# Not imported from the client, which takes longer to load than most commands need.
SERVER_VARIABLE = "PENSTOCK_SERVER"
DEFAULT_SERVER = "penstock://127.0.0.1:9092"


class BrokerOptions(NamedTuple):
    """The server, key and certificates that the command line or the environment names."""

    server: str | None
    context: str | None
    key_file: Path | None
    ca_file: Path | None = None

    @property
    def is_named(self) -> bool:
        """Whether an option, a variable or a current context names the server."""
        return bool(self.server or self.context or read_contexts(contexts_path()).current)

    def found(self) -> tuple[Context, str | None]:
        """Returns the server and its key. With a context only its own files count, not those of the environment."""
        named = self._named()
        server = DEFAULT_SERVER if self.server is None else self.server
        found = named or Context(server, ca_file=os.environ.get(CA_FILE_VARIABLE) or None)
        if self.ca_file is not None:
            found = replace(found, ca_file=str(self.ca_file.expanduser().absolute()))
        if self.key_file is not None:
            return found, read_key(self.key_file)
        return found, os.environ.get(KEY_VARIABLE) if named is None else named.key()

    def _named(self) -> Context | None:
        if self.server is not None:
            return None
        known = read_contexts(contexts_path())
        name = self.context or known.current
        return None if name is None else known.get(name)


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
        command(*args, broker=broker_options(server, context, key_file, ca_file), **more)

    return run


def broker_options(
    server: str | None, context: str | None, key_file: Path | None, ca_file: Path | None = None
) -> BrokerOptions:
    """Returns the options of the command line, or of the environment if it names no server."""
    if server is None and context is None:
        server = os.environ.get(SERVER_VARIABLE) or None
        context = None if server else os.environ.get(CONTEXT_VARIABLE) or None
    return BrokerOptions(server, context, key_file, ca_file)


def connected(broker: BrokerOptions) -> "Client":
    from ..client import Client, ClientSettings, RetryPolicy

    context, key = broker.found()
    # A user waits at a terminal: better to fail soon than to try for long.
    settings = ClientSettings(retry=RetryPolicy(retries=1), ca_file=context.ca_file)
    return Client(context.server, key=key, settings=settings)
