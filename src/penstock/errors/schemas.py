"""Schemas, and messages that do not fit theirs."""

from collections.abc import Sequence

from .families import Refused
from .requests import NotFound


class SoftDeleted(NotFound):
    code = "SOFT_DELETED"

    def __init__(self, kind: str, name: object) -> None:
        Refused.__init__(self, f"{kind} {name} is deleted", kind=kind, name=name)


class NotSoftDeleted(NotFound):
    code = "NOT_SOFT_DELETED"

    def __init__(self, kind: str, name: object) -> None:
        said = f"{kind} {name} is not deleted yet: delete it first, then permanently"
        Refused.__init__(self, said, kind=kind, name=name)


class InvalidSchema(Refused):
    code = "INVALID_SCHEMA"

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(f"not a valid schema: {reason[:1000]}", **fields)


class IncompatibleSchema(Refused):
    """A schema that its subject's compatibility level does not allow. `reasons` says where and why, version by
    version."""

    code = "INCOMPATIBLE_SCHEMA"

    def __init__(self, subject: str, level: str, reasons: Sequence[str]) -> None:
        super().__init__(
            f"the schema is not compatible with subject {subject} ({level}): {'; '.join(reasons)[:2000]}",
            subject=subject,
            level=level,
            reasons=list(reasons),
        )


class SchemaViolation(Refused):
    """A message that does not fit the schema of its topic.

    `part` is key or value, `path` where the fault is in it (a JSON pointer; empty for all of it), `index` which message
    of the request it is, `schema_id` what it was compared with, if there was anything.
    """

    code = "SCHEMA_VIOLATION"

    def __init__(
        self, topic: str, part: str, fault: tuple[str, str], *, subject: str, schema_id: int | None
    ) -> None:
        path, reason = fault
        where = f" at {path[:200]}" if path else ""
        of_schema = "" if schema_id is None else f", schema {schema_id}"
        super().__init__(
            f"the {part} does not fit subject {subject}{of_schema}{where}: {reason[:500]}",
            topic=topic,
            part=part,
            path=path[:200],
            reason=reason[:200],
            subject=subject,
            schema_id=schema_id,
            index=0,
        )


class SchemaInUse(Refused):
    code = "SCHEMA_IN_USE"

    def __init__(self, subject: str, version: int, users: Sequence[int]) -> None:
        shown = ", ".join(map(str, users[:20]))
        super().__init__(
            f"schemas refer to version {version} of subject {subject}, by id: {shown}",
            subject=subject,
            version=version,
        )


class SchemaModeRefused(Refused):
    """What the mode of a subject, or an id or a version that an import names, does not allow."""

    code = "SCHEMA_MODE_REFUSED"


class SchemasReadOnly(SchemaModeRefused):
    code = "SCHEMAS_READ_ONLY"

    def __init__(self, subject: str) -> None:
        super().__init__(f"subject {subject} is read only (mode READONLY)", subject=subject)


class InvalidSubject(Refused):
    code = "INVALID_SUBJECT"

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject[:60]!r} is not a subject: {reason}", subject=subject[:60])
