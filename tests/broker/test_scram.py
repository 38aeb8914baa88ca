"""SCRAM: what is kept of secrets, and whose proofs are good."""

from base64 import b64decode

from penstock.api.keys import CreateKey, RevokeKey, RotateKey
from penstock.api.principals import Principal, Role
from penstock.broker.keys import KeyStored
from penstock.broker.scram import ITERATIONS, signature_of, verifiers_of
from penstock.sim import SimDisk

from ..server.binary.scram_client import proof_of
from .world import HOUR_MS, World

MESSAGE = b"n=user,r=a,r=ab,s=c,i=4096,c=biws,r=ab"


def answers(world: World, text: str, algorithm: str = "sha256") -> bool:
    """Whether the holder of a key can prove it now."""
    key_id, _, secret = text.partition(".")
    challenge = world.node.keys.scram_challenge(key_id, algorithm, world.now().wall_ns)
    if challenge is None:
        return False
    proof, signature = proof_of(algorithm, secret, challenge.salt, challenge.iterations, MESSAGE)
    found = [
        signature_of(algorithm, verifier, MESSAGE, proof) for _, verifier in challenge.verifiers
    ]
    return signature in found


def test_the_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = verifiers_of("pencil", bytes(32), salt, ITERATIONS)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    found = signature_of("sha256", kept.sha256, message, proof)
    assert found == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert signature_of("sha256", kept.sha256, message, bytes(32)) is None
    assert signature_of("sha256", kept.sha256, message, b"") is None


def test_both_live_secrets_of_a_key_are_good_and_no_other() -> None:
    world = World()
    first = world.execute(CreateKey("shop", Role.PRODUCER, ("orders",)))
    assert answers(world, first.text)
    assert answers(world, first.text, "sha512")
    second = world.execute(RotateKey(first.key.key_id, HOUR_MS))
    assert answers(world, first.text)
    assert answers(world, second.text)
    third = world.execute(RotateKey(first.key.key_id, 0))
    assert [answers(world, one.text) for one in (first, second, third)] == [False, False, True]
    challenge = world.node.keys.scram_challenge(first.key.key_id, "sha256", world.now().wall_ns)
    assert challenge is not None
    assert challenge.principal == Principal("shop", Role.PRODUCER, ("orders",), first.key.key_id)
    world.execute(RevokeKey(first.key.key_id))
    assert not answers(world, third.text)


def test_verifiers_outlast_a_restart() -> None:
    disk = SimDisk()
    world = World(disk)
    new = world.execute(CreateKey("shop", Role.PRODUCER))
    world.node.close()
    assert answers(World(disk), new.text)


def test_a_key_of_before_has_no_verifiers_until_it_is_rotated() -> None:
    world = World()
    new = world.execute(CreateKey("shop", Role.PRODUCER))
    keys = world.node.keys
    stored = keys.by_id[new.key.key_id]
    assert isinstance(stored, KeyStored)
    del keys.scram[new.key.key_id]
    challenge = keys.scram_challenge(new.key.key_id, "sha256", world.now().wall_ns)
    assert challenge is not None
    assert challenge.verifiers == ()
    rotated = world.execute(RotateKey(new.key.key_id, HOUR_MS))
    assert answers(world, rotated.text)
    assert not answers(world, new.text)
