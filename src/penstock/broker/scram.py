"""SCRAM (RFC 5802, RFC 7677): what is kept of a secret, so that its holder can prove to have it without sending it."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..api.keys import Credential
from ..api.principals import Principal

# The least that RFC 7677 allows. A secret is 256 random bits: more rounds protect nothing that could be guessed.
ITERATIONS = 4096
SALT_BYTES = 16
ALGORITHMS = ("sha256", "sha512")


class ScramVerifier(msgspec.Struct, frozen=True, array_like=True):
    """Of a secret with one algorithm. Neither of the two lets its owner log in as a client."""

    stored_key: bytes
    server_key: bytes


class SecretVerifiers(msgspec.Struct, frozen=True, array_like=True):
    """The verifiers of one secret, which is named by its SHA-256."""

    sha256_of_secret: bytes
    sha256: ScramVerifier
    sha512: ScramVerifier


class ScramStored(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=21):
    """The verifiers of a key from now on. All of its secrets share salt and iterations, so either proof is good."""

    key_id: str
    salt: bytes
    iterations: int
    secrets: tuple[SecretVerifiers, ...]


class ScramChallenge(NamedTuple):
    """What the server asks the holder of a key with, and the live secrets that answer it."""

    principal: Principal
    salt: bytes
    iterations: int
    verifiers: Sequence[tuple[Credential, ScramVerifier]]


def verifiers_of(secret: str, digest: bytes, salt: bytes, iterations: int) -> SecretVerifiers:
    sha256, sha512 = (_verifier(one, secret.encode(), salt, iterations) for one in ALGORITHMS)
    return SecretVerifiers(digest, sha256, sha512)


def _verifier(algorithm: str, secret: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    salted = hashlib.pbkdf2_hmac(algorithm, secret, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramVerifier(stored_key, hmac.digest(salted, b"Server Key", algorithm))


def signature_of(
    algorithm: str, verifier: ScramVerifier, message: bytes, proof: bytes
) -> bytes | None:
    """The server's signature for a proof of `message`; None if the proof is of another secret."""
    signature = hmac.digest(verifier.stored_key, message, algorithm)
    if len(proof) != len(signature):
        return None
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    found = hashlib.new(algorithm, client_key).digest()
    if not hmac.compare_digest(found, verifier.stored_key):
        return None
    return hmac.digest(verifier.server_key, message, algorithm)
