"""From the tree of errors to HTTP: one table, and the answer that it gives."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ... import errors
from ...errors import PenstockError
from .responses import Response, json_response

STATUS_OF: Mapping[type[PenstockError], int] = MappingProxyType(
    {
        # The nearest class counts, so a family stands for all that is not listed.
        errors.Refused: 400,
        errors.Unauthenticated: 401,
        errors.Forbidden: 403,
        errors.ForbiddenOrigin: 403,
        errors.NotFound: 404,
        errors.OffsetOutOfRange: 404,
        errors.FileMissing: 404,
        errors.MethodNotAllowed: 405,
        errors.TooSlow: 408,
        errors.AlreadyExists: 409,
        errors.AlreadyOpen: 409,
        errors.StaleReceipt: 409,
        errors.GroupBusy: 409,
        errors.LastAdministrator: 409,
        errors.TooManyGroups: 409,
        errors.OutOfSequence: 400,
        errors.ProducerFenced: 409,
        errors.TransactionEnded: 409,
        errors.TransactionInProgress: 409,
        errors.CommitNameTaken: 409,
        errors.SequenceCommitted: 409,
        errors.RepeatDiffers: 409,
        errors.StagingMismatch: 409,
        errors.CommitInProgress: 409,
        errors.OverCommitQuota: 409,
        errors.ShareFull: 409,
        errors.StaleGeneration: 409,
        errors.NotOwner: 409,
        errors.ModeConflict: 409,
        errors.NotPending: 409,
        errors.WrongOwner: 409,
        errors.NotHeld: 409,
        errors.IncompatibleSchema: 409,
        errors.TooLarge: 413,
        errors.UnsupportedMediaType: 415,
        errors.InvalidSchema: 422,
        errors.SchemaInUse: 422,
        errors.SchemaViolation: 422,
        errors.SchemaModeRefused: 422,
        errors.InvalidSubject: 422,
        errors.BacklogFull: 429,
        errors.OverStagingQuota: 429,
        errors.TooManyRequests: 429,
        errors.NotLeader: 421,
        errors.LeaderUnknown: 503,
        errors.Unavailable: 503,
        errors.Unconfirmed: 504,
        errors.NoSpace: 507,
        errors.PartlyPublished: 507,
        errors.Damaged: 500,
        errors.Internal: 500,
        errors.Fatal: 503,
    }
)
_NOT_READY_RETRY_S = 1


def status_of(error: PenstockError) -> int:
    return status_of_kind(type(error))


def status_of_kind(kind: type[PenstockError]) -> int:
    return next(STATUS_OF[one] for one in kind.__mro__ if one in STATUS_OF)


def error_fields(error: PenstockError) -> dict[str, Any]:
    """The body that says what was wrong."""
    found = {"error": error.code, "message": str(error), "status": status_of(error)}
    return {**{name: _plain(value) for name, value in error.fields.items()}, **found}


def _plain(value: object) -> object:
    """Numbers as they are, unless JavaScript could not read them; everything else as text that stays short."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)[:200]


def error_response(error: PenstockError) -> Response:
    headers: list[tuple[bytes, bytes]] = []
    status = status_of(error)
    if isinstance(error, errors.MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allow).encode()))
    if isinstance(error, errors.Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if status in {429, 503} and not isinstance(error, errors.PartitionFaulty):
        headers.append((b"retry-after", b"%d" % _retry_after_s(error)))
    # The rest of a body that is too large or too slow is still on its way, and is not read.
    is_last = status in {408, 413}
    return json_response(error_fields(error), status=status, headers=headers, is_last=is_last)


def _retry_after_s(error: PenstockError) -> int:
    wait_ms = error.fields.get("retry_after_ms", _NOT_READY_RETRY_S * 1000)
    return max(1, -(-wait_ms // 1000)) if isinstance(wait_ms, int) else _NOT_READY_RETRY_S
