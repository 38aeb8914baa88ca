"""The clients of a race: every broker does equal work by its best Python client.

Each method takes a topic (a stream, queue or tube) of its own. Publishing returns when all is confirmed; what is read
is touched. Imports happen when a client is made, because each belongs to one peer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

TOGETHER = 1000
ACKED_TOGETHER = 100
Heard = Callable[[bytes], bool]
"""Takes a value; False: that is enough."""


class BrokerContender(Protocol):
    """One broker, and the operations that are measured."""

    def publish(self, topic: str, values: Sequence[bytes]) -> None: ...
    def publish_one(self, topic: str, value: bytes) -> None: ...
    def consume(self, topic: str, count: int) -> None: ...
    def fetch_ack(self, topic: str, count: int) -> None:
        """Lease and ack a hundred messages at a time; one by one where the broker has no batches."""

    def fetch_ack_each(self, topic: str, count: int) -> None: ...
    def follow(self, topic: str, heard: Heard) -> None:
        """Read what is published from now on, until `count` messages came."""

    def close(self) -> None: ...


class Redis:
    """Redis streams. Pipelines without transactions are the fastest way of redis-py."""

    def __init__(self, port: int) -> None:
        import redis

        self._redis: Any = redis.Redis(port=port)

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        for first in range(0, len(values), TOGETHER):
            pipeline = self._redis.pipeline(transaction=False)
            for value in values[first : first + TOGETHER]:
                pipeline.xadd(topic, {b"v": value})
            pipeline.execute()

    def publish_one(self, topic: str, value: bytes) -> None:
        self._redis.xadd(topic, {b"v": value})

    def consume(self, topic: str, count: int) -> None:
        last, touched = b"0", 0
        while touched < count:
            ((_, found),) = self._redis.xread({topic: last}, count=TOGETHER)
            for last, fields in found:  # noqa: B007 - the last is where to go on
                touched += len(fields[b"v"]) > 0

    def _taken(self, topic: str, count: int) -> Any:
        self._redis.xgroup_create(topic, "g", id="0")
        done = 0
        while done < count:
            ((_, found),) = self._redis.xreadgroup("g", "c", {topic: ">"}, count=ACKED_TOGETHER)
            done += len(found)
            yield [identity for identity, fields in found if fields[b"v"]]

    def fetch_ack(self, topic: str, count: int) -> None:
        for identities in self._taken(topic, count):
            self._redis.xack(topic, "g", *identities)

    def fetch_ack_each(self, topic: str, count: int) -> None:
        for identities in self._taken(topic, count):
            pipeline = self._redis.pipeline(transaction=False)
            for identity in identities:
                pipeline.xack(topic, "g", identity)
            pipeline.execute()

    def follow(self, topic: str, heard: Heard) -> None:
        last: Any = "$"
        while True:
            for _, found in self._redis.xread({topic: last}, block=1000):
                for last, fields in found:  # noqa: B007 - the last is where to go on
                    if not heard(fields[b"v"]):
                        return

    def close(self) -> None:
        self._redis.close()


class Nats:
    """NATS JetStream, with its own event loop."""

    def __init__(self, port: int) -> None:
        import nats

        self._loop = asyncio.new_event_loop()
        self._nats: Any = self._run(nats.connect(f"nats://127.0.0.1:{port}"))
        self._stream: Any = self._nats.jetstream()
        self._known: set[str] = set()

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def _open(self, topic: str) -> None:
        if topic not in self._known:
            self._known.add(topic)
            await self._stream.add_stream(name=topic, subjects=[topic], storage="file")

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Publish with one inbox for all confirms: a future for each message costs four times as much."""

        async def work() -> None:
            await self._open(topic)
            inbox, is_done, confirmed = self._nats.new_inbox(), asyncio.Event(), 0

            async def confirm(message: Any) -> None:
                nonlocal confirmed
                assert b'"error"' not in message.data, message.data
                confirmed += 1
                if confirmed == len(values):
                    is_done.set()

            heard = await self._nats.subscribe(inbox, cb=confirm)
            for value in values:
                await self._nats.publish(topic, value, reply=inbox)
            await is_done.wait()
            await heard.unsubscribe()

        self._run(work())

    def publish_one(self, topic: str, value: bytes) -> None:
        async def work() -> None:
            await self._open(topic)
            await self._stream.publish(topic, value)

        self._run(work())

    async def _subscribed(self, topic: str, policy: str) -> Any:
        from nats.js.api import ConsumerConfig

        config = ConsumerConfig(ack_policy=policy, max_ack_pending=100_000)
        return await self._stream.pull_subscribe(topic, durable=f"{topic}-{policy}", config=config)

    def consume(self, topic: str, count: int) -> None:
        async def work() -> None:
            found, touched = await self._subscribed(topic, "none"), 0
            while touched < count:
                for message in await found.fetch(min(TOGETHER, count - touched)):
                    touched += len(message.data) > 0

        self._run(work())

    def fetch_ack(self, topic: str, count: int) -> None:
        async def work() -> None:
            found, done = await self._subscribed(topic, "explicit"), 0
            while done < count:
                for message in await found.fetch(min(ACKED_TOGETHER, count - done)):
                    await message.ack()
                    done += 1
            await self._nats.flush()

        self._run(work())

    fetch_ack_each = fetch_ack

    def follow(self, topic: str, heard: Heard) -> None:
        async def work() -> None:
            await self._open(topic)
            found = await self._stream.subscribe(topic, ordered_consumer=True)
            while heard((await found.next_msg(timeout=60)).data):
                pass

        self._run(work())

    def close(self) -> None:
        async def work() -> None:
            await self._nats.close()
            # Its subscriptions leave some behind.
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        self._run(work())
        self._loop.close()


