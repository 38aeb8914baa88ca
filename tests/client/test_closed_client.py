"""A client that was closed: what was made by it ends, instead of waiting for a server that it does not ask."""

import threading

import pytest

from penstock.client import AsyncClient, Client
from penstock.errors import Refused


def test_a_closed_client_refuses_and_its_producer_and_consumer_end(url):
    client = Client(url)
    client.create_topic("closed", partitions=1)
    raised = []
    consumer, producer = client.consumer("closed", "closed"), client.producer("closed")
    consumer.start()
    producer.send(b"stored")
    producer.flush()
    is_over = threading.Event()

    def consume():
        try:
            for message in consumer:
                message.ack()
        except Refused as error:
            raised.append(error)
        is_over.set()

    threading.Thread(target=consume, daemon=True).start()
    client.close()
    assert is_over.wait(60)
    assert "the client was closed" in str(raised[0])
    with pytest.raises(Refused, match="the client was closed"):
        client.topics()
    delivery = producer.send(b"too late")
    # The background may have tried before.
    with pytest.raises(Refused, match="the client was closed"):
        producer.close()
    with pytest.raises(Refused, match="the client was closed"):
        delivery.result(60)


async def test_a_closed_client_of_asyncio_refuses(url):
    client = AsyncClient(url)
    await client.topics()
    await client.close()
    with pytest.raises(Refused, match="the client was closed"):
        await client.topics()
