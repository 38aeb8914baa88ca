"""The schema registry over HTTP, as Confluent's clients speak to theirs: at the root, and below `/schemas`.

Errors are `{"error_code": 40401, "message": "..."}` here, with Confluent's numbers. Answers have Confluent's content
type for clients that accept it.
"""

from importlib import metadata

import msgspec

from ... import errors
from ...api.json.messages import bytes_of
from ...api.json.schemas import (
    VERSION_MAX,
    CompatibleOut,
    SchemaOut,
    SubjectVersionOut,
    schema_out,
    version_out,
)
from ...api.principals import Action
from ...api.schemas import (
    LATEST,
    CheckCompatibility,
    DecodeContent,
    DeleteSubject,
    DeleteVersion,
    DescribeRegistry,
    DescribeSchema,
    DescribeVersion,
    FindSchema,
    ListReferring,
    ListUses,
    NewSchema,
    Reference,
    RegisterSchema,
    SchemaDescription,
    VersionDescription,
)
from ...errors import NotFound
from ..kafka.metadata import CLUSTER_ID
from .requests import Request
from .responses import Answer, encode_json
from .schema_lists import list_schemas, list_subjects, list_versions, page
from .schema_shapes import (
    CheckQuery,
    DecodedOut,
    DecodeIn,
    DeletedQuery,
    DeleteQuery,
    FindQuery,
    IdOut,
    RegisterQuery,
    RegistryIdOut,
    RegistryOut,
    RegistryVersionOut,
    SchemaIn,
    SchemaQuery,
    SchemasQuery,
    ScopeOut,
    SubjectsQuery,
    Unprocessable,
    UseOut,
    VersionQuery,
    answer,
    route,
    subject_of,
)

_TYPES = ("JSON", "PROTOBUF", "AVRO")
_INVALID_VERSION = 42202
_SCHEMA = msgspec.json.Decoder(SchemaIn)
_DECODE = msgspec.json.Decoder(DecodeIn)
_SERIALIZED, _RESOLVED = "serialized", "resolved"
_NOT_PERMITTED = 42205


def _version(request: Request) -> int:
    """The number of a version, or `LATEST`. Unprocessable for what is neither."""
    written = request.params["version"]
    if written in {"latest", "-1"}:
        return LATEST
    if written.isascii() and written.isdecimal() and 0 < int(written[:20]) <= VERSION_MAX:
        return int(written)
    raise Unprocessable(_INVALID_VERSION, f"{written[:40]!r} is not a version, nor latest")


def _schema_id(request: Request) -> int:
    written = request.params["id"]
    if not (written.isascii() and written.isdecimal() and len(written) <= 10):
        raise NotFound("schema", written[:40])
    return int(written)


def _sent(request: Request) -> tuple[SchemaIn, NewSchema]:
    sent = request.json(_SCHEMA)
    if not sent.schema:
        raise errors.InvalidSchema("there is none")
    if sent.metadata or sent.rule_set:
        raise errors.InvalidSchema("metadata and rule sets are not supported")
    references = tuple(
        Reference(one.name, one.subject, one.version) for one in sent.references or ()
    )
    # Clients of the routes below `/schemas` know JSON alone, those of Confluent's registry leave out AVRO.
    is_below = request.path.removeprefix("/v1").startswith("/schemas/")
    is_confluents = request.content_type.startswith(b"application/vnd.schemaregistry")
    default = "JSON" if is_below and not is_confluents else "AVRO"
    return sent, NewSchema(sent.schema_type or default, sent.schema, references)


def _require_format(written: str, schema: SchemaDescription) -> None:
    """Unprocessable for a format that there is none of."""
    is_whole = not schema.references
    if written not in {"", "default", _SERIALIZED} and not (written == _RESOLVED and is_whole):
        raise Unprocessable(_NOT_PERMITTED, f"format {written[:40]!r} is not supported here")


async def _answer_version(request: Request, version: VersionDescription, written: str) -> Answer:
    """A version in the format that was asked for."""
    _require_format(written, version.schema)
    if written == _SERIALIZED:
        command = DescribeVersion(version.subject, version.version, deleted=True, serialized=True)
        version = await request.execute(command)
    return answer(request, version_out(version))


async def register(request: Request) -> Answer:
    """A schema that is there already is found without a right to register: producers do so whenever they start."""
    asked, (sent, schema) = request.query(RegisterQuery), _sent(request)
    subject = subject_of(request)
    found: VersionDescription | None = None
    if not sent.id:
        try:
            known = FindSchema(subject, schema, normalize=asked.normalize)
            found = await request.execute(known)
        except NotFound:
            found = None
    if found is None:
        command = RegisterSchema(
            subject, schema, asked.normalize, max(0, sent.id or 0), max(0, sent.version or 0)
        )
        # The route is for all that may look; from here on it is another right that counts.
        request.action = Action.REGISTER_SCHEMA
        found = await request.execute_audited(command)
    return await _answer_version(request, found, asked.format)