class RabbitMQ:
    """pika. Confirms of many messages at once are for its callback connections only."""

    def __init__(self, port: int) -> None:
        import pika

        self._parameters: Any = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._properties: Any = pika.BasicProperties(delivery_mode=2)
        self._connection: Any = pika.BlockingConnection(self._parameters)
        self._channel: Any = self._connection.channel()
        self._channel.confirm_delivery()
        self._known: set[str] = set()

    def _open(self, topic: str) -> None:
        if topic not in self._known:
            self._known.add(topic)
            self._channel.queue_declare(topic, durable=True)

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        import pika

        self._open(topic)

        def opened(channel: Any) -> None:
            channel.confirm_delivery(confirmed)
            for value in values:
                channel.basic_publish("", topic, value, self._properties)

        def confirmed(frame: Any) -> None:
            # A confirm may be for all up to it.
            if frame.method.delivery_tag >= len(values):
                connection.close()

        connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda one: one.channel(on_open_callback=opened),
            on_close_callback=lambda one, _reason: one.ioloop.stop(),
        )
        connection.ioloop.start()

    def publish_one(self, topic: str, value: bytes) -> None:
        self._open(topic)
        self._channel.basic_publish("", topic, value, self._properties)

    def consume(self, topic: str, count: int) -> None:
        self._channel.basic_qos(prefetch_count=0)
        touched = 0
        for _, _, body in self._channel.consume(topic, auto_ack=True):
            touched += len(body) > 0
            if touched >= count:
                break
        self._channel.cancel()

    def _take(self, topic: str, count: int, together: int) -> None:
        self._channel.basic_qos(prefetch_count=2 * ACKED_TOGETHER)
        done = 0
        for method, _, body in self._channel.consume(topic):
            done += len(body) > 0
            if done % together == 0 or done >= count:
                self._channel.basic_ack(method.delivery_tag, multiple=together > 1)
            if done >= count:
                break
        self._channel.cancel()

    def fetch_ack(self, topic: str, count: int) -> None:
        self._take(topic, count, ACKED_TOGETHER)

    def fetch_ack_each(self, topic: str, count: int) -> None:
        self._take(topic, count, 1)

    def follow(self, topic: str, heard: Heard) -> None:
        self._open(topic)
        for _, _, body in self._channel.consume(topic, auto_ack=True):
            if not heard(body):
                break
        self._channel.cancel()

    def close(self) -> None:
        self._connection.close()


class Beanstalkd:
    """greenstalk: one request for each job. It has no batches."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = self._connected()

    def _connected(self) -> Any:
        import greenstalk

        return greenstalk.Client(("127.0.0.1", self._port), encoding=None)

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        self._client.use(topic)
        for value in values:
            self._client.put(value)

    def publish_one(self, topic: str, value: bytes) -> None:
        if self._client.using() != topic:
            self._client.use(topic)
        self._client.put(value)

    def consume(self, topic: str, count: int) -> None:
        self._client.watch(topic)
        for _ in range(count):
            assert self._client.reserve().body, "touched"
        # What is reserved and not deleted slows down everything that follows on the same connection.
        self._client.close()
        self._client = self._connected()

    def fetch_ack(self, topic: str, count: int) -> None:
        self._client.watch(topic)
        for _ in range(count):
            self._client.delete(self._client.reserve())

    fetch_ack_each = fetch_ack

    def follow(self, topic: str, heard: Heard) -> None:
        self._client.watch(topic)
        while True:
            job = self._client.reserve()
            self._client.delete(job)
            if not heard(job.body):
                return

    def close(self) -> None:
        self._client.close()


CLIENTS: dict[str, Callable[[int], BrokerContender]] = {
    "redis": Redis,
    "nats": Nats,
    "rabbitmq": RabbitMQ,
    "beanstalkd": Beanstalkd,
}
