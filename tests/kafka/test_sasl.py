"""Keys for Kafka clients: SCRAM and PLAIN over TLS, with each client; rights and prefixes as anywhere else."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.kafka.brokers import KafkaAddress, running_broker
from tests.kafka.librdkafka import PATIENCE_S, until

pytestmark = [
    pytest.mark.tier("test"),
    # Sockets of these clients end when they are collected.
    pytest.mark.filterwarnings("ignore"),
]
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


class Secured(NamedTuple):
    address: KafkaAddress
    authority: str
    user: str
    secret: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "cert.pem").write_bytes(b"".join(one.bytes() for one in certificate.cert_chain_pems))
    (folder / "key.pem").chmod(0o600)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    environment = {
        "PENSTOCK_AUTH__ENABLED": "true",
        "PENSTOCK_TLS__CERT_FILE": str(folder / "cert.pem"),
        "PENSTOCK_TLS__KEY_FILE": str(folder / "key.pem"),
    }
    with running_broker(folder / "data", environment) as address:
        user, _, secret = (folder / "data" / "admin.key").read_text().strip().partition(".")
        yield Secured(address, str(folder / "ca.pem"), user, secret)


def rdkafka(secured: Secured, mechanism: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(secured.address),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": secured.authority,
        "sasl.mechanism": mechanism,
        "sasl.username": secured.user,
        "sasl.password": secured.secret,
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(secured: Secured, mechanism: str) -> None:
    topic = f"confluent-{mechanism}"
    client = Producer(rdkafka(secured, mechanism))
    client.produce(topic, b"hello")
    assert client.flush(PATIENCE_S) == 0
    reader = Consumer(
        rdkafka(secured, mechanism, **{"group.id": topic, "auto.offset.reset": "earliest"})
    )
    reader.subscribe([topic])
    message = reader.poll(PATIENCE_S)
    reader.close()
    assert message is not None
    assert message.value() == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    topic = f"python-{mechanism}"
    settings = {
        "bootstrap_servers": str(secured.address),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secured.authority,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": secured.user,
        "sasl_plain_password": secured.secret,
    }
    client = KafkaProducer(**settings)
    client.send(topic, b"hello").get(PATIENCE_S)
    client.close()
    reader = KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
    assert next(reader).value == b"hello"
    reader.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(secured: Secured, mechanism: str) -> None:
    topic = f"aio-{mechanism}"
    settings = {
        "bootstrap_servers": str(secured.address),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=secured.authority),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": secured.user,
        "sasl_plain_password": secured.secret,
    }
    client = AIOKafkaProducer(**settings)
    await client.start()
    await client.send_and_wait(topic, b"hello")
    await client.stop()
    reader = AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
    await reader.start()
    assert (await reader.getone()).value == b"hello"
    await reader.stop()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(secured: Secured, mechanism: str) -> None:
    topic = f"kcat-{mechanism}"
    settings = rdkafka(secured, mechanism)
    del settings["bootstrap.servers"]
    words = [f"-X{name}={value}" for name, value in settings.items()]

    def kcat(*more: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kcat", "-b", str(secured.address), *words, *more],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    sent = kcat("-P", "-t", topic, "-p", "0", given="hello\n")
    assert sent.returncode == 0, sent.stderr
    read = kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert (read.returncode, read.stdout) == (0, "hello\n"), read.stderr
    refused = kcat("-Xsasl.password=wrong", "-L", "-m", "5")
    assert refused.returncode != 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs(secured: Secured, kafkajs: Path, mechanism: str) -> None:
    def run(secret: str) -> subprocess.CompletedProcess[str]:
        named = [mechanism.lower(), secured.user, secret, f"kafkajs-{mechanism}"]
        return subprocess.run(
            ["node", "kafkajs_sasl.js", str(secured.address), secured.authority, *named],
            cwd=kafkajs,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    done = run(secured.secret)
    assert done.returncode == 0, done.stderr
    refused = run("wrong")
    assert refused.returncode == 1
    assert "SASL" in refused.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_secret_is_refused(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    wrong = secured._replace(secret="not-the-secret")
    client = AdminClient(rdkafka(wrong, mechanism, error_cb=errors.append))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    until(lambda: client.poll(0.1) >= 0 and bool(errors))
    assert KafkaError._AUTHENTICATION in [one.code() for one in errors]


def test_without_a_key_nothing_is_answered(secured: Secured) -> None:
    settings = {
        "bootstrap.servers": str(secured.address),
        "security.protocol": "SSL",
        "ssl.ca.location": secured.authority,
    }
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=3)


def test_rights_are_those_of_the_key(secured: Secured, tmp_path: Path) -> None:
    import json
    import urllib.request

    # The other port of the same broker makes the key; a producer may neither make topics nor read.
    admin = AdminClient(rdkafka(secured, "SCRAM-SHA-256"))
    admin.create_topics([NewTopic("mine.a", 1, 1), NewTopic("other", 1, 1)])["other"].result(
        PATIENCE_S
    )
    context = ssl.create_default_context(cafile=secured.authority)
    assert secured.address.http is not None
    request = urllib.request.Request(
        f"{secured.address.http}/admin/keys",
        data=json.dumps({"name": "shop", "role": "producer", "prefixes": ["mine."]}).encode(),
        headers={
            "Authorization": f"Bearer {secured.user}.{secured.secret}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, context=context) as answer:
        made = json.loads(answer.read())
    user, _, secret = made["key"].partition(".")
    limited = secured._replace(user=user, secret=secret)
    told: dict[str, Any] = {}
    client = Producer(rdkafka(limited, "SCRAM-SHA-512"))
    for topic in ("mine.a", "other"):
        client.produce(topic, b"x", callback=lambda error, one: told.update({one.topic(): error}))
    client.flush(PATIENCE_S)
    assert told["mine.a"] is None
    assert told["other"].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    # The name of a transactional producer is its key's.
    for one in (secured, limited):
        named = {**rdkafka(one, "PLAIN"), "transactional.id": "billing"}
        if one is secured:
            Producer(named).init_transactions(PATIENCE_S)
            continue
        with pytest.raises(KafkaException) as foreign:
            Producer(named).init_transactions(PATIENCE_S)
        code = foreign.value.args[0].code()
        assert code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    limited_admin = AdminClient(rdkafka(limited, "PLAIN"))
    assert list(limited_admin.list_topics(timeout=PATIENCE_S).topics) == ["mine.a"]
    with pytest.raises(KafkaException) as refused:
        limited_admin.create_topics([NewTopic("mine.b", 1, 1)])["mine.b"].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
