"""API keys: made once, shown once, kept as a hash.

A key is `ID.SECRET`. The secret is 256 random bits, so one SHA-256 is enough to keep it: there is nothing to guess. The
file is replaced as a whole, readable by its owner only.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..broker.authorise import Principal, Role
from ..errors import DamagedFile, NotFound, Refused
from ..model import check_name

KEYS_FILE = "keys.json"
FIRST_KEY_FILE = "admin.key"
_ID_BYTES = 6
_SECRET_BYTES = 32
# Two, so that a new one can be handed round before the old one goes.
_SECRETS_MAX = 2
_S_NS = 1_000_000_000
_KEYS_MAX = 10_000


class StoredSecret(msgspec.Struct, frozen=True):
    """One secret of a key. `expires_at` in nanoseconds since 1970, 0 for never."""

    sha256: str
    created_at: int
    expires_at: int = 0

    def is_live(self, now_ns: int) -> bool:
        return not self.expires_at or now_ns < self.expires_at


class StoredKey(msgspec.Struct, frozen=True):
    """A key as it is kept."""

    key_id: str
    name: str
    role: Role
    prefixes: tuple[str, ...]
    created_at: int
    secrets: tuple[StoredSecret, ...]


class KeyFile(msgspec.Struct, frozen=True):
    """The whole file."""

    version: int
    keys: tuple[StoredKey, ...]


class KeyRing:
    """All keys of one data directory. Reads them once; `reload` reads them again."""

    def __init__(self, directory: Path, now_ns: Callable[[], int]) -> None:
        self._path, self._now_ns = directory / KEYS_FILE, now_ns
        self._by_id: dict[str, StoredKey] = {}
        # Checked keys, so that a request costs a look-up; emptied whenever anything changes.
        self._last_used: dict[str, int] = {}
        self.reload()

    def reload(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            self._by_id = {}
            return
        try:
            stored = msgspec.json.decode(content, type=KeyFile)
        except msgspec.DecodeError as error:
            raise DamagedFile(str(self._path), str(error)) from None
        self._by_id = {key.key_id: key for key in stored.keys}

    def find(self, written: str) -> Principal | None:
        """Whose key this is; None for nobody's, and for one whose time is over."""
        key_id, _, secret = written.partition(".")
        key = self._by_id.get(key_id)
        # The hash is made either way, so that time does not tell whether the id exists.
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        if key is None:
            return None
        now_ns = self._now_ns()
        matching = [one for one in key.secrets if hmac.compare_digest(one.sha256, digest)]
        if not any(one.is_live(now_ns) for one in matching):
            return None
        self._last_used[key_id] = now_ns
        return Principal(key.name, key.role, key.prefixes)

    def all(self) -> list[StoredKey]:
        return sorted(self._by_id.values(), key=lambda one: one.created_at)

    def last_used(self, key_id: str) -> int | None:
        return self._last_used.get(key_id)

    def create(
        self, name: str, role: Role, *, prefixes: tuple[str, ...] = (), ttl_s: int = 0
    ) -> tuple[StoredKey, str]:
        """A new key, and the text that its holder needs: shown now and never again."""
        check_name(name, "key")
        for prefix in prefixes:
            check_name(prefix, "topic prefix")
        if len(self._by_id) >= _KEYS_MAX:
            raise Refused(f"there are {_KEYS_MAX} keys already; revoke some")
        now_ns = self._now_ns()
        key_id = f"pk-{secrets.token_hex(_ID_BYTES)}"
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        expires_at = now_ns + ttl_s * _S_NS if ttl_s else 0
        stored = StoredSecret(_digest(secret), now_ns, expires_at)
        key = StoredKey(key_id, name, role, prefixes, now_ns, (stored,))
        self._keep({**self._by_id, key_id: key})
        return key, f"{key_id}.{secret}"

    def rotate(self, key_id: str, *, grace_s: int) -> tuple[StoredKey, str]:
        """A second secret for a key. The one before works for `grace_s` more; the one before that not at all."""
        key, now_ns = self._get(key_id), self._now_ns()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        newest = key.secrets[-1]
        until = now_ns + grace_s * _S_NS
        if newest.expires_at:
            until = min(until, newest.expires_at)
        lasting = newest.expires_at and newest.expires_at - newest.created_at
        old = msgspec.structs.replace(newest, expires_at=max(1, until))
        fresh = StoredSecret(_digest(secret), now_ns, now_ns + lasting if lasting else 0)
        key = msgspec.structs.replace(key, secrets=(old, fresh)[-_SECRETS_MAX:])
        self._keep({**self._by_id, key_id: key})
        return key, f"{key_id}.{secret}"

    def revoke(self, key_id: str) -> StoredKey:
        key = self._get(key_id)
        self._keep({one: kept for one, kept in self._by_id.items() if one != key_id})
        return key

    def _get(self, key_id: str) -> StoredKey:
        key = self._by_id.get(key_id)
        if key is None:
            raise NotFound("key", key_id)
        return key

    def _keep(self, by_id: dict[str, StoredKey]) -> None:
        content = msgspec.json.encode(KeyFile(1, tuple(by_id.values())))
        write_private(self._path, content)
        self._by_id = by_id


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step, durably, for its owner's eyes only."""
    beside = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_first_key(directory: Path, ring: KeyRing) -> Path | None:
    """If there is no key at all, make one for the administrator and leave it in a file. None: there are keys."""
    if ring.all():
        return None
    _, text = ring.create("first-admin", Role.ADMIN)
    path = directory / FIRST_KEY_FILE
    write_private(path, text.encode() + b"\n")
    return path
