"""`penstock context`: several servers, by name."""

import json
from pathlib import Path

import click

from ..contexts import Context, Contexts, contexts_path, read_contexts
from .output import Output, output_options
from .remote import complete_context

DIRECTORY_MODE = 0o700

EPILOG = """\b
Examples:
  penstock context add local penstock://127.0.0.1:9092
  penstock context add live penstocks://penstock.example.com --key-file ~/.penstock-live
  penstock context add stage penstocks://stage.example.com --key-env STAGE_KEY --ca-file ca.pem
  penstock context use live          from now on, in every shell
  penstock topic list --context stage      only this once
  penstock context list
  penstock context remove stage

\b
The file holds addresses and where each key is found, never a key, and only you can read it (mode 0600):
~/.config/penstock/contexts.json, or the file that PENSTOCK_CONTEXTS names. PENSTOCK_CONTEXT names the context of one
shell.
"""


@click.group(epilog=EPILOG)
def context() -> None:
    """Servers by name: add, list, use and remove them."""


@context.command(
    epilog="Example: penstock context add live penstocks://penstock.example.com --key-file ~/.penstock-live"
)
@click.argument("name")
@click.argument("server")
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that holds the key and nothing else.",
)
@click.option("--key-env", metavar="NAME", help="The variable of the environment that has the key.")
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificates to trust instead of the system's.",
)
@output_options
def add(
    name: str,
    server: str,
    *,
    key_file: Path | None,
    key_env: str | None,
    ca_file: Path | None,
    output: Output,
) -> None:
    """Call SERVER by NAME; the first one added is in use at once. One that has the name already is replaced."""
    from ..client.address import Address
    from ..contexts import read_key

    if key_file is not None and key_env is not None:
        raise click.UsageError("a key is in a file or in the environment: give one of them")
    Address.parse(server)
    if key_file is not None:
        read_key(key_file)
    made = Context(server, absolute(key_file), key_env, absolute(ca_file))
    path = contexts_path()
    known = read_contexts(path)
    before = known.by_name.get(name)
    known.add(name, made)
    write_contexts(path, known)
    used = "in use" if known.current == name else f"penstock context use {name} makes it the one"
    instead = f", instead of {before.server}" if before not in {None, made} else ""
    facts = {"name": name, "replaced": before is not None, **made.to_json()}
    output.outcome(f"{name}: {server}{instead}; {used}", facts)


def absolute(path: Path | None) -> str | None:
    """Returns a path that means the same in every directory."""
    return None if path is None else str(path.expanduser().absolute())


@context.command("list", epilog="Example: penstock context list --json")
@output_options
def list_contexts(*, output: Output) -> None:
    """Show all servers that have a name."""
    known = read_contexts(contexts_path())
    rows = [
        {"name": name, "current": name == known.current, "key": where_of(one), **one.to_json()}
        for name, one in known.by_name.items()
    ]
    empty = "no contexts yet; penstock context add NAME URL makes one"
    output.rows(rows, ["name", "server", "key", "current"], empty=empty)


def where_of(one: Context) -> str:
    if one.key_env is not None:
        return f"${one.key_env}"
    return one.key_file or "none"


@context.command(epilog="Example: penstock context use live")
@click.argument("name", shell_complete=complete_context)
@output_options
def use(name: str, *, output: Output) -> None:
    """Make NAME the server of every command that names no other."""
    path = contexts_path()
    known = read_contexts(path)
    known.use(name)
    write_contexts(path, known)
    output.outcome(f"{name} is in use", {"name": name, **known.get(name).to_json()})


@context.command(epilog="Example: penstock context remove stage")
@click.argument("name", shell_complete=complete_context)
@output_options
def remove(name: str, *, output: Output) -> None:
    """Forget NAME. Key files stay where they are."""
    path = contexts_path()
    known = read_contexts(path)
    known.remove(name)
    write_contexts(path, known)
    output.outcome(f"{name} is forgotten", {"name": name, "removed": True})


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file in one step. Only its owner can ever read it."""
    from ..runtime.small_files import replace_file

    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    by_name = {name: one.to_json() for name, one in contexts.by_name.items()}
    text = json.dumps({"current": contexts.current, "contexts": by_name}, indent=2)
    replace_file(path, text.encode() + b"\n")