async def find(request: Request) -> Answer:
    asked, (_, schema) = request.query(FindQuery), _sent(request)
    command = FindSchema(subject_of(request), schema, asked.normalize, asked.deleted)
    return await _answer_version(request, await request.execute(command), asked.format)


async def check(request: Request) -> Answer:
    asked, (_, schema) = request.query(CheckQuery), _sent(request)
    number = _version(request) if "version" in request.params else 0
    try:
        faults = await request.execute(CheckCompatibility(subject_of(request), schema, number))
    except errors.InvalidSchema as error:
        if not asked.verbose:
            raise
        faults = [str(error)]
    return answer(request, CompatibleOut(not faults, faults if asked.verbose else None))


async def _found_version(request: Request, number: int) -> VersionDescription:
    asked = request.query(VersionQuery)
    is_serialized = asked.format == _SERIALIZED
    command = DescribeVersion(subject_of(request), number, asked.deleted, is_serialized)
    version = await request.execute(command)
    _require_format(asked.format, version.schema)
    return version


async def describe_version(request: Request) -> Answer:
    return answer(request, version_out(await _found_version(request, _version(request))))


async def describe_latest(request: Request) -> Answer:
    """No schema has metadata, so none has those that are asked for."""
    if b"key=" in request.query_string or b"value=" in request.query_string:
        raise NotFound("schema", f"with such metadata in subject {subject_of(request)}")
    return answer(request, version_out(await _found_version(request, LATEST)))


async def version_text(request: Request) -> Answer:
    found = await _found_version(request, _version(request))
    return answer(request, msgspec.Raw(_raw(found.schema)))


def _raw(found: SchemaDescription) -> bytes:
    """The schema alone: JSON as it is, other text as a string."""
    return found.text.encode() if found.language != "PROTOBUF" else encode_json(found.text)


async def _found_schema(request: Request) -> SchemaDescription:
    asked = request.query(SchemaQuery)
    within, is_serialized = request.principal.prefixes, asked.format == _SERIALIZED
    if "guid" in request.params:
        guid = request.params["guid"]
        command = DescribeSchema(within=within, guid=guid, serialized=is_serialized)
    else:
        number = _schema_id(request)
        command = DescribeSchema(within=within, schema_id=number, serialized=is_serialized)
    schema = await request.execute(command)
    _require_format(asked.format, schema)
    return schema


async def describe_schema(request: Request) -> Answer:
    return answer(request, schema_out(await _found_schema(request)))


async def ids_of_guid(request: Request) -> Answer:
    schema = await _found_schema(request)
    return answer(request, [IdOut(".", schema_id) for schema_id in schema.ids])


async def describe_place(request: Request) -> Answer:
    clusters = {"kafka-cluster": CLUSTER_ID, "schema-registry-cluster": CLUSTER_ID}
    return answer(request, RegistryIdOut(ScopeOut([], clusters), ""))


async def describe_software(request: Request) -> Answer:
    return answer(request, RegistryVersionOut(metadata.version("penstock"), ""))


async def decode(request: Request) -> Answer:
    content = bytes_of(request.json(_DECODE).content) or b""
    found = await request.execute(DecodeContent(within=request.principal.prefixes, content=content))
    return answer(request, DecodedOut(found.schema_id, found.language, found.json))


async def schema_text(request: Request) -> Answer:
    return answer(request, msgspec.Raw(_raw(await _found_schema(request))))


async def _uses(request: Request) -> list[tuple[str, int]]:
    asked = request.query(DeletedQuery)
    command = ListUses(
        within=request.principal.prefixes, schema_id=_schema_id(request), deleted=asked.deleted
    )
    return page(await request.execute(command), asked.offset, asked.limit)


async def subjects_of(request: Request) -> Answer:
    return answer(request, [*dict.fromkeys(subject for subject, _ in await _uses(request))])


async def versions_of(request: Request) -> Answer:
    return answer(request, [UseOut(*one) for one in await _uses(request)])


async def referring(request: Request) -> Answer:
    command = ListReferring(subject_of(request), _version(request))
    found = await request.execute(command)
    return answer(request, found)


async def list_types(request: Request) -> Answer:
    return answer(request, _TYPES)


async def list_contexts(request: Request) -> Answer:
    return answer(request, ["."])


async def stats(request: Request) -> Answer:
    found = await request.execute(DescribeRegistry(within=request.principal.prefixes))
    level, mode = found.level.value, found.mode.value
    counts = found.schemas, found.subjects, found.versions, found.text_bytes
    return answer(request, RegistryOut(*counts, level, mode))


async def delete_version(request: Request) -> Answer:
    asked = request.query(DeleteQuery)
    command = DeleteVersion(subject_of(request), _version(request), permanent=asked.permanent)
    number = await request.execute_audited(command)
    return answer(request, number)


