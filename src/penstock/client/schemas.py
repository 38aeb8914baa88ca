"""Schemas, as Confluent's registry has them. A broker serves these over HTTP alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from .http_page import client_call, http_path

if TYPE_CHECKING:
    from .synchronous.client import Client

Version = dict[str, Any]
"""`subject`, `version`, `id`, `guid`, `schema`, `schemaType` and `references`."""


def as_sent(
    text: str, language: str, references: Sequence[tuple[str, str, int]] = ()
) -> dict[str, Any]:
    """A schema as the server reads it. A reference is a name, a subject and a version; -1 is the latest."""
    named = [
        {"name": name, "subject": subject, "version": version}
        for name, subject, version in references
    ]
    return {"schema": text, "schemaType": language, "references": named}


def register(client: "Client", subject: str, schema: dict[str, Any]) -> Version:
    path = http_path("subjects", subject, "versions")
    return cast("Version", client_call(client, path, "POST", schema))


def subjects(client: "Client") -> list[str]:
    return cast("list[str]", client_call(client, http_path("subjects")))


def versions(client: "Client", subject: str) -> list[int]:
    return cast("list[int]", client_call(client, http_path("subjects", subject, "versions")))


def version(client: "Client", subject: str, number: str) -> Version:
    """`number` may be "latest"."""
    path = http_path("subjects", subject, "versions", number)
    return cast("Version", client_call(client, path))


def by_id(client: "Client", schema_id: int) -> dict[str, Any]:
    path = http_path("schemas", "ids", str(schema_id))
    return cast("dict[str, Any]", client_call(client, path))


def check(client: "Client", subject: str, schema: dict[str, Any]) -> dict[str, Any]:
    """`is_compatible`, and `messages` that say why not."""
    path = http_path("compatibility", "subjects", subject, "versions", verbose="true")
    return cast("dict[str, Any]", client_call(client, path, "POST", schema))


def level(client: "Client", subject: str) -> dict[str, Any]:
    path = http_path("config", subject, defaultToGlobal="true")
    return cast("dict[str, Any]", client_call(client, path))
