"""kill -9 under consume-transform-produce, of our client and of confluent-kafka: every input once in the output."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.client import Client
from penstock.errors import PenstockError
from tests.client.servers import ForkedServer, Server, restartable

pytestmark = pytest.mark.tier("test")
PATIENCE_S = 240.0
PARTITIONS = 2
A_BATCH = 5
FED_A_ROUND = 20
# Of so many kills of the broker one is of the client, too.
KILLS_OF_A_CLIENT = 10


class OursTransformer:
    """Takes from `in-NAME`, publishes to `out-NAME`. `count` is how many transactions it knows to be committed."""

    def __init__(self, name: str, port: int) -> None:
        self.source, self.target, self.port = f"in-{name}", f"out-{name}", port
        self.count, self.is_stopping = 0, Event()
        self.failure: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.is_stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it hangs"
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self.is_stopping.is_set():
                with suppress(PenstockError):
                    self._work()
        except BaseException as error:
            self.failure = error
            raise

    def _work(self) -> None:
        """Until the broker, or the session, is gone."""
        with Client(f"penstock://127.0.0.1:{self.port}") as client:
            producer = client.transactional_producer("ours")
            with client.consumer(self.source, "g", visibility_timeout="2s") as consumer:
                while not self.is_stopping.is_set():
                    batch = consumer.poll(A_BATCH, wait=0.2)
                    if batch:
                        with producer.transaction() as t:
                            t.publish_many(self.target, [one.value for one in batch])
                            t.ack(batch)
                        self.count += 1


class ConfluentTransformer:
    """A process of its own, which ends if librdkafka says that all is lost; now and then it is killed, too."""

    def __init__(self, name: str, port: int) -> None:
        self.source, self.target, self.port = f"in-{name}", f"out-{name}", port
        self._process: subprocess.Popen[str] | None = None
        self.count = 0

    def begin(self) -> None:
        command = [sys.executable, "-m", "tests.kafka.confluent_transformer", str(self.port)]
        self._process = process = subprocess.Popen(
            [*command, self.source, self.target, str(PARTITIONS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )

        def follow() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for _ in lines:
                    self.count += 1

        self._follower = Thread(target=follow, daemon=True)
        self._follower.start()

    def stop(self) -> None:
        assert self._process is not None, "it was begun"
        self._process.kill()
        self._process.wait()
        self._follower.join(PATIENCE_S)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, f"it took too long: {what}"
        time.sleep(0.01)


def have_all_moved(
    workers: Sequence[OursTransformer | ConfluentTransformer], counts: Sequence[int]
) -> bool:
    return all(one.count > count for one, count in zip(workers, counts, strict=True))


def test_every_input_is_once_in_the_output(tmp_path: Path, effort) -> None:
    with restartable(tmp_path / "data", kind=ForkedServer) as server:
        kill_often(server, effort(check=4, test=20, torture=500))


def kill_often(server: Server, kills: int) -> None:
    chance, fed = random.Random(7), 0
    confluent = ConfluentTransformer("confluent", server.port)
    workers = [OursTransformer("ours", server.port), confluent]

    def feed() -> None:
        nonlocal fed
        values = [b"%d" % number for number in range(fed, fed + FED_A_ROUND)]
        with Client(server.url) as client:
            for one in workers:
                client.publish_many(one.source, values)
        fed += FED_A_ROUND

    def lag() -> int:
        with Client(server.url) as client:
            return sum(client.lag(group).total for group in ("g", "k"))

    with Client(server.url) as client:
        for one in workers:
            # A kill costs what is leased an attempt, and a dead letter is not in the output.
            client.create_topic(one.source, partitions=PARTITIONS, max_retries=1000)
            client.create_topic(one.target, partitions=1)
    try:
        for one in workers:
            one.begin()
        for number in range(kills):
            counts = [one.count for one in workers]
            feed()
            wait_until(partial(have_all_moved, workers, counts), "a transaction of each")
            # Anywhere in what they are doing now.
            time.sleep(chance.random() * 0.03)
            server.kill()
            if number % KILLS_OF_A_CLIENT == 0:
                confluent.stop()
                confluent.begin()
            server.start()
        feed()
        wait_until(lambda: lag() == 0, "the rest")
    finally:
        for one in workers:
            one.stop()
    expected = Counter(b"%d" % number for number in range(fed))
    with Client(server.url) as client:
        for one in workers:
            assert Counter(message.value for _, message in client.read(one.target)) == expected
