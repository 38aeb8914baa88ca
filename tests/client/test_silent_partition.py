"""A server that does not answer for one partition: the others of a producer go on, and it has its time and no more."""

import threading

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.errors import AnswerTimeout

from .proxies import BatchProxy, busy
from .servers import until

PATIENT = ClientSettings(retry=RetryPolicy(backoff_ms=1))
HASTY = ClientSettings(timeout_s=0.5)


class Silence:
    """Batches for partition 0 (or for all) get no answer before the gate is open, at the end of a block at the latest.

    `first` may answer some.
    """

    def __init__(self, url, *, first=(), is_for_all=False):
        self.gate, self.heard = threading.Event(), 0
        self._first, self._is_for_all = [*first], is_for_all
        self.proxy = BatchProxy(url, before=self._before)

    def _before(self, request):
        if self._is_for_all or request.command.partition == 0:
            if self._first:
                return self._first.pop()(request)
            self.heard += 1
            self.gate.wait(120)
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.gate.set()


# Silent from the beginning, or when it is asked again.
FIRST = pytest.mark.parametrize("first", [(), (busy,)])


def values_in(client, topic):
    return {message.value for _, message in client.read(topic)}


@FIRST
def test_the_other_partitions_go_on(url, first):
    topic = f"silent-{len(first)}"
    silence = Silence(url, first=first)
    with silence.proxy as proxy, Client(proxy.url, settings=PATIENT) as client:
        client.create_topic(topic, partitions=2)
        with client.producer(topic, linger_ms=1) as producer, silence:
            late = producer.send(b"late", partition=0)
            until(lambda: silence.heard)
            assert producer.send(b"soon", partition=1).result(120).partition == 1
        assert late.result(120).partition == 0
        assert values_in(client, topic) == {b"soon", b"late"}


@FIRST
async def test_the_other_partitions_go_on_in_asyncio(url, first):
    topic = f"silent-async-{len(first)}"
    silence = Silence(url, first=first)
    with silence.proxy as proxy:
        async with AsyncClient(proxy.url, settings=PATIENT) as client:
            await client.create_topic(topic, partitions=2)
            async with client.producer(topic, linger_ms=1) as producer:
                with silence:
                    late = await producer.send(b"late", partition=0)
                    for value in (b"first", b"soon"):
                        sent = await producer.send(value, partition=1)
                        assert (await sent.result(120)).partition == 1
                assert (await late.result(120)).partition == 0
            found = {message.value async for _, message in client.read(topic)}
            assert found == {b"first", b"soon", b"late"}


def test_an_answer_that_takes_too_long_is_an_error(url):
    silence = Silence(url)
    with Client(url) as patient:
        patient.create_topic("too-long", partitions=1)
    with silence.proxy as proxy, Client(proxy.url, settings=HASTY) as client, silence:
        producer = client.producer("too-long", linger_ms=1, is_idempotent=False)
        with pytest.raises(AnswerTimeout, match=r"nothing within 0\.5 s"):
            producer.send(b"unheard").result(120)
        with pytest.raises(AnswerTimeout):
            producer.close()


async def test_an_answer_that_takes_too_long_is_an_error_in_asyncio(url):
    with Client(url) as patient:
        patient.create_topic("too-long-async", partitions=1)
    with Silence(url) as silence, silence.proxy as proxy:
        async with AsyncClient(proxy.url, settings=HASTY) as client:
            producer = client.producer("too-long-async", linger_ms=1, is_idempotent=False)
            with pytest.raises(AnswerTimeout, match=r"nothing within 0\.5 s"):
                await (await producer.send(b"unheard")).result(120)
            with pytest.raises(AnswerTimeout):
                await producer.close()
