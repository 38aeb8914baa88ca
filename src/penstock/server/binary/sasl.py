"""SASL for clients that do not speak our hello: the user is the id of a key, the password its secret."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from secrets import token_bytes, token_urlsafe

from ...api.keys import Credential
from ...api.principals import Principal
from ...broker.scram import ITERATIONS, SALT_BYTES, signature_of
from ...errors import BadRequest, Unauthenticated
from .service import BinaryService

PLAIN = "PLAIN"
_ALGORITHMS: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Salts of keys that there are not: the same each time, so that asking twice tells nothing.
_PRETENDED = token_bytes(32)
_MESSAGE_BYTES_MAX = 4096


def mechanisms(*, is_tls: bool) -> list[str]:
    """What a client may use; a password is only ever sent over TLS."""
    return [*_ALGORITHMS, PLAIN] if is_tls else [*_ALGORITHMS]


class SaslExchange:
    """One authentication, step by step. When `is_done`, `found` is whose key it was."""

    def __init__(self, service: BinaryService, mechanism: str, client: str) -> None:
        self._service, self._mechanism, self._client = service, mechanism, client
        self._algorithm = _ALGORITHMS.get(mechanism, "")
        self._first = self._sent = self._nonce = self._user = ""
        self.found: tuple[Principal, Credential] | None = None

    @property
    def is_done(self) -> bool:
        return self.found is not None

    def step(self, data: bytes) -> bytes:
        """What to send back. Unauthenticated; TooManyRequests; BadRequest for what is no message of the mechanism."""
        if len(data) > _MESSAGE_BYTES_MAX:
            raise BadRequest(f"a SASL message has {_MESSAGE_BYTES_MAX} bytes at most")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise BadRequest("a SASL message is text in UTF-8") from None
        if not self._algorithm:
            return self._plain(text)
        return self._final(text) if self._sent else self._challenge(text)

    def _plain(self, text: str) -> bytes:
        parts = text.split("\0")
        if len(parts) != 3:
            raise BadRequest("SASL PLAIN is an identity, a user and a password")
        _, user, password = parts
        auth = self._service.auth
        self.found = auth.authenticate(f"{user}.{password}", self._client, "SASL PLAIN")
        return b""

    def _challenge(self, text: str) -> bytes:
        """The salt of the key, and a nonce that begins with the client's."""
        binding, _, rest = text.partition(",")
        identity, _, self._first = rest.partition(",")
        fields = _fields(self._first)
        self._user, nonce = fields.get("n", ""), fields.get("r", "")
        if binding not in {"n", "y"} or not self._user or not nonce or "m" in fields:
            raise BadRequest("not the first message of SCRAM")
        self._header = f"{binding},{identity},"
        driver = self._service.driver.driver
        challenge = driver.scram_challenge(self._user, self._algorithm)
        if challenge is None:
            # What a client without a good key sees does not depend on whether the id exists.
            salt = hmac.digest(_PRETENDED, self._user.encode(), hashlib.sha256)[:SALT_BYTES]
            iterations = ITERATIONS
        else:
            salt, iterations = challenge.salt, challenge.iterations
        self._nonce = nonce + token_urlsafe(18)
        self._sent = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        return self._sent.encode()

    def _final(self, text: str) -> bytes:
        """The server's own proof, if the client's is good for one of the key's live secrets."""
        bare, _, proof_text = text.rpartition(",p=")
        fields = _fields(bare)
        try:
            proof = b64decode(proof_text, validate=True)
            header = b64decode(fields.get("c", ""), validate=True)
        except ValueError:
            raise BadRequest("not the last message of SCRAM") from None
        # librdkafka 2.0 (kcat of Debian 12) puts its own nonce before it once more. The proof covers what it says.
        if not fields.get("r", "").endswith(self._nonce) or header != self._header.encode():
            raise BadRequest("not the last message of this SCRAM exchange")
        message = f"{self._first},{self._sent},{bare}".encode()
        auth, driver = self._service.auth, self._service.driver.driver
        # Asked again: a secret may have ended since the first message.
        challenge = driver.scram_challenge(self._user, self._algorithm)
        for credential, verifier in () if challenge is None else challenge.verifiers:
            signature = signature_of(self._algorithm, verifier, message, proof)
            if signature is not None and challenge is not None:
                self.found = challenge.principal, credential
                auth.note_use(credential)
                return b"v=" + b64encode(signature)
        auth.note_failure(self._client, f"SASL {self._mechanism}")
        if challenge is not None and not challenge.verifiers:
            raise Unauthenticated(
                f"key {self._user[:60]} was made before brokers knew SCRAM: rotate it, or use PLAIN over TLS"
            )
        raise Unauthenticated(
            "the user is the id of a key, the password its secret; this key is not good"
        )


def _fields(text: str) -> dict[str, str]:
    """The attributes of a message of SCRAM by their letters; a user's = and , are written =3D and =2C."""
    found: dict[str, str] = {}
    for one in text.split(","):
        name, _, value = one.partition("=")
        found[name] = value.replace("=2C", ",").replace("=3D", "=") if name == "n" else value
    return found
