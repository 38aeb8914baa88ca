"""Stock clients whose requests are over the limit: their error is that the message is too large, at once."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

from tests.kafka.brokers import KafkaAddress, running_broker
from tests.kafka.librdkafka import PATIENCE_S, make_topic

pytestmark = pytest.mark.filterwarnings("ignore")
FRAME_BYTES_MAX, VALUE_BYTES = 4 << 20, 6 << 20
# A client that tried again until its time was up would not be back before the test's own patience ends.
TIMEOUT_MS = 10 * int(PATIENCE_S) * 1000


@pytest.fixture(scope="module")
def small_frames(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAddress]:
    limits = {
        "PENSTOCK_BINARY__FRAME_BYTES_MAX": str(FRAME_BYTES_MAX),
        "PENSTOCK_LIMITS__BATCH_BYTES_MAX": str(FRAME_BYTES_MAX // 2),
        "PENSTOCK_LIMITS__VALUE_BYTES_MAX": str(FRAME_BYTES_MAX // 4),
    }
    with running_broker(tmp_path_factory.mktemp("small") / "data", limits) as address:
        make_topic(AdminClient({"bootstrap.servers": str(address)}), "orders")
        yield address


def test_librdkafka_gives_up_and_goes_on(small_frames: KafkaAddress) -> None:
    told: list[KafkaError | None] = []
    client = ConfluentProducer(
        {
            "bootstrap.servers": str(small_frames),
            "message.max.bytes": 4 * FRAME_BYTES_MAX,
            "message.timeout.ms": TIMEOUT_MS,
        }
    )
    for value in (b"x" * VALUE_BYTES, b"small"):
        client.produce("orders", value, on_delivery=lambda error, _message: told.append(error))
        assert client.flush(PATIENCE_S) == 0
    assert told[0] is not None
    assert (told[0].code(), told[1]) == (KafkaError.MSG_SIZE_TOO_LARGE, None)


def test_kafka_python_gives_up_and_goes_on(small_frames: KafkaAddress) -> None:
    with closing(
        KafkaProducer(
            bootstrap_servers=str(small_frames),
            # An idempotent one takes it for the end of its session, and refuses all that follows.
            enable_idempotence=False,
            max_request_size=4 * FRAME_BYTES_MAX,
            delivery_timeout_ms=TIMEOUT_MS,
        )
    ) as client:
        large = client.send("orders", b"x" * VALUE_BYTES)
        with pytest.raises(MessageSizeTooLargeError):
            large.get(PATIENCE_S)
        assert client.send("orders", b"small").get(PATIENCE_S).offset >= 0
