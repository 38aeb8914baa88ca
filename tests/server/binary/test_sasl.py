"""SASL, step by step: PLAIN and SCRAM with the keys of a broker."""

import pytest

from penstock.api.keys import CreateKey
from penstock.api.principals import Principal, Role
from penstock.errors import BadRequest, TooManyRequests, Unauthenticated
from penstock.server.binary.sasl import SaslExchange, mechanisms

from ..rigs import in_process
from .scram_client import ScramClient
from .services import service_of

AUTH = {("auth", "enabled"): True}
ALGORITHM_OF = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def test_a_password_is_sent_over_tls_only():
    assert mechanisms(is_tls=False) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert "PLAIN" in mechanisms(is_tls=True)


@pytest.mark.parametrize("mechanism", sorted(ALGORITHM_OF))
async def test_scram_proves_a_key_to_the_server_and_the_server_to_the_client(tmp_path, mechanism):
    async with in_process(tmp_path, AUTH) as broker:
        made = broker.driver.execute(CreateKey("shop", Role.PRODUCER, ("orders",)))
        user, _, secret = made.text.partition(".")
        client = ScramClient(ALGORITHM_OF[mechanism], user, secret)
        exchange = SaslExchange(service_of(broker), mechanism, "10.0.0.1")
        last = client.final(exchange.step(client.first()))
        assert not exchange.is_done
        assert exchange.step(last) == client.expected
        key_id = made.key.key_id
        assert exchange.found[0] == Principal("shop", Role.PRODUCER, ("orders",), key_id)
        assert broker.driver.left_ns(exchange.found[1]) is None


@pytest.mark.parametrize("user", ["pk-000000000000", None])
async def test_scram_refuses_what_is_no_key_in_the_same_way(tmp_path, user):
    async with in_process(tmp_path, AUTH) as broker:
        made = broker.driver.execute(CreateKey("shop", Role.PRODUCER))
        client = ScramClient("sha256", user or made.key.key_id, "wrong")
        salts = set()
        for _ in range(2):
            exchange = SaslExchange(service_of(broker), "SCRAM-SHA-256", "10.0.0.1")
            challenge = exchange.step(client.first())
            salts.add(challenge.split(b",s=")[1])
            with pytest.raises(Unauthenticated, match="this key is not good"):
                exchange.step(client.final(challenge))
        assert len(salts) == 1


async def test_a_key_of_before_is_told_to_be_rotated(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        made = broker.driver.execute(CreateKey("shop", Role.PRODUCER))
        user, _, secret = made.text.partition(".")
        del broker.driver.node.keys.scram[user]
        client = ScramClient("sha256", user, secret)
        exchange = SaslExchange(service_of(broker), "SCRAM-SHA-256", "10.0.0.1")
        last = client.final(exchange.step(client.first()))
        with pytest.raises(Unauthenticated, match="rotate it"):
            exchange.step(last)


async def test_plain_is_the_id_and_the_secret(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        made = broker.driver.execute(CreateKey("shop", Role.PRODUCER))
        user, _, secret = made.text.partition(".")
        exchange = SaslExchange(service_of(broker), "PLAIN", "10.0.0.1")
        assert exchange.step(f"\0{user}\0{secret}".encode()) == b""
        assert exchange.found[0].name == "shop"
        with pytest.raises(Unauthenticated):
            SaslExchange(service_of(broker), "PLAIN", "a").step(f"\0{user}\0wrong".encode())


async def test_an_address_that_fails_too_often_is_refused(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        service = service_of(broker)

        def fail():
            client = ScramClient("sha256", "pk-000000000000", "wrong")
            exchange = SaslExchange(service, "SCRAM-SHA-256", "10.0.0.9")
            exchange.step(client.final(exchange.step(client.first())))

        for _ in range(20):
            with pytest.raises(Unauthenticated):
                fail()
        with pytest.raises(TooManyRequests):
            fail()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"n,,", b"n,,n=,r=", b"p=x,,n=a,r=b", b"a\0b", b"x" * 5000]
)
async def test_what_is_no_message_is_refused(tmp_path, mechanism, data):
    async with in_process(tmp_path, AUTH) as broker:
        exchange = SaslExchange(service_of(broker), mechanism, "a")
        with pytest.raises(BadRequest):
            exchange.step(data)


@pytest.mark.parametrize("last", [b"", b"c=biws,r=other,p=AAAA", b"c=xx,p=!", b"c=biws,r={},p="])
async def test_what_is_no_last_message_is_refused(tmp_path, last):
    async with in_process(tmp_path, AUTH) as broker:
        exchange = SaslExchange(service_of(broker), "SCRAM-SHA-256", "a")
        nonce = exchange.step(b"n,,n=pk-000000000000,r=a").split(b",")[0][2:]
        with pytest.raises((BadRequest, Unauthenticated)):
            exchange.step(last.replace(b"{}", nonce))
        assert not exchange.is_done
