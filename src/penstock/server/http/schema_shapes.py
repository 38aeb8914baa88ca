"""What the routes of the schema registry share: the JSON that Confluent's clients send and get, errors included."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ... import errors
from ...api.json.messages import Content, Strict
from ...api.json.schemas import Number, SchemaReference
from ...api.principals import Action
from ...api.schemas import GLOBAL
from ...errors import NotFound, PenstockError, Refused
from .requests import Request
from .responses import JSON, REGISTRY, Answer, Response, encode_json
from .routing import Route
from .statuses import status_of

_UNPROCESSABLE = 422
DEFAULT_CONTEXT = ":.:"
_NUMBERS_BY_ERROR = {
    errors.InvalidSchema: 42201,
    errors.SchemaModeRefused: 42205,
    errors.SchemasReadOnly: 42205,
    errors.SchemaInUse: 42206,
    errors.InvalidSubject: 42208,
}
_NUMBERS_BY_KIND: Mapping[type[PenstockError], Mapping[str, int]] = {
    NotFound: {
        "subject": 40401,
        "version": 40402,
        "schema": 40403,
        "compatibility level": 40408,
        "mode": 40409,
    },
    errors.SoftDeleted: {"subject": 40404, "version": 40406},
    errors.NotSoftDeleted: {"subject": 40405, "version": 40407},
}


class Unprocessable(Refused):
    """What Confluent has a number of its own for."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class DecodeIn(Strict):
    """A key or a value as a producer of Confluent's wrote it: it begins with the id or the guid of its schema."""

    content: Content


class DecodedOut(msgspec.Struct, rename="camel"):
    """The content as JSON text, so that no reader rounds its numbers, and the schema that it was written with."""

    schema_id: int
    schema_type: str
    json: str


class SchemaIn(msgspec.Struct, rename="camel"):
    """A schema. `id` and `version` are for mode IMPORT. Without a type it is Avro, and below `/schemas` JSON."""

    schema: str = ""
    schema_type: str = ""
    references: list[SchemaReference] | None = None
    id: Number | None = None
    version: Number | None = None
    metadata: Any = None
    rule_set: Any = None


class ConfigIn(msgspec.Struct, rename="camel"):
    """A level, by either of the names that Confluent's clients have for it. The rest is refused if it is there."""

    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibility_group: str | None = None
    compatibility_policy: str | None = None
    default_metadata: Any = None
    override_metadata: Any = None
    default_rule_set: Any = None
    override_rule_set: Any = None


class ModeIn(msgspec.Struct):
    mode: str


class ConfigOut(msgspec.Struct, omit_defaults=True):
    compatibility: str | None = None


class ModeOut(msgspec.Struct):
    mode: str


class IdOut(msgspec.Struct):
    context: str
    id: int


class ScopeOut(msgspec.Struct):
    path: list[str]
    clusters: dict[str, str]


class RegistryIdOut(msgspec.Struct):
    """Where the registry is, as tools that know several registries tell them apart."""

    scope: ScopeOut
    id: str


class RegistryVersionOut(msgspec.Struct, rename="camel"):
    """Of Penstock."""

    version: str
    commit_id: str


class UseOut(msgspec.Struct):
    subject: str
    version: int


class RegistryOut(msgspec.Struct):
    schemas: int
    subjects: int
    versions: int
    text_bytes: int
    compatibility_level: str
    mode: str


class RegisterQuery(msgspec.Struct):
    normalize: bool = False
    format: str = ""


class FindQuery(msgspec.Struct):
    normalize: bool = False
    deleted: bool = False
    format: str = ""


class CheckQuery(msgspec.Struct):
    normalize: bool = False
    verbose: bool = False


class SubjectsQuery(msgspec.Struct, rename="camel"):
    subject_prefix: str = ""
    deleted: bool = False
    deleted_only: bool = False
    offset: int = 0
    limit: int = -1


class SchemasQuery(msgspec.Struct, rename="camel"):
    """There are no rules and no associations: what is asked for by these is nothing."""

    subject_prefix: str = ""
    deleted: bool = False
    latest_only: bool = False
    offset: int = 0
    limit: int = -1
    rule_type: str = ""
    resource_type: str = ""
    association_type: str = ""
    lifecycle: str = ""


class DeletedQuery(msgspec.Struct, rename="camel"):
    deleted: bool = False
    deleted_only: bool = False
    offset: int = 0
    limit: int = -1


class VersionQuery(msgspec.Struct):
    deleted: bool = False
    format: str = ""


class SchemaQuery(msgspec.Struct):
    format: str = ""
    subject: str = ""


class DeleteQuery(msgspec.Struct):
    permanent: bool = False


class DefaultQuery(msgspec.Struct, rename="camel"):
    default_to_global: bool = False


class ForceQuery(msgspec.Struct):
    force: bool = False


def refusal(error: PenstockError, request: Request) -> Response:
    """An error as Confluent's clients read it."""
    status = _UNPROCESSABLE if isinstance(error, Unprocessable) else status_of(error)
    kind, told = error.fields.get("kind"), type(error)
    if told is errors.SoftDeleted and request.method != "DELETE":
        # Those who do not delete are not told that it was there.
        told = NotFound
    number: int = getattr(error, "number", None) or _NUMBERS_BY_ERROR.get(told, status)
    number = _NUMBERS_BY_KIND.get(told, {}).get(str(kind), number)
    return answer(request, {"error_code": number, "message": str(error)}, status=status)


def answer(request: Request, content: object, *, status: int = 200) -> Response:
    kind = REGISTRY if request.accepts(REGISTRY) else JSON
    return Response(encode_json(content), status, kind)


def subject_of(request: Request) -> str:
    """`:.:name` is a name in the context that has none."""
    return request.params.get("subject", GLOBAL).removeprefix(DEFAULT_CONTEXT)


def route(
    method: str, path: str, call: Callable[[Request], Awaitable[Answer]], summary: str, **more: Any
) -> Route:
    """A route at the root that is also below `/schemas`."""
    return Route(
        method=method,
        path=path,
        also=(f"/schemas{path}",),
        call=call,
        summary=summary,
        tag="schemas",
        refusal=refusal,
        **{"action": Action.SEE_SCHEMAS, **more},
    )