async def delete_subject(request: Request) -> Answer:
    asked = request.query(DeleteQuery)
    command = DeleteSubject(subject_of(request), permanent=asked.permanent)
    numbers = await request.execute_audited(command)
    return answer(request, numbers)


_LIST = {"application/json": "a list"}
_TEXT = {"application/json": "the schema"}
_NUMBER = {"application/json": "its number"}

ROUTES = (
    route(
        "GET", "/subjects", list_subjects, "List subjects", query=SubjectsQuery, other_answers=_LIST
    ),
    route(
        "POST",
        "/subjects/{subject}",
        find,
        "Find the version of a subject that has a schema",
        query=FindQuery,
        body=SchemaIn,
        answer=SubjectVersionOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "DELETE",
        "/subjects/{subject}",
        delete_subject,
        "Delete all versions of a subject, softly or permanently",
        action=Action.CHANGE_SCHEMAS,
        query=DeleteQuery,
        other_answers=_LIST,
        errors=(NotFound, errors.SchemaInUse),
    ),
    route(
        "GET",
        "/subjects/{subject}/versions",
        list_versions,
        "List versions of a subject",
        query=DeletedQuery,
        other_answers=_LIST,
        errors=(NotFound,),
    ),
    route(
        "POST",
        "/subjects/{subject}/versions",
        register,
        "Register a schema, or find it if it is there",
        query=RegisterQuery,
        body=SchemaIn,
        answer=SubjectVersionOut,
        errors=(NotFound, errors.InvalidSchema, errors.IncompatibleSchema, errors.NoSpace),
    ),
    route(
        "GET",
        "/subjects/{subject}/versions/{version}",
        describe_version,
        "A version of a subject: a number, or `latest`",
        query=VersionQuery,
        answer=SubjectVersionOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "DELETE",
        "/subjects/{subject}/versions/{version}",
        delete_version,
        "Delete a version, softly or permanently",
        action=Action.CHANGE_SCHEMAS,
        query=DeleteQuery,
        other_answers=_NUMBER,
        errors=(NotFound, errors.SchemaInUse),
    ),
    route(
        "GET",
        "/subjects/{subject}/versions/{version}/schema",
        version_text,
        "The schema of a version, alone",
        query=VersionQuery,
        other_answers=_TEXT,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "GET",
        "/subjects/{subject}/versions/{version}/referencedby",
        referring,
        "Ids of schemas that refer to a version",
        other_answers=_LIST,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "GET",
        "/subjects/{subject}/metadata",
        describe_latest,
        "The latest version of a subject",
        answer=SubjectVersionOut,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/metadata/id",
        describe_place,
        "Where the registry is",
        answer=RegistryIdOut,
    ),
    route(
        "GET",
        "/metadata/version",
        describe_software,
        "The version of Penstock",
        answer=RegistryVersionOut,
    ),
    route(
        "GET",
        "/schemas",
        list_schemas,
        "List versions with their schemas: 1000 at most",
        query=SchemasQuery,
        other_answers=_LIST,
    ),
    route("GET", "/schemas/types", list_types, "Languages of schemas", other_answers=_LIST),
    route("GET", "/schemas/stats", stats, "How much there is in the registry", answer=RegistryOut),
    route(
        "GET",
        "/schemas/ids/{id}",
        describe_schema,
        "A schema by its id",
        query=SchemaQuery,
        answer=SchemaOut,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/schemas/ids/{id}/schema",
        schema_text,
        "A schema by its id, alone",
        query=SchemaQuery,
        other_answers=_TEXT,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/schemas/ids/{id}/subjects",
        subjects_of,
        "Subjects that have a schema",
        query=DeletedQuery,
        other_answers=_LIST,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/schemas/ids/{id}/versions",
        versions_of,
        "Versions of subjects that have a schema",
        query=DeletedQuery,
        other_answers=_LIST,
        errors=(NotFound,),
    ),
    route(
        "POST",
        "/schemas/decode",
        decode,
        "A key or a value as JSON, by the schema that it names",
        body=DecodeIn,
        answer=DecodedOut,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/schemas/guids/{guid}",
        describe_schema,
        "A schema by its guid",
        query=SchemaQuery,
        answer=SchemaOut,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/schemas/guids/{guid}/ids",
        ids_of_guid,
        "Ids of a schema by its guid",
        other_answers=_LIST,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/contexts",
        list_contexts,
        "Contexts: there is one, without a name",
        other_answers=_LIST,
    ),
    route(
        "POST",
        "/compatibility/subjects/{subject}/versions",
        check,
        "Whether a subject would take a schema",
        query=CheckQuery,
        body=SchemaIn,
        answer=CompatibleOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "POST",
        "/compatibility/subjects/{subject}/versions/{version}",
        check,
        "Whether a schema is compatible with a version",
        query=CheckQuery,
        body=SchemaIn,
        answer=CompatibleOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
)
