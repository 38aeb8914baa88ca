"""Subjects, their versions and the schemas of these, listed as Confluent's registry does."""

import asyncio
from typing import Any

from ... import errors
from ...api.json.schemas import SubjectVersionOut, version_out
from ...api.schemas import DescribeVersion, ListSubjects, ListVersions
from ...errors import NotFound
from .requests import Request
from .responses import Answer
from .schema_shapes import (
    DEFAULT_CONTEXT,
    DeletedQuery,
    SchemasQuery,
    SubjectsQuery,
    answer,
    subject_of,
)

# A page of schemas, as with Confluent's, and what its texts may have.
_SCHEMAS_MAX, _SCHEMAS_BYTES_MAX = 1000, 16 << 20
# After so many versions others have a turn.
_TURN = 32


def page(found: list[Any], offset: int, limit: int) -> list[Any]:
    first = max(0, offset)
    return found[first:] if limit < 0 else found[first : first + limit]


def _prefix(written: str) -> str:
    """Without the context: all subjects are in the one that has no name."""
    return written.removeprefix(":*:").removeprefix(DEFAULT_CONTEXT)


async def list_subjects(request: Request) -> Answer:
    asked = request.query(SubjectsQuery)
    within, is_all = request.principal.prefixes, asked.deleted or asked.deleted_only
    found = await request.execute(ListSubjects(within=within, deleted=is_all))
    if asked.deleted_only:
        live = {*await request.execute(ListSubjects(within=within))}
        found = [one for one in found if one not in live]
    prefix = _prefix(asked.subject_prefix)
    found = [one for one in found if one.startswith(prefix)]
    return answer(request, page(found, asked.offset, asked.limit))


async def list_versions(request: Request) -> Answer:
    asked, subject = request.query(DeletedQuery), subject_of(request)
    is_all = asked.deleted or asked.deleted_only
    found = await request.execute(ListVersions(subject, is_all))
    if asked.deleted_only:
        live: set[int] = set()
        try:
            live = {*await request.execute(ListVersions(subject))}
        except errors.SoftDeleted:
            live = set()
        found = [one for one in found if one not in live]
    return answer(request, page(found, asked.offset, asked.limit))


async def list_schemas(request: Request) -> Answer:
    """A page of versions with their schemas, by subject and number. TooLarge: of too many bytes."""
    asked = request.query(SchemasQuery)
    if asked.rule_type or asked.resource_type or asked.association_type or asked.lifecycle:
        return answer(request, [])
    subjects = ListSubjects(within=request.principal.prefixes, deleted=asked.deleted)
    prefix, skipped, size = _prefix(asked.subject_prefix), max(0, asked.offset), 0
    limit = _SCHEMAS_MAX if asked.limit < 0 else min(asked.limit, _SCHEMAS_MAX)
    versions: list[SubjectVersionOut] = []
    for subject in await request.execute(subjects):
        if len(versions) >= limit:
            break
        if not subject.startswith(prefix):
            continue
        numbers = await _numbers(request, subject, asked)
        wanted = numbers[skipped : skipped + limit - len(versions)]
        skipped = max(0, skipped - len(numbers))
        for number in wanted:
            version = await request.execute(DescribeVersion(subject, number, asked.deleted))
            size += len(version.schema.text)
            if size > _SCHEMAS_BYTES_MAX:
                raise errors.TooLarge(
                    "schemas of a page in characters",
                    found=size,
                    limit=_SCHEMAS_BYTES_MAX,
                    advice="ask for fewer with `limit`",
                )
            versions.append(version_out(version))
            if len(versions) % _TURN == 0:
                await asyncio.sleep(0)
    return answer(request, versions)


async def _numbers(request: Request, subject: str, asked: SchemasQuery) -> list[int]:
    """The versions of a subject that are asked for; none if it was deleted meanwhile."""
    try:
        numbers = await request.execute(ListVersions(subject, asked.deleted))
    except NotFound:
        return []
    return numbers[-1:] if asked.latest_only else numbers
