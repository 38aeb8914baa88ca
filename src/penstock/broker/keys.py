"""The key ring: ids, roles, prefixes and hashes of secrets, in the meta journal.

A secret is 256 random bits, so one SHA-256 is enough to keep it: there is nothing to guess.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence

import msgspec

from ..api.keys import Credential
from ..api.principals import LOCAL, Principal, Role
from ..errors import AlreadyExists, NotFound, Refused, Unauthenticated
from ..kernel import Outcome
from ..model import check_name
from ..ports import Entropy
from .scram import (
    ALGORITHMS,
    ITERATIONS,
    SALT_BYTES,
    ScramChallenge,
    ScramStored,
    ScramVerifier,
    verifiers_of,
)

_ID_BITS = 48
_SECRET_BYTES = 32
_ID = re.compile("pk-[0-9a-f]{12}")
_MS_NS = 1_000_000
_KEYS_MAX = 10_000


def key_ended() -> Unauthenticated:
    """What a request is refused with whose key was good when it came."""
    return Unauthenticated("the key of this request has ended: revoked, rotated or expired")


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """One secret of a key, as it is kept. `expires_at_ns` is 0 for never."""

    sha256: bytes
    created_at_ns: int
    expires_at_ns: int = 0

    def is_live(self, now_ns: int) -> bool:
        return not self.expires_at_ns or now_ns < self.expires_at_ns


class KeyStored(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=19):
    """A key as it is from now on: new, or with other secrets. The last secret is the newest."""

    key_id: str
    name: str
    role: Role
    prefixes: tuple[str, ...]
    created_at_ns: int
    secrets: tuple[Secret, ...]


class KeyRevoked(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=20):
    """A key is no more."""

    key_id: str


KeyRecord = KeyStored | KeyRevoked | ScramStored


class Keys:
    """The machine. `apply` changes it; the other methods decide.

    `find` and `left_ns` may be called by any thread, while another one applies: a key is replaced in one step.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, KeyStored] = {}
        # Keys of before this was kept are not among them until they are rotated.
        self.scram: dict[str, ScramStored] = {}

    def apply(self, record: KeyRecord) -> None:
        match record:
            case KeyStored():
                self.by_id[record.key_id] = record
            case KeyRevoked():
                self.by_id.pop(record.key_id, None)
                self.scram.pop(record.key_id, None)
            case ScramStored():
                self.scram[record.key_id] = record

    def snapshot(self) -> Iterable[KeyRecord]:
        yield from self.by_id.values()
        yield from self.scram.values()

    def find(self, text: str, now_ns: int) -> tuple[Principal, Credential] | None:
        """Whose key this is; None for a key that is not known, and for one whose time is over."""
        key_id, _, secret = text.partition(".")
        key = self.by_id.get(key_id)
        # The hash is made either way, so that time does not tell whether the id exists.
        digest = _digest(secret)
        if key is None:
            return None
        matching = [one for one in key.secrets if hmac.compare_digest(one.sha256, digest)]
        if not any(one.is_live(now_ns) for one in matching):
            return None
        return _principal(key), Credential(key_id, digest)

    def scram_challenge(self, key_id: str, algorithm: str, now_ns: int) -> ScramChallenge | None:
        """What the holder of a key has to answer; without verifiers if the key was made before there were any.

        None: there is no such key.
        """
        assert algorithm in ALGORITHMS, "one that is kept"
        key, kept = self.by_id.get(key_id), self.scram.get(key_id)
        if key is None:
            return None
        principal = _principal(key)
        if kept is None:
            return ScramChallenge(principal, bytes(SALT_BYTES), ITERATIONS, ())
        live = {one.sha256 for one in key.secrets if one.is_live(now_ns)}
        verifiers: list[tuple[Credential, ScramVerifier]] = [
            (Credential(key_id, one.sha256_of_secret), getattr(one, algorithm))
            for one in kept.secrets
            if one.sha256_of_secret in live
        ]
        return ScramChallenge(principal, kept.salt, kept.iterations, verifiers)

    def owner_name(self, owner: str) -> str:
        """What people are shown for the owner in a record: the key's name; of a key that is revoked its id."""
        key = self.by_id.get(owner)
        return key.name if key is not None else owner or LOCAL.name

    def left_ns(self, credential: Credential, now_ns: int) -> int | None:
        """How long a credential is good from now on: 0 if it is not any more, None for ever."""
        key = self.by_id.get(credential.key_id)
        found = () if key is None else key.secrets
        ends_ns = next((one.expires_at_ns for one in found if one.sha256 == credential.sha256), 1)
        return max(0, ends_ns - now_ns) if ends_ns else None

    def get(self, key_id: str) -> KeyStored:
        """A key; NotFound if there is none of this id."""
        key = self.by_id.get(key_id)
        if key is None:
            raise NotFound("key", key_id)
        return key

    def is_last_administrator(self, key_id: str, now_ns: int) -> bool:
        """Whether no other key that is good now may change all keys."""
        administrators = [
            one.key_id
            for one in self.by_id.values()
            if one.role is Role.ADMIN
            and not one.prefixes
            and any(secret.is_live(now_ns) for secret in one.secrets)
        ]
        return administrators == [key_id]

    def create(
        self,
        name: str,
        role: Role,
        prefixes: Sequence[str],
        *,
        key_id: str,
        lifetime_ms: int,
        now_ns: int,
        entropy: Entropy,
    ) -> Outcome[KeyRecord, str]:
        """A new key, and the text that its holder needs."""
        check_name(name, "key")
        if name == LOCAL.name:
            raise Refused(
                f"a key named {name} would pass for the process itself; take another name"
            )
        for prefix in prefixes:
            check_name(prefix, "topic prefix")
        if key_id and not _ID.fullmatch(key_id):
            raise Refused(f"the id of a key is pk- and 12 hexadecimal digits, got {key_id[:60]}")
        if key_id in self.by_id or any(one.name == name for one in self.by_id.values()):
            raise AlreadyExists("key", key_id if key_id in self.by_id else name)
        if len(self.by_id) >= _KEYS_MAX:
            raise Refused(f"there are {_KEYS_MAX} keys already; revoke some")
        key_id = key_id or f"pk-{entropy.getrandbits(_ID_BITS):012x}"
        text = _draw(entropy)
        secret = Secret(_digest(text), now_ns, now_ns + lifetime_ms * _MS_NS if lifetime_ms else 0)
        record = KeyStored(key_id, name, role, tuple(prefixes), now_ns, (secret,))
        return Outcome(f"{key_id}.{text}", (record, self._verified(record, text, entropy)))

    def _verified(self, key: KeyStored, text: str, entropy: Entropy) -> ScramStored:
        """The verifiers of a key whose newest secret is `text`; those of its other secret stay."""
        digests = {one.sha256 for one in key.secrets}
        kept = self.scram.get(key.key_id)
        salt, iterations = (
            (_drawn(entropy, SALT_BYTES), ITERATIONS)
            if kept is None
            else (kept.salt, kept.iterations)
        )
        others = () if kept is None else kept.secrets
        return ScramStored(
            key.key_id,
            salt,
            iterations,
            (
                *(one for one in others if one.sha256_of_secret in digests),
                verifiers_of(text, key.secrets[-1].sha256, salt, iterations),
            ),
        )

    def rotate(
        self, key_id: str, *, grace_ms: int, now_ns: int, entropy: Entropy
    ) -> Outcome[KeyRecord, str]:
        """A second secret, and the text of the key with it. The first one ends after the grace, never later than it
        would have; the second one lasts as long as the first one was to.
        """
        key, text = self.get(key_id), _draw(entropy)
        newest = key.secrets[-1]
        until = now_ns + grace_ms * _MS_NS
        if newest.expires_at_ns:
            until = min(until, newest.expires_at_ns)
        lasting = newest.expires_at_ns and newest.expires_at_ns - newest.created_at_ns
        # Without grace nothing is left of it: a clock that is set back must not have it work again.
        old = (msgspec.structs.replace(newest, expires_at_ns=until),) if grace_ms else ()
        fresh = Secret(_digest(text), now_ns, now_ns + lasting if lasting else 0)
        record = msgspec.structs.replace(key, secrets=(*old, fresh))
        return Outcome(f"{key_id}.{text}", (record, self._verified(record, text, entropy)))


def _principal(key: KeyStored) -> Principal:
    return Principal(key.name, key.role, key.prefixes, key.key_id)


def _draw(entropy: Entropy) -> str:
    return urlsafe_b64encode(_drawn(entropy, _SECRET_BYTES)).rstrip(b"=").decode()


def _drawn(entropy: Entropy, size: int) -> bytes:
    return entropy.getrandbits(8 * size).to_bytes(size, "little")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
