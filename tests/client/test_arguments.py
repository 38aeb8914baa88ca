"""Wrong arguments: a program gets an error that names the argument, before anything is sent."""

import asyncio
import inspect
from datetime import UTC, datetime
from enum import Enum
from functools import partial

import numpy as np
import pytest

from penstock import Broker, Message
from penstock.api.arguments import partition_number
from penstock.client import (
    AsyncClient,
    Client,
    ClientSettings,
    Letters,
    Outgoing,
    Retry,
    RetryPolicy,
)
from penstock.client.commands import name_of
from penstock.client.consumer_options import ConsumerSettings
from penstock.client.dead_letters import Redrive, redrive_command
from penstock.client.membership import Membership, join
from penstock.errors import PenstockError, Refused

WRONG = (
    None,
    "x",
    "\ud800",
    -1,
    10**30,
    1.5,
    True,
    [],
    {},
    b"\xff",
    float("nan"),
    float("inf"),
    object(),
)
# Enough that a call is made; every other argument is wrong in its turn.
RIGHT = {
    "name": "orders",
    "topic": "orders",
    "group": "billing",
    "config": {},
    "total": 1,
    "value": b"",
    "messages": [b""],
    "partition": 0,
    "batch": b"",
    "held": "orders:0:0:1:1.1",
    "timeout": 1,
    "receipts": [],
    "offsets": {"orders": {0: 0}},
    "to": "earliest",
    "offset": 0,
    "subject": "orders-value",
    "schema": '"int"',
    "content": b"{}",
    "trace_id": "ab" * 16,
    "key": "nightly",
    "sequence": 1,
    "message": Message(b"{}"),
    "writer": "writer",
    "handles": [],
}
SCHEDULE = (
    "cron",
    "every",
    "timezone",
    "missed",
    "paused",
    "json",
    "message_key",
    "headers",
    "priority",
    "ttl",
)
OPTIONS = {
    "create_schedule": (*SCHEDULE, "partition"),
    "change_schedule": (*SCHEDULE, "value"),
    "publish": ("key", "headers", "priority", "ttl", "idempotency_key", "delay", "deliver_at"),
    "fetch": ("offset", "from_time", "limit", "max_bytes"),
    "fetches": ("offset", "from_time", "limit", "max_bytes"),
}
OTHERS = {
    "execute",
    "close",
    "producer",
    "consumer",
    "transactional_producer",
    "staging",
    "worker",
}
METHODS = sorted(
    name
    for name, one in inspect.getmembers(Client, inspect.isfunction)
    if not name.startswith("_") and name not in OTHERS
)
LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
# No server listens there, which is known at once.
SETTINGS = ClientSettings(retry=RetryPolicy(retries=0))


def wrong_calls(client, name):
    method = getattr(client, name)
    taken = inspect.signature(method).parameters
    right = {
        one: RIGHT[one] for one, how in taken.items() if one in RIGHT and how.default is how.empty
    }
    for one in {*taken, *OPTIONS.get(name, ())} - {"options"}:
        for wrong in WRONG:
            given = {**right, one: wrong}
            placed = [
                given.pop(name) for name, how in taken.items() if how.kind is how.POSITIONAL_ONLY
            ]
            yield partial(method, *placed, **given)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_raises_only_what_is_documented(name):
    with Client("penstock://127.0.0.1:1", settings=SETTINGS) as client:
        for call in wrong_calls(client, name):
            try:
                made = call()
                list(made) if inspect.isgenerator(made) else made
            except PenstockError:
                pass


