"""Keys as JSON."""

import msgspec

from ...errors import BadRequest
from ..keys import KeyDescription
from ..principals import Role
from ..units import time_text
from .messages import Strict
from .times import Span, span_ms, time_text_or_none

_GRACE = "24h"


_SECOND_MS = 1000


class KeyIn(Strict):
    """Whom it is for, what it may do, on which topics (all, if none is named), and for how long (for ever)."""

    name: str
    role: Role
    prefixes: list[str] = msgspec.field(default_factory=list)
    expires_in: Span | None = None


class RotateIn(Strict):
    """How long the secret before works beside the new one."""

    grace: Span = _GRACE


class RevokeQuery(Strict):
    """`force` also ends the last key of an administrator."""

    force: bool = False


class KeyOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A key. `secret` only in the answer that made it."""

    key_id: str
    name: str
    role: Role
    prefixes: list[str]
    created_at: str
    expires_at: str | None
    secrets: int
    # A client of the binary port, such as the command line, is not told it.
    last_used: str | msgspec.UnsetType | None
    key: str | None = None


class KeysOut(msgspec.Struct):
    keys: list[KeyOut]
    cursor: str | None


def lifetime_ms(name: str, written: Span) -> int:
    """A second or more. What is less was mostly meant to be seconds, and would end a key at once."""
    span = span_ms(name, written)
    if span < _SECOND_MS:
        hint = 'a bare number is milliseconds; write "30s"'
        raise BadRequest(f"{name} must be at least 1 s, got {span} ms ({hint})", field=name)
    return span


def key_out(
    key: KeyDescription,
    text: str | None = None,
    last_used_ns: int | msgspec.UnsetType | None = msgspec.UNSET,
) -> KeyOut:
    return KeyOut(
        key_id=key.key_id,
        name=key.name,
        role=key.role,
        prefixes=list(key.prefixes),
        created_at=time_text(key.created_at_ns),
        expires_at=time_text(key.expires_at_ns) if key.expires_at_ns else None,
        secrets=key.secrets,
        last_used=last_used_ns
        if isinstance(last_used_ns, msgspec.UnsetType)
        else time_text_or_none(last_used_ns),
        key=text,
    )
