"""The client's side of SCRAM, as RFC 5802 has it."""

import hashlib
import hmac
from base64 import b64decode, b64encode


def proof_of(algorithm, secret, salt, iterations, message):
    """The proof that a client sends, and the signature that it expects of the server."""
    salted = hashlib.pbkdf2_hmac(algorithm, secret.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return proof, hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)


class ScramClient:
    def __init__(self, algorithm, user, secret, nonce="client-nonce"):
        self._algorithm, self._secret = algorithm, secret
        self._bare = f"n={user},r={nonce}"

    def first(self):
        return f"n,,{self._bare}".encode()

    def final(self, challenge):
        """The last message. `expected` is what a server answers that knows the secret, too."""
        fields = dict(one.split("=", 1) for one in challenge.decode().split(","))
        bare = f"c={b64encode(b'n,,').decode()},r={fields['r']}"
        message = f"{self._bare},{challenge.decode()},{bare}".encode()
        salt, iterations = b64decode(fields["s"]), int(fields["i"])
        proof, signature = proof_of(self._algorithm, self._secret, salt, iterations, message)
        self.expected = b"v=" + b64encode(signature)
        return f"{bare},p={b64encode(proof).decode()}".encode()
