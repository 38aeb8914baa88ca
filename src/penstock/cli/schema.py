"""`penstock schema`: the schema registry of a server."""

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exits import Exit
from .output import Output, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..client import Client

EPILOG = """\b
Examples:
  penstock schema register orders-value order.avsc       a new version, if it is compatible
  penstock schema register orders-value order.proto --reference shop/line.proto=line:1
  penstock schema list                                   all subjects
  penstock schema list orders-value                      the versions of one
  penstock schema show orders-value                      the latest version
  penstock schema show --id 7
  penstock schema check orders-value order.avsc          whether it would be taken, and why not
  penstock schema diff orders-value                      the last two versions
"""
_LANGUAGES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


@click.group(epilog=EPILOG)
def schema() -> None:
    """Register, list, look at, check and compare schemas of a server."""


_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_TYPE = click.option(
    "--type",
    "language",
    type=click.Choice(["avro", "json", "protobuf"]),
    help="The language; that of the file's ending (.avsc, .json, .proto) if not said.",
)
_REFERENCE = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=SUBJECT[:VERSION]",
    help="What the schema refers to as NAME; the latest version if none is said. Repeatable.",
)


def schema_in(file: Path, language: str | None, references: tuple[str, ...]) -> dict[str, Any]:
    """The schema in a file as the server reads it. UsageError if its language is not known."""
    from ..client.schemas import as_sent

    named = language.upper() if language else _LANGUAGES.get(file.suffix)
    if named is None:
        raise click.UsageError(f"{file}: say with --type which language it is in")
    return as_sent(
        file.read_text(encoding="utf-8"), named, [reference_in(one) for one in references]
    )


def reference_in(written: str) -> tuple[str, str, int]:
    """UsageError for what is not NAME=SUBJECT or NAME=SUBJECT:VERSION."""
    name, equals, rest = written.partition("=")
    subject, colon, number = rest.rpartition(":")
    if not colon:
        subject, number = rest, "-1"
    if not (equals and name and subject) or not number.removeprefix("-").isdecimal():
        raise click.UsageError(f"--reference: {written!r} is not NAME=SUBJECT[:VERSION]")
    return name, subject, int(number)


@schema.command(epilog="Example: penstock schema register orders-value order.avsc")
@click.argument("subject")
@_FILE
@_TYPE
@_REFERENCE
@remote_options
@output_options
def register(
    subject: str,
    file: Path,
    *,
    language: str | None,
    references: tuple[str, ...],
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Register the schema in FILE as a version of SUBJECT, unless it has this schema already."""
    from ..client.schemas import register as call

    sent = schema_in(file, language, references)
    with connected(broker) as client:
        made = call(client, subject, sent)
    record = {"subject": subject, "version": made["version"], "id": made["id"]}
    output.outcome(f"{subject}: version {made['version']}, id {made['id']}", record)


@schema.command("list", epilog="Example: penstock schema list orders-value --json")
@click.argument("subject", required=False)
@remote_options
@output_options
def list_schemas(subject: str | None, *, broker: BrokerOptions, output: Output) -> None:
    """Show all subjects with their latest versions, or all versions of SUBJECT."""
    from ..client.schemas import level, subjects, version, versions

    with connected(broker) as client:
        if subject is None:
            found = [
                {
                    **row_of(version(client, one, "latest")),
                    "compatibility": level(client, one)["compatibilityLevel"],
                }
                for one in subjects(client)
            ]
            columns = ["subject", "version", "id", "type", "compatibility"]
        else:
            numbers = versions(client, subject)
            found = [row_of(version(client, subject, str(one))) for one in numbers]
            columns = ["subject", "version", "id", "type", "guid"]
    output.rows(found, columns, empty="no schemas yet; penstock schema register adds one")


def row_of(found: dict[str, Any]) -> dict[str, Any]:
    names = {"subject": "subject", "version": "version", "id": "id", "type": "schemaType"}
    return {**{name: found[key] for name, key in names.items()}, "guid": found["guid"]}


@schema.command(epilog="Example: penstock schema show orders-value --version 1")
@click.argument("subject", required=False)
@click.option("--version", "number", default="latest", help="A number, or latest.")
@click.option("--id", "schema_id", type=int, help="A schema by its id, instead of a subject.")
@remote_options
@output_options
def show(
    subject: str | None,
    *,
    number: str,
    schema_id: int | None,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Print a schema: the one of a version of SUBJECT, or the one with an id."""
    from ..client.schemas import by_id, version

    if (subject is None) == (schema_id is None):
        raise click.UsageError("name a subject, or a schema with --id")
    with connected(broker) as client:
        if schema_id is not None:
            found = by_id(client, schema_id)
            found["id"] = schema_id
        else:
            assert subject is not None, "one of them is there"
            found = version(client, subject, number)
    if output.is_table:
        click.echo(readable(found))
    else:
        output.record(found)


def readable(found: dict[str, Any]) -> str:
    """The text of a schema; JSON with one thing a line."""
    text = str(found["schema"])
    if found["schemaType"] == "PROTOBUF":
        return text
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


@schema.command(epilog="Example: penstock schema check orders-value order.avsc")
@click.argument("subject")
@_FILE
@_TYPE
@_REFERENCE
@remote_options
@output_options
def check(
    subject: str,
    file: Path,
    *,
    language: str | None,
    references: tuple[str, ...],
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Say whether SUBJECT would take the schema in FILE, and why not. Nothing is registered."""
    from ..client.schemas import check as call

    sent = schema_in(file, language, references)
    with connected(broker) as client:
        found = call(client, subject, sent)
    messages = found.get("messages") or []
    record = {"subject": subject, "compatible": found["is_compatible"], "messages": messages}
    said = "compatible" if found["is_compatible"] else "not compatible"
    output.outcome("\n".join([f"{subject}: {said}", *messages]), record)
    if not found["is_compatible"]:
        raise click.exceptions.Exit(Exit.FOUND_PROBLEMS)


@schema.command(epilog="Example: penstock schema diff orders-value --from 1 --to 3")
@click.argument("subject")
@click.option("--from", "old", help="A number; the version before the other one if not said.")
@click.option("--to", "new", help="A number; the latest version if not said.")
@remote_options
@output_options
def diff(
    subject: str, *, old: str | None, new: str | None, broker: BrokerOptions, output: Output
) -> None:
    """Show what differs between two versions of SUBJECT."""
    with connected(broker) as client:
        before, after = two_versions(client, subject, old, new)
    lines = list(
        difflib.unified_diff(
            readable(before).splitlines(),
            readable(after).splitlines(),
            f"{subject} version {before['version']}",
            f"{subject} version {after['version']}",
            lineterm="",
        )
    )
    record = {"subject": subject, "from": before["version"], "to": after["version"], "diff": lines}
    output.outcome("\n".join(lines) or "nothing differs", record)


def two_versions(
    client: "Client", subject: str, old: str | None, new: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    from ..client.schemas import version, versions

    if old is None:
        numbers = versions(client, subject)
        below = [one for one in numbers if new is None or one < int(new)]
        if new is None:
            below = below[:-1]
        if not below:
            raise click.UsageError(f"{subject} has no version before that one")
        old = str(below[-1])
    return version(client, subject, old), version(client, subject, new or "latest")
