"""The calls about API keys, for `Client.run`. Only the answer that creates a secret has it."""

from typing import Any

from .calls import Call, get, nothing, path_of, send, with_query

Key = dict[str, Any]


def create(fields: dict[str, Any]) -> Call[Key]:
    return send("POST", "/admin/keys", fields, Key, is_repeatable=False)


def listed(cursor: str | None) -> Call[dict[str, Any]]:
    """A page: `keys` and `cursor`."""
    return get(with_query("/admin/keys", {"cursor": cursor, "limit": 1000}), dict[str, Any])


def rotate(key_id: str, grace: str) -> Call[Key]:
    target = path_of("admin", "keys", key_id, "rotate")
    return send("POST", target, {"grace": grace}, Key, is_repeatable=False)


def revoke(key_id: str) -> Call[None]:
    return Call("DELETE", path_of("admin", "keys", key_id), nothing, is_repeatable=False)
