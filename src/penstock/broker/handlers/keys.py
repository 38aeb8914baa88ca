"""API keys: made, listed, rotated and revoked. A change is durable when its reply leaves, whatever the fsync policy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.keys import (
    CreateKey,
    DescribeKey,
    KeyDescription,
    ListKeys,
    NewKey,
    RevokeKey,
    RotateKey,
)
from ...api.principals import covers
from ...errors import AlreadyExists, LastAdministrator, NotFound
from ..keys import KeyRevoked, KeyStored
from ..partition import Now
from ..partition.changes import Handler
from ..walks import Slices

if TYPE_CHECKING:
    from ..node import Node


def create_key(node: "Node", command: CreateKey, now: Now) -> NewKey:
    if command.key_id and _owns_something(node, command.key_id):
        raise AlreadyExists("key", command.key_id)
    outcome = node.keys.create(
        command.name,
        command.role,
        command.prefixes,
        key_id=command.key_id,
        lifetime_ms=command.lifetime_ms,
        now_ns=now.wall_ns,
        entropy=node.entropy,
    )
    node.record_meta(outcome.records, now)
    return _made(node, outcome.reply)


def _owns_something(node: "Node", key_id: str) -> bool:
    """Whether a key of this id, which is revoked by now, has left something that a new key of the id would own."""
    counts = [node.queries.counts, node.group_owners.counts]
    for home in node.transactions.coordinators():
        counts += [home.machine.coordinator.counts, home.machine.commit_names.counts]
    return any(count.of(key_id) for count in counts)


def rotate_key(node: "Node", command: RotateKey, now: Now) -> NewKey:
    key = _visible(node, command.key_id, command.within)
    outcome = node.keys.rotate(
        key.key_id, grace_ms=command.grace_ms, now_ns=now.wall_ns, entropy=node.entropy
    )
    node.record_meta(outcome.records, now)
    return _made(node, outcome.reply)


def revoke_key(node: "Node", command: RevokeKey, now: Now) -> None:
    key = _visible(node, command.key_id, command.within)
    if not command.is_forced and node.keys.is_last_administrator(key.key_id, now.wall_ns):
        raise LastAdministrator(key.key_id)
    node.record_meta((KeyRevoked(key.key_id),), now)


def describe_key(node: "Node", command: DescribeKey, _now: Now) -> KeyDescription:
    return _described(_visible(node, command.key_id, command.within))


def list_keys(node: "Node", command: ListKeys, _now: Now) -> Slices[list[KeyDescription]]:
    described: list[KeyDescription] = []
    for key_id in [*node.keys.by_id]:
        key = node.keys.by_id.get(key_id)
        if key is not None and covers(command.within, key.prefixes):
            described.append(_described(key))
        yield 1
    # Oldest first.
    return sorted(described, key=lambda key: key.created_at_ns)


def _visible(node: "Node", key_id: str, within: tuple[str, ...]) -> KeyStored:
    """A key. NotFound, as for no key, for one that reaches more than `within`."""
    key = node.keys.get(key_id)
    if not covers(within, key.prefixes):
        raise NotFound("key", key_id)
    return key


def _made(node: "Node", text: str) -> NewKey:
    return NewKey(_described(node.keys.get(text.partition(".")[0])), text)


def _described(key: KeyStored) -> KeyDescription:
    return KeyDescription(
        key.key_id,
        key.name,
        key.role,
        key.prefixes,
        key.created_at_ns,
        key.secrets[-1].expires_at_ns,
        len(key.secrets),
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    CreateKey: create_key,
    RotateKey: rotate_key,
    RevokeKey: revoke_key,
    DescribeKey: describe_key,
    ListKeys: list_keys,
}
