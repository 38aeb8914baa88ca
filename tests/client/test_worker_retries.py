"""How often a worker tries, in both colours: quick enough for every change."""

from penstock.client import AsyncClient, Client

from .servers import until


def quiet(_message, _error):
    """Failures are the point of these tests, and not worth a line in the log."""


def made(client, topic):
    client.create_topic(topic, partitions=1, backoff_base_ms=1)
    client.publish(topic, b"bad")


def test_a_worker_may_retry_less_often_than_the_topic(url):
    seen = []

    def handle(message):
        seen.append(message.attempts)
        raise ValueError

    with Client(url) as client:
        made(client, "w-retries")
        with client.worker("w-retries", "w2", handle, retries=1, on_failure=quiet):
            until(lambda: client.lag("w2").total == 0)
    assert seen == [1, 2]


async def test_an_asynchronous_worker_may_retry_less_often_than_the_topic(url):
    seen = []
    with Client(url) as client:
        made(client, "w-async-retries")
    async with AsyncClient(url) as client:

        async def handle(message):
            seen.append(message.attempts)
            if message.attempts == 2:
                worker.stop()
            raise ValueError

        worker = client.worker("w-async-retries", "w3", handle, retries=1, on_failure=quiet)
        await worker.run()
        assert (await client.lag("w3")).total == 0
    assert seen == [1, 2]
