"""The producer: quick, in order, once; whatever happens between it and the server."""

import asyncio
import sys
import threading

import pytest
import trustme

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.errors import OutOfSequence, PenstockError, Refused, TooLarge, TooManyRequests
from penstock.testing.server import running_server

from .proxies import BatchProxy, busy, garbage, swallowed, trickled
from .servers import restartable, until

QUICK = ClientSettings(retry=RetryPolicy(retries=3, backoff_ms=1))


def values_in(client, topic):
    return [message.value for _, message in client.read(topic)]


@pytest.fixture
def restless():
    """Threads take turns a thousand times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless")
def test_threads_that_send_the_same_get_an_offset_each(url):
    """Also when it is the same object, and a flush seals the batch in between."""
    same = b"the same"
    deliveries = [[] for _ in range(4)]
    with Client(url) as client:
        client.create_topic("threads", partitions=2)
        with client.producer("threads", linger_ms=0.1, batch_bytes_max=1 << 14) as producer:

            def work(mine):
                for number in range(5000):
                    mine.append(producer.send(same))
                    if number % 1000 == 0:
                        producer.flush()

            threads = [threading.Thread(target=work, args=(one,)) for one in deliveries]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        assert producer.stored == 20_000
        placed = [one.result() for some in deliveries for one in some]
        assert len({(one.partition, one.offset) for one in placed}) == 20_000
        assert len(values_in(client, "threads")) == 20_000
        for some in deliveries:
            mine = [one.result() for one in some]
            for number in (0, 1):
                offsets = [one.offset for one in mine if one.partition == number]
                assert offsets == sorted(offsets)


def test_a_partition_keeps_the_order_of_a_thread_with_keys_and_without(url):
    """Of several sizes, and a batch that is full in between."""
    sent = [b"%0*d" % (1 + number % 7, number % 10) for number in range(300)]
    with Client(url) as client:
        client.create_topic("mixed", partitions=1)
        with client.producer("mixed", batch_bytes_max=200) as producer:
            placed = []
            for number, value in enumerate(sent):
                key = b"key" if number % 40 > 30 else None
                placed.append(producer.send(value, key, priority=3 if number % 100 == 7 else None))
        assert values_in(client, "mixed") == sent
        assert [one.result().offset for one in placed] == [*range(300)]


def test_a_value_over_the_limit_is_refused_also_where_batches_are_larger(url):
    with Client(url) as client:
        client.create_topic("huge", partitions=1)
        with client.producer("huge", batch_bytes_max=16 << 20) as producer:
            producer.send(b"a")
            producer.send(b"ab")
            with pytest.raises(TooLarge, match="value in bytes"):
                producer.send(b"x" * (11 << 20))
            producer.send(b"abc")
        assert values_in(client, "huge") == [b"a", b"ab", b"abc"]


def test_wrong_messages_are_refused_before_they_spoil_a_batch(url):
    with Client(url) as client:
        client.create_topic("checked", partitions=1)
        with client.producer("checked") as producer:
            producer.send(b"good")
            for wrong in (
                lambda: producer.send(5),
                lambda: producer.send(b"x", 5),
                lambda: producer.send(b"x", priority=9),
                lambda: producer.send(b"x", ttl="9999999d"),
                lambda: producer.send(b"x", headers={None: b"no name"}),
                lambda: producer.send(b"x", partition=1),
            ):
                with pytest.raises(Refused):
                    wrong()
            with pytest.raises(TooLarge):
                producer.send(b"x" * (11 << 20))
            producer.send("text", "key", ttl="1h")
            producer.send(None, b"tombstone")
        assert values_in(client, "checked") == [b"good", b"text", None]
        with pytest.raises(Refused, match="closed"):
            producer.send(b"too late")


@pytest.mark.parametrize("trick", [swallowed, garbage, trickled])
def test_an_answer_that_is_lost_or_strange_or_slow_stores_a_batch_once(url, trick):
    topic = trick.__name__
    with BatchProxy(url, trick) as proxy, Client(url) as direct:
        direct.create_topic(topic, partitions=1)
        with Client(proxy.url, settings=QUICK) as client, client.producer(topic) as producer:
            first = producer.send(b"first")
            producer.flush()
            producer.send(b"second")
        assert first.result().duplicate == (trick is not trickled)
        assert values_in(direct, topic) == [b"first", b"second"]
        assert len(proxy.seen) == (2 if trick is trickled else 3)


def test_without_numbers_a_lost_answer_is_an_error_and_nothing_is_sent_again(url):
    with BatchProxy(url, swallowed) as proxy, Client(url) as direct:
        direct.create_topic("unnumbered", partitions=1)
        with Client(proxy.url, settings=QUICK) as client:
            producer = client.producer("unnumbered", is_idempotent=False)
            delivery = producer.send(b"only")
            with pytest.raises(PenstockError):
                producer.flush()
            with pytest.raises(PenstockError):
                delivery.result(120)
            producer.close()
        assert (producer.failed, len(proxy.seen)) == (1, 1)
        assert values_in(direct, "unnumbered") == [b"only"]


def test_a_busy_server_is_asked_again_after_a_while(url):
    refusals = [busy] * 3
    told = []
    with (
        BatchProxy(
            url, before=lambda request: refusals.pop()(request) if refusals else None
        ) as proxy,
        Client(proxy.url, settings=QUICK) as client,
    ):
        client.create_topic("busy", partitions=1)
        with client.producer("busy", on_delivery=lambda *one: told.append(one)) as producer:
            producer.send(b"patient")
        assert told == [(1, None)]
        assert len(proxy.seen) == 4
        assert values_in(client, "busy") == [b"patient"]


async def test_a_close_that_is_interrupted_does_not_wait_for_the_server(url):
    async with AsyncClient(url, settings=QUICK) as direct:
        await direct.create_topic("stubborn", partitions=1)
    with BatchProxy(url, before=busy) as proxy:
        async with AsyncClient(proxy.url, settings=QUICK) as client:
            producer = client.producer("stubborn", delivery_timeout_s=3600)
            delivery = await producer.send(b"never")
            closing = asyncio.create_task(producer.close())
            await asyncio.to_thread(until, lambda: len(proxy.seen) >= 3)
            closing.cancel()
            async with asyncio.timeout(120):
                with pytest.raises(asyncio.CancelledError):
                    await closing
            with pytest.raises(TooManyRequests):
                await delivery.result()
            assert (producer.stored, producer.failed) == (0, 1)


def test_a_server_that_has_forgotten_us_gets_a_new_epoch(url):
    """A topic that was made anew knows no producer, and this one does not begin with its first number."""
    with Client(url, settings=QUICK) as client:
        client.create_topic("forgetful", partitions=1)
        with client.producer("forgetful") as producer:
            producer.send(b"before")
            producer.flush()
            client.delete_topic("forgetful")
            client.create_topic("forgetful", partitions=1)
            producer.send(b"after")
            producer.send(b"again")
            producer.flush()
            producer.send(b"later")
        assert values_in(client, "forgetful") == [b"after", b"again", b"later"]


def test_in_doubt_a_new_epoch_would_store_twice_so_it_is_an_error(url):
    """The first try was stored, its answer lost, and then the server lost its memory of us."""
    with Client(url, settings=QUICK) as direct:
        direct.create_topic("doubtful", partitions=1)

        def forget(_answer, _near):
            direct.delete_topic("doubtful")
            direct.create_topic("doubtful", partitions=1)
            return False

        with (
            BatchProxy(url, swallowed, forget) as proxy,
            Client(proxy.url, settings=QUICK) as client,
        ):
            producer = client.producer("doubtful")
            producer.send(b"zero")
            producer.flush()
            proxy.tricks[:] = [forget]
            lost = producer.send(b"one")
            with pytest.raises(OutOfSequence):
                producer.flush()
            with pytest.raises(OutOfSequence):
                lost.result(120)
            producer.send(b"two")
            producer.close()
        assert values_in(direct, "doubtful") == [b"two"]


def test_a_batch_that_was_tried_before_is_never_sent_under_a_new_number(url):
    """A proxy answer that it was busy after it had passed the batch on, and then the server lost its memory of us."""
    with Client(url, settings=QUICK) as direct:
        direct.create_topic("tried", partitions=1)

        def forget(answer, link):
            direct.delete_topic("tried")
            direct.create_topic("tried", partitions=1)
            link.sendall(busy(answer))

        with BatchProxy(url) as proxy, Client(proxy.url, settings=QUICK) as client:
            producer = client.producer("tried")
            producer.send(b"zero")
            producer.flush()
            proxy.tricks[:] = [forget]
            doubtful = producer.send(b"one")
            with pytest.raises(OutOfSequence):
                producer.flush()
            with pytest.raises(OutOfSequence):
                doubtful.result()
            assert len({bytes(request.command.batch) for request in proxy.seen}) == 2
            producer.send(b"two")
            producer.close()
        assert values_in(direct, "tried") == [b"two"]


def test_partitions_that_are_added_get_messages_without_a_restart(url):
    with Client(url) as client:
        client.create_topic("growing", partitions=1)
        with client.producer("growing") as producer:
            with pytest.raises(Refused):
                producer.send(b"x", partition=2)
            client.add_partitions("growing", 3)
            # The answer to a batch says how many there are.
            producer.send(b"one")
            producer.flush()
            assert producer.send(b"two", partition=2).batch.partition == 2
            for number in range(60):
                producer.send(b"k", b"%d" % number)
        assert {partition for partition, _ in client.read("growing")} == {0, 1, 2}


@pytest.mark.tier("test")
def test_a_server_that_is_killed_in_the_middle_keeps_all_that_was_confirmed_once(tmp_path):
    """A killed process loses nothing that it wrote, so acks=leader is enough here."""
    patient = ClientSettings(retry=RetryPolicy(retries=20, backoff_ms=20, backoff_ms_max=200))
    with restartable(tmp_path / "data") as server, Client(server.url, settings=patient) as client:
        client.create_topic("killed", partitions=2)
        deliveries, is_killed = [], threading.Event()
        with client.producer("killed", batch_bytes_max=20_000, linger_ms=1) as producer:

            def kill():
                """When something was stored already."""
                until(lambda: producer.stored)
                server.restart(0.05)
                is_killed.set()

            killer = threading.Thread(target=kill)
            killer.start()
            while not is_killed.is_set():
                deliveries += [
                    producer.send(b"%0100d" % (len(deliveries) + one)) for one in range(200)
                ]
            killer.join()
        placed = [one.result(60) for one in deliveries]
        found = {(part, one.offset): one.value for part, one in client.read("killed")}
        assert len(found) == len(deliveries), "none is missing, none is there twice"
        for number, one in enumerate(placed):
            assert found[one.partition, one.offset] == b"%0100d" % number


@pytest.mark.tier("test")
def test_over_tls_and_with_a_key(tmp_path):
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    paths = {name: tmp_path / f"{name}.pem" for name in ("cert", "key", "ca")}
    paths["cert"].write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    paths["key"].write_bytes(made.private_key_pem.bytes())
    paths["key"].chmod(0o600)
    authority.cert_pem.write_to_path(str(paths["ca"]))
    file = tmp_path / "penstock.yaml"
    file.write_text(
        f"tls: {{cert_file: {paths['cert']}, key_file: {paths['key']}}}\nauth: {{enabled: true}}\n"
    )
    settings = ClientSettings(ca_file=str(paths["ca"]))
    large = [b"%0100000d" % number for number in range(40)]
    with running_server(tmp_path / "data", "--config", str(file)) as url:
        key = (tmp_path / "data" / "admin.key").read_text().strip()
        with Client(url, key=key, settings=settings) as client:
            client.create_topic("secret", partitions=1)
            with client.producer("secret") as producer:
                for one in large:
                    producer.send(one)
            assert values_in(client, "secret") == large
        with Client(url, settings=settings) as stranger, pytest.raises(PenstockError):
            stranger.producer("secret").send(b"x")

        async def story():
            async with AsyncClient(url, key=key, settings=settings) as other:
                async with other.producer("secret") as sender:
                    for one in large:
                        await sender.send(one)
                assert (await other.topic("secret")).total_messages == 80

        asyncio.run(story())


def test_the_asynchronous_one_lets_others_run_while_large_batches_are_on_their_way(url):
    async def story():
        async with AsyncClient(url) as client:
            await client.create_topic("large", partitions=1)
            async with client.producer("large") as producer:
                for number in range(60):
                    await producer.send(b"%0200000d" % number)
            found = [message.value async for _, message in client.read("large")]
            assert found == [b"%0200000d" % number for number in range(60)]

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_priority_has_a_number_and_a_name(url):
    with Client(url) as client:
        client.create_topic("urgent", partitions=1)
        with client.producer("urgent") as producer:
            for priority in (1, "high"):
                producer.send(b"x", priority=priority)
        assert [message.priority for _, message in client.read("urgent")] == [1, 1]
