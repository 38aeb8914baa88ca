"""API keys: made, listed, rotated and revoked. The text of a key is in the reply that made it, and nowhere else.

A key is `ID.SECRET`. `within` of a command are prefixes of topics: keys that reach more than those are not there for
it. A principal with prefixes has to name its own.
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from .bounds import Bound, Names, Unit
from .command import EVERY_TOPIC, Command
from .principals import Action, Role
from .units import DURATION_NS_MAX

R = TypeVar("R")


def _check_span(name: str, span_ms: int) -> None:
    """None at all, or a second or more: what is less was mostly meant to be seconds, and would end a key at once."""
    if span_ms:
        Bound(name, Unit.NUMBER, 1000, DURATION_NS_MAX // 1_000_000).check(span_ms)


class Credential(NamedTuple):
    """One secret of one key, as a client has shown it."""

    key_id: str
    sha256: bytes


class KeyDescription(msgspec.Struct, frozen=True):
    """A key without its secrets. Of two secrets the newer one `expires_at_ns`; 0 is never."""

    key_id: str
    name: str
    role: Role
    prefixes: tuple[str, ...]
    created_at_ns: int
    expires_at_ns: int
    secrets: int


class NewKey(msgspec.Struct, frozen=True):
    """A key, and the text that its holder needs. No part of it but this one may hold the text: it is never logged."""

    key: KeyDescription
    text: str

    def __repr__(self) -> str:
        return f"NewKey({self.key!r})"


class _Within(Command[R], frozen=True, kw_only=True):
    scope_field: ClassVar[str] = "within"
    within: Names = ()

    def topics(self) -> Iterable[str]:
        return self.within or EVERY_TOPIC


class CreateKey(Command[NewKey], frozen=True):
    """A new key: for which topics (all, if there is no prefix), and for how long (for ever, if 0).

    `key_id` is chosen by the node if it is empty. AlreadyExists: a key has this name or id, or one that was revoked has
    left something under the id.
    """

    action: ClassVar[Action] = Action.CHANGE_KEYS
    is_structural: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = (
        "key {command.key_id} ({command.name}, {command.role.value}) created"
    )
    is_audited_first: ClassVar[bool] = True
    is_completed: ClassVar[bool] = True
    name: str
    role: Role
    prefixes: Names = ()
    lifetime_ms: int = 0
    key_id: str = ""

    def topics(self) -> Iterable[str]:
        return self.prefixes or EVERY_TOPIC

    def check_sums(self) -> None:
        _check_span("lifetime_ms", self.lifetime_ms)


class RotateKey(_Within[NewKey], frozen=True):
    """A second secret for a key. The one before works for `grace_ms` more; the one before that not at all. NotFound."""

    action: ClassVar[Action] = Action.CHANGE_KEYS
    is_structural: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "key {command.key_id} rotated"
    is_audited_first: ClassVar[bool] = True
    key_id: str
    grace_ms: int

    def check_sums(self) -> None:
        _check_span("grace_ms", self.grace_ms)


class RevokeKey(_Within[None], frozen=True):
    """A key ends, at once. NotFound. LastAdministrator, unless forced."""

    action: ClassVar[Action] = Action.CHANGE_KEYS
    is_structural: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "key {command.key_id} revoked"
    is_audited_first: ClassVar[bool] = True
    key_id: str
    is_forced: bool = False


class DescribeKey(_Within[KeyDescription], frozen=True):
    """One key. NotFound."""

    action: ClassVar[Action] = Action.SEE_KEYS
    is_query: ClassVar[bool] = True
    key_id: str


class ListKeys(_Within[list[KeyDescription]], frozen=True):
    """All keys, the oldest first."""

    action: ClassVar[Action] = Action.SEE_KEYS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