def test_every_asynchronous_method_raises_only_what_is_documented():
    async def body():
        async with AsyncClient("penstock://127.0.0.1:1", settings=SETTINGS) as client:
            for name in METHODS:
                for call in wrong_calls(client, name):
                    try:
                        made = call()
                        await (anext(made) if inspect.isasyncgen(made) else made)
                    except PenstockError:
                        pass

    asyncio.run(body())


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda one, wrong: one.producer("orders", linger_ms=wrong), "linger_ms"),
        (lambda one, wrong: one.producer("orders", delivery_timeout_s=wrong), "delivery_timeout_s"),
        (lambda one, wrong: one.producer("orders", buffer_bytes_max=wrong), "buffer_bytes_max"),
        (lambda one, wrong: one.producer("orders", on_delivery=wrong), "on_delivery"),
        (lambda one, wrong: one.producer("orders", is_idempotent=wrong), "is_idempotent"),
        (lambda one, wrong: one.consumer("orders", wrong), "the name of a group"),
        (lambda one, wrong: one.consumer("orders", "billing", max_poll=wrong), "max_poll"),
        (lambda one, wrong: one.consumer("orders", "billing", patience=wrong), "patience"),
        (lambda one, wrong: one.consumer("orders", "billing", on_revoked=wrong), "on_revoked"),
        (lambda one, wrong: one.transactional_producer(wrong), "the name of a producer"),
        (lambda one, wrong: one.staging("daily", wrong, "writer"), "sequence"),
        (lambda one, wrong: one.worker("orders", "billing", wrong), "handler"),
        (
            lambda one, wrong: one.worker("orders", "billing", print, concurrency=wrong),
            "concurrency",
        ),
        (lambda one, wrong: one.worker("orders", "billing", print, grace=wrong), "grace"),
        (lambda one, wrong: Client(wrong), "an address"),
        (lambda one, wrong: Client(one.url, settings=wrong), "settings"),
        (lambda one, wrong: ClientSettings(timeout_s=wrong), "timeout_s"),
        (lambda one, wrong: RetryPolicy(retries=wrong), "retries"),
    ],
)
def test_what_works_for_longer_is_checked_when_it_is_made(make, named):
    with Client("penstock://127.0.0.1:1", settings=SETTINGS) as client:
        for wrong in ([1], {}, object(), b"\xff"):
            with pytest.raises(Refused, match=named):
                make(client, wrong)


