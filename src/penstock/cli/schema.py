"""`penstock schema`: the schema registry of a server."""

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from ..api.json.schemas import CompatibleOut, LevelOut, schema_out, version_out
from ..api.schemas import (
    LATEST,
    CheckCompatibility,
    DescribeCompatibility,
    DescribeSchema,
    DescribeVersion,
    FindSchema,
    ListSubjects,
    ListVersions,
    NewSchema,
    Reference,
    RegisterSchema,
    SchemaDescription,
    VersionDescription,
)
from ..errors import NotFound
from .exits import Exit
from .output import Output, Row, fields_of, output_options
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


def schema_in(file: Path, language: str | None, references: tuple[str, ...]) -> NewSchema:
    """The schema in a file. UsageError if its language is not known."""
    named = language.upper() if language else _LANGUAGES.get(file.suffix)
    if named is None:
        raise click.UsageError(f"{file}: say with --type which language it is in")
    return NewSchema(named, file.read_text(encoding="utf-8"), tuple(map(reference_in, references)))


def reference_in(written: str) -> Reference:
    """UsageError for what is not NAME=SUBJECT or NAME=SUBJECT:VERSION."""
    name, equals, rest = written.partition("=")
    subject, colon, number = rest.rpartition(":")
    if not colon:
        subject, number = rest, "-1"
    if not (equals and name and subject) or not number.removeprefix("-").isdecimal():
        raise click.UsageError(f"--reference: {written!r} is not NAME=SUBJECT[:VERSION]")
    return Reference(name, subject, int(number))


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
    sent = schema_in(file, language, references)
    with connected(broker) as client:
        try:
            made = client.execute(FindSchema(subject, sent))
        except NotFound:
            made = client.execute(RegisterSchema(subject, sent))
    said = f"{subject}: version {made.version}, id {made.schema.schema_id}"
    output.outcome(said, version_out(made))


@schema.command("list", epilog="Example: penstock schema list orders-value --json")
@click.argument("subject", required=False)
@remote_options
@output_options
def list_schemas(subject: str | None, *, broker: BrokerOptions, output: Output) -> None:
    """Show all subjects with their latest versions, or all versions of SUBJECT."""
    with connected(broker) as client:
        found: list[Row | Struct]
        if subject is None:
            found = [latest_of(client, one) for one in client.execute(ListSubjects())]
            last = "compatibilityLevel"
        else:
            numbers = client.execute(ListVersions(subject))
            found = [version_out(client.execute(DescribeVersion(subject, one))) for one in numbers]
            last = "guid"
    columns = ["subject", "version", "id", "schemaType", last]
    output.rows(found, columns, empty="no schemas yet; penstock schema register adds one")


def latest_of(client: "Client", subject: str) -> Row:
    """Returns the latest version of a subject, with the compatibility that the next one has to keep."""
    version = client.execute(DescribeVersion(subject))
    level = client.execute(DescribeCompatibility(subject, or_global=True))
    return {**fields_of(version_out(version)), **fields_of(LevelOut(level.value))}


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
    if (subject is None) == (schema_id is None):
        raise click.UsageError("name a subject, or a schema with --id")
    with connected(broker) as client:
        if subject is None:
            found = client.execute(DescribeSchema(schema_id=schema_id or 0))
            shape = schema_out(found)
        else:
            of_subject = client.execute(DescribeVersion(subject, version_in(number)))
            found, shape = of_subject.schema, version_out(of_subject)
    output.outcome(readable(found), shape)


def version_in(written: str) -> int:
    """UsageError for what is neither a number nor latest."""
    if written == "latest":
        return LATEST
    if not written.removeprefix("-").isdecimal():
        raise click.UsageError(f"{written!r} is no version: give a number, or latest")
    return int(written)


def readable(found: SchemaDescription) -> str:
    """The text of a schema; JSON with one thing a line."""
    if found.language == "PROTOBUF":
        return found.text
    return json.dumps(json.loads(found.text), indent=2, ensure_ascii=False)


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
    sent = schema_in(file, language, references)
    with connected(broker) as client:
        faults = client.execute(CheckCompatibility(subject, sent))
    said = "not compatible" if faults else "compatible"
    output.outcome("\n".join([f"{subject}: {said}", *faults]), CompatibleOut(not faults, faults))
    if faults:
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
            readable(before.schema).splitlines(),
            readable(after.schema).splitlines(),
            f"{subject} version {before.version}",
            f"{subject} version {after.version}",
            lineterm="",
        )
    )
    record = {"subject": subject, "from": before.version, "to": after.version, "diff": lines}
    output.outcome("\n".join(lines) or "nothing differs", record)


def two_versions(
    client: "Client", subject: str, old: str | None, new: str | None
) -> tuple[VersionDescription, VersionDescription]:
    last = version_in(new or "latest")
    if old is None:
        numbers = client.execute(ListVersions(subject))
        below = [one for one in numbers if last == LATEST or one < last]
        if last == LATEST:
            below = below[:-1]
        if not below:
            raise click.UsageError(f"{subject} has no version before that one")
        first = below[-1]
    else:
        first = version_in(old)
    return (
        client.execute(DescribeVersion(subject, first)),
        client.execute(DescribeVersion(subject, last)),
    )
