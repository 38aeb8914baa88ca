"""API keys: made once, shown once, kept as a hash.

A key is `ID.SECRET`. The secret is 256 random bits, so one SHA-256 is enough to keep it: there is nothing to guess. The
file is replaced as a whole and carries its own checksum. `keys.made` beside it says that there once were keys: a broker
that has lost them does not start as if it never had any.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..api.principals import Principal, Role
from ..errors import AlreadyExists, DamagedFile, NoSpace, NotFound, Refused
from ..model import check_name
from ..runtime.failures import translated
from ..runtime.small_files import replace_file

KEYS_FILE = "keys.json"
MADE_FILE = "keys.made"
FIRST_KEY_FILE = "admin.key"
_VERSION = 2
_REMEDY = f"put a copy of it back, or remove it and {MADE_FILE} to begin without any key"
_MADE = (
    f"Keys were made here. Without {KEYS_FILE} the broker does not start while this file is here.\n"
)
_ID_BYTES = 6
_SECRET_BYTES = 32
# Two, so that a new one can be handed round before the old one goes.
_SECRETS_MAX = 2
_S_NS = 1_000_000_000
_KEYS_MAX = 10_000

Noting = Callable[[str], AbstractContextManager[None]]
"""Given what is about to change, a block in which it does; the audit log has a line of it inside."""


def _unnoted(_what: str) -> AbstractContextManager[None]:
    return nullcontext()


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
    """The whole file. `sha256` is that of the file with an empty one."""

    version: int
    keys: tuple[StoredKey, ...]
    sha256: str = ""


class Credential(NamedTuple):
    """One secret of one key, as a client has shown it."""

    key_id: str
    sha256: str


class KeyRing:
    """All keys of one data directory. Reads them once; `reload` reads them again. `on_change` is called after each."""

    def __init__(self, directory: Path, now_ns: Callable[[], int]) -> None:
        self._path, self._made = directory / KEYS_FILE, directory / MADE_FILE
        self._now_ns = now_ns
        self._by_id: dict[str, StoredKey] = {}
        self._last_used: dict[str, int] = {}
        self.on_change: Callable[[], None] | None = None
        self.reload()

    def reload(self) -> None:
        """Read the file. DamagedFile: it is not as it was written, or it is missing though there were keys."""
        with translated(os.fspath(self._path)):
            content = self._path.read_bytes() if self._path.exists() else None
            was_made = self._made.exists()
        if content is None and was_made:
            raise DamagedFile(str(self._path), f"it is missing, and keys were made here; {_REMEDY}")
        keys = () if content is None else self._read(content)
        if content is not None and not was_made:
            self._mark()
        self._take_over({key.key_id: key for key in keys})

    def _mark(self) -> None:
        """Note that there are keys. Without room for it, the next start does."""
        with suppress(NoSpace):
            replace_file(self._made, _MADE.encode())

    def _read(self, content: bytes) -> tuple[StoredKey, ...]:
        try:
            stored = msgspec.json.decode(content, type=KeyFile)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedFile(str(self._path), f"{error}; {_REMEDY}") from None
        if content != _written(stored.keys):
            why = f"its checksum is wrong, or it is not of version {_VERSION}"
            raise DamagedFile(str(self._path), f"{why}; {_REMEDY}")
        return stored.keys

    def find(self, written: str) -> tuple[Principal, Credential] | None:
        """Whose key this is; None for a key that is not known, and for one whose time is over."""
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
        return Principal(key.name, key.role, key.prefixes), Credential(key_id, digest)

    def left_ns(self, credential: Credential) -> int | None:
        """How long a credential is good from now on: 0 if it is not any more, None for ever."""
        key = self._by_id.get(credential.key_id)
        found = () if key is None else key.secrets
        expires_at = next((one.expires_at for one in found if one.sha256 == credential.sha256), 1)
        return max(0, expires_at - self._now_ns()) if expires_at else None

    def all(self) -> list[StoredKey]:
        return sorted(self._by_id.values(), key=lambda one: one.created_at)

    def last_used(self, key_id: str) -> int | None:
        return self._last_used.get(key_id)

    def create(
        self,
        name: str,
        role: Role,
        *,
        prefixes: tuple[str, ...] = (),
        ttl_s: int = 0,
        noting: Noting = _unnoted,
    ) -> tuple[StoredKey, str]:
        """A new key, and the text that its holder needs: shown now and never again.

        AlreadyExists: another key has the name. NoSpace: there is no new key.
        """
        key, text = self._drawn(name, role, prefixes, ttl_s)
        with noting(f"key {key.key_id} ({name}, {role.value}) created"):
            self._keep({**self._by_id, key.key_id: key})
        return key, text

    def create_first(self, path: Path) -> None:
        """A key for the administrator of a ring without keys, left in a file."""
        key, text = self._drawn("first-admin", Role.ADMIN, (), 0)
        # In this order: a crash in between leaves a text that opens nothing, and the next start makes another one.
        replace_file(path, text.encode() + b"\n")
        self._keep({key.key_id: key})

    def _drawn(
        self, name: str, role: Role, prefixes: tuple[str, ...], ttl_s: int
    ) -> tuple[StoredKey, str]:
        check_name(name, "key")
        for prefix in prefixes:
            check_name(prefix, "topic prefix")
        if any(one.name == name for one in self._by_id.values()):
            raise AlreadyExists("key", name)
        if len(self._by_id) >= _KEYS_MAX:
            raise Refused(f"there are {_KEYS_MAX} keys already; revoke some")
        now_ns = self._now_ns()
        key_id = f"pk-{secrets.token_hex(_ID_BYTES)}"
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        expires_at = now_ns + ttl_s * _S_NS if ttl_s else 0
        stored = StoredSecret(_digest(secret), now_ns, expires_at)
        key = StoredKey(key_id, name, role, prefixes, now_ns, (stored,))
        return key, f"{key_id}.{secret}"

    def rotate(
        self, key_id: str, *, grace_s: int, noting: Noting = _unnoted
    ) -> tuple[StoredKey, str]:
        """A second secret for a key. The one before works for `grace_s` more; the one before that not at all."""
        key, now_ns = self.get(key_id), self._now_ns()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        newest = key.secrets[-1]
        until = now_ns + grace_s * _S_NS
        if newest.expires_at:
            until = min(until, newest.expires_at)
        lasting = newest.expires_at and newest.expires_at - newest.created_at
        old = msgspec.structs.replace(newest, expires_at=max(1, until))
        fresh = StoredSecret(_digest(secret), now_ns, now_ns + lasting if lasting else 0)
        key = msgspec.structs.replace(key, secrets=(old, fresh)[-_SECRETS_MAX:])
        with noting(f"key {key_id} ({key.name}) rotated"):
            self._keep({**self._by_id, key_id: key})
        return key, f"{key_id}.{secret}"

    def revoke(self, key_id: str, *, noting: Noting = _unnoted) -> StoredKey:
        key = self.get(key_id)
        with noting(f"key {key_id} ({key.name}) revoked"):
            self._keep({one: kept for one, kept in self._by_id.items() if one != key_id})
        return key

    def get(self, key_id: str) -> StoredKey:
        """A key; NotFound if there is none of this id."""
        key = self._by_id.get(key_id)
        if key is None:
            raise NotFound("key", key_id)
        return key

    def _keep(self, by_id: dict[str, StoredKey]) -> None:
        replace_file(self._path, _written(tuple(by_id.values())))
        if not self._made.exists():
            # After the keys: a crash in between must not leave a broker that asks for keys which never were.
            self._mark()
        self._take_over(by_id)

    def _take_over(self, by_id: dict[str, StoredKey]) -> None:
        self._by_id = by_id
        if self.on_change is not None:
            self.on_change()


def _written(keys: tuple[StoredKey, ...]) -> bytes:
    """The file of these keys."""
    plain = KeyFile(_VERSION, keys)
    digest = hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
    return msgspec.json.encode(msgspec.structs.replace(plain, sha256=digest)) + b"\n"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def write_first_key(directory: Path, ring: KeyRing) -> Path | None:
    """If there is no key at all, make one for the administrator and leave it in a file. None: there are keys."""
    if ring.all():
        return None
    path = directory / FIRST_KEY_FILE
    ring.create_first(path)
    return path
