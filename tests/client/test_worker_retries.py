"""How often a worker tries, in both colours: quick enough for every change."""

from penstock.client import AsyncClient, Client, Reject

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


def test_a_failure_is_logged_with_its_traceback_and_the_dead_letter_says_where(url, caplog):
    def charge(order):
        raise LookupError(f"no customer\nfor {order}")

    def handle(message):
        if message.value == b"spam":
            raise Reject("spam")
        charge(message.value.decode())

    caplog.set_level("INFO", "penstock.client")
    with Client(url) as client:
        made(client, "w-told")
        client.publish_many("w-told", ["spam", "7", "7"])
        with client.worker("w-told", "w4", handle, retries=0):
            until(lambda: len(client.dead_letters("w-told")) == 4)
        letters = [one.last_error for one in client.dead_letters("w-told")]
        assert "spam" in letters
        (told,) = {one for one in letters if "for 7" in one}
        first, *places = told.splitlines()
        assert first == "LookupError: no customer for 7"
        assert [__file__ in one for one in places] == [True, True]
        assert "in charge" in places[-1]
        counts = client.count_dead_letters("w-told", "error")
        assert (first, 2) in [(one["error"], one["count"]) for one in counts]
    levels = [(one.levelname, one.exc_info is not None) for one in caplog.records]
    assert levels[0] == levels[-1] == ("INFO", False)
    assert levels.count(("WARNING", True)) == 3
    assert levels.count(("WARNING", False)) == 1
