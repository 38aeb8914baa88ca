"""What commands that talk to a server share: which server, with which key."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .contexts import Context, contexts_path, key_in, read_contexts

if TYPE_CHECKING:
    from ..client import Client

SERVER_VARIABLE = "PENSTOCK_SERVER"
CONTEXT_VARIABLE = "PENSTOCK_CONTEXT"
KEY_VARIABLE = "PENSTOCK_KEY"
CA_FILE_VARIABLE = "PENSTOCK_CA_FILE"
DEFAULT_SERVER = "http://127.0.0.1:8080"


class Place(NamedTuple):
    """What the command line said about the server."""

    server: str | None
    context: str | None
    key_file: Path | None
    ca_file: Path | None = None

    @property
    def is_named(self) -> bool:
        """Whether anything but the default says where the server is."""
        return bool(self.server or self.context or read_contexts(contexts_path()).current)

    def found(self) -> tuple[Context, str | None]:
        """The server and its key. A context names its own files: those of the environment may be for another server."""
        named = self._named()
        server = DEFAULT_SERVER if self.server is None else self.server
        found = named or Context(server, ca_file=os.environ.get(CA_FILE_VARIABLE) or None)
        if self.ca_file is not None:
            found = replace(found, ca_file=str(self.ca_file.expanduser().absolute()))
        if self.key_file is not None:
            return found, key_in(self.key_file)
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
    """Adds --server, --context, --key-file and --ca-file; the command gets `place`."""

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
        command(*args, place=place_of(server, context, key_file, ca_file), **more)

    return run


def place_of(
    server: str | None, context: str | None, key_file: Path | None, ca_file: Path | None = None
) -> Place:
    """What is said on the command line comes before what the environment says."""
    if server is None and context is None:
        server = os.environ.get(SERVER_VARIABLE) or None
        context = None if server else os.environ.get(CONTEXT_VARIABLE) or None
    return Place(server, context, key_file, ca_file)


def connected(place: Place) -> "Client":
    from ..client import Client, ClientSettings, RetryPolicy

    context, key = place.found()
    # Somebody looks at a terminal: better to say soon that nobody is there than to try for long.
    settings = ClientSettings(retry=RetryPolicy(retries=1), ca_file=context.ca_file)
    return Client(context.server, key=key, settings=settings)