def test_a_coroutine_function_is_no_handler_of_a_blocking_worker():
    async def handle(message):
        """Acked without ever having run, if it were taken."""

    class Packer:
        async def __call__(self, message):
            pass

    async def body():
        async with AsyncClient("penstock://127.0.0.1:1") as client:
            client.worker("orders", "billing", handle)
            with pytest.raises(Refused, match="on_delivery is a plain function"):
                client.producer("orders", on_delivery=handle)

    with Client("penstock://127.0.0.1:1") as client:
        for one in (handle, Packer()):
            with pytest.raises(Refused, match="not be awaited"):
                client.worker("orders", "billing", one)
        with pytest.raises(Refused, match="on_lost is a plain function"):
            client.consumer("orders", "billing", on_lost=handle)
    asyncio.run(body())


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Client(context=5), "context is text"),
        (lambda: Client("penstock://127.0.0.1:0"), "port 0"),
        (
            lambda: Client("penstock://127.0.0.1:1").create_topic("orders", partitions=10_001),
            "in 1..10000, got 10001",
        ),
        (lambda: Client(f"penstock://{'a' * 64}:9092"), "1 to 63 letters"),
        (lambda: Client("penstock://a..b:9092"), "1 to 63 letters"),
        (lambda: ClientSettings(ca_file="a\0b").tls_context(), "ca_file"),
        (lambda: redrive_command("orders", Redrive(edit={5: 1, "x": 2})), "edit"),
        (lambda: Letters(offsets=[1]).selection(), "offsets are pairs .* not 1"),
        (lambda: Letters(offsets=[(0, 1, 2)]).selection(), "offsets are pairs"),
        (lambda: Letters(offsets=["ab"]).selection(), "offsets are pairs"),
        (lambda: Letters(offsets=5).selection(), "offsets are several"),
        (lambda: Retry("later", delay="400d"), "delay must be in"),
        (lambda: join_command(start=LONG_AGO), "start is outside"),
        (lambda: join_command(order=["strict"]), "order must be one of relaxed, strict"),
        (lambda: join_command(assignor=["range"]), "assignor must be one of"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(make, named):
    with pytest.raises(Refused, match=named):
        make()


@pytest.mark.parametrize("wrong", [LONG_AGO, datetime(1, 1, 1), -1, None, "soon"])  # noqa: DTZ001 - without a zone
def test_a_place_that_is_none_is_refused_by_the_name_of_its_argument(url, wrong):
    with Client(url) as client:
        client.create_topic("places", exist_ok=True, partitions=1)
        client.publish("places", b"")
        with pytest.raises(Refused, match=r"^start"):
            list(client.read("places", start=wrong))
        if wrong is not None:
            with pytest.raises(Refused, match=r"^until"):
                list(client.read("places", until=wrong))
        with pytest.raises(Refused, match=r"^start"):
            client.poll("places", "billing", start=wrong)
        with pytest.raises(Refused, match=r"^to"):
            client.reset("billing", wrong)


def join_command(**options):
    settings = ConsumerSettings(mode="assigned", **options)
    return join(Membership("billing", "ann"), ["orders"], settings, is_rejoin=False)


def test_an_outgoing_takes_no_more_options():
    """They would be dropped: a message for later would come at once."""
    with Client("penstock://127.0.0.1:1") as client:
        for option in ({"key": b"ann"}, {"delay": "1h"}, {"json": {}}):
            with pytest.raises(Refused, match=f"it came with {next(iter(option))}="):
                client.publish("orders", Outgoing(b"lamp"), **option)


@pytest.mark.parametrize("wrong", ["abc", b"abc", None, 7])
def test_the_letters_of_a_text_are_no_messages(wrong):
    with (
        Client("penstock://127.0.0.1:1") as client,
        pytest.raises(Refused, match="messages are several"),
    ):
        client.publish_many("orders", wrong)


def test_a_group_that_is_none_is_not_made():
    with Client("penstock://127.0.0.1:1") as client:
        for call in (
            lambda: client.poll("orders", None),
            lambda: client.commit(None, {}),
            lambda: client.reset(7, "earliest"),
            lambda: client.lanes(7),
        ):
            with pytest.raises(Refused, match="the name of a group is text"):
                call()


def test_a_word_is_no_yes():
    with Client("penstock://127.0.0.1:1") as client:
        for option in ({"force": "no"}, {"dry_run": ""}):
            with pytest.raises(Refused, match=next(iter(option))):
                client.reset("billing", "earliest", **option)


class Names(str, Enum):  # noqa: UP042 - a StrEnum is no trap
    """Programs keep the names of their topics together like this."""

    ORDERS = "orders/1"


def test_an_enum_is_the_text_that_it_stands_for():
    assert name_of("topic", Names.ORDERS) == "orders/1"
    assert type(name_of("topic", Names.ORDERS)) is str


def test_the_numbers_of_numpy_are_partitions_too():
    for one in (1, np.int64(1), np.uint8(1)):
        assert partition_number(one) == 1
    for wrong in (True, 1.0, np.float64(1), None, b"1"):
        with pytest.raises(Refused, match="partitions and offsets are whole numbers"):
            partition_number(wrong)


@pytest.mark.parametrize(
    "name",
    ["dead_letters", "redrive", "discard", "delayed_get", "cancel_delayed", "reschedule", "reset"],
)
def test_the_embedded_broker_is_asked_in_the_same_words(name):
    """A program that moves from one to the other keeps its calls."""
    ours = inspect.signature(getattr(Client, name)).parameters
    theirs = inspect.signature(getattr(Broker, name)).parameters
    assert {one: ours[one].kind for one in theirs} == {one: how.kind for one, how in theirs.items()}
    if name in {"redrive", "discard"}:
        assert {one: ours[one].annotation for one in theirs} == {
            one: how.annotation for one, how in theirs.items()
        }
