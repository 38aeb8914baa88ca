"""Commands and replies as bytes: everything comes back as it was, and what is no command is refused by name."""

import struct

import msgspec
import pytest

from penstock.api import classic, wire
from penstock.api.answers import Answer, LeaseOutcome
from penstock.api.consume import CountReady, Poll
from penstock.api.delays import DelayedMessage, DelayState, FireDelayed, GetDelayed
from penstock.api.error_reply import ErrorReply, rebuilt_error
from penstock.api.fetch import Fetch, FetchReply, Peek, Read, ReadReply, SkippedRange
from penstock.api.groups import Cause, ListRebalances, Passed, Rebalance
from penstock.api.health import Damage, EventKind, Findings, Health, RecoveryEvent, SeeHealth
from penstock.api.leased import LeasedMessages
from penstock.api.members import EndWaiting, PollMember, Standing, StartWaiting
from penstock.api.publish import (
    Acks,
    BatchStored,
    CheckBacklog,
    Guarantee,
    Publish,
    PublishAt,
    PublishBatch,
    PublishEach,
    Published,
    PublishedRun,
    PublishRecords,
    Safety,
)
from penstock.api.receipts import Place
from penstock.api.received import Received
from penstock.api.spans import TailSpans
from penstock.api.topics import (
    CreateTopic,
    DescribeTopic,
    FinishTopics,
    PartitionFacts,
    SweepDue,
    TopicDescription,
)
from penstock.api.transactions import StageRecords
from penstock.broker.handlers import HANDLERS
from penstock.errors import (
    BadRequest,
    Damaged,
    DamagedBatch,
    Fatal,
    Internal,
    NotFound,
    PenstockError,
    Refused,
    TooManyRequests,
    Unavailable,
)
from penstock.model import Message, TopicPartition

from ..server.binary.hostile import Hostile


def joined(pieces):
    return memoryview(b"".join(pieces))


def back(kind, pieces):
    return wire.decode_reply(kind, joined(pieces)).value


def test_every_command_of_the_node_travels_but_those_of_the_driver():
    """Nor do those of an embedded queue, and those into which the Kafka port translates."""
    own = {StartWaiting, EndWaiting, PublishAt, CheckBacklog, FireDelayed, TailSpans}
    own |= {FinishTopics, SweepDue}
    kafka = {one for one in HANDLERS if one.__module__ == classic.__name__} | {
        PublishRecords,
        StageRecords,
    }
    assert {one.kind for one in wire.CALLS.values()} == set(HANDLERS) - own - kafka


@pytest.mark.parametrize("verdict", [{}, [], 1, {"binding": None, "wrong": {}, "count": 0}])
def test_a_client_cannot_say_that_its_messages_were_compared(verdict):
    fields = {"topic": "t", "values": [b"x"], "verdict": verdict}
    packed, name = msgspec.msgpack.encode(fields), b"PublishValues"
    head = struct.pack(">BIBI", 1, 0, len(name), len(packed))
    with pytest.raises(BadRequest):
        wire.decode_command(joined([head, name, packed]))


@pytest.mark.parametrize("name", sorted(wire.CALLS))
def test_every_command_round_trips(name):
    hostile, found, call = Hostile(1, frozenset(wire.CALLS) - {name}), 0, wire.CALLS[name]
    for _ in range(100):
        try:
            asked = wire.decode_command(memoryview(hostile.body()))
        except Refused:
            continue
        found += 1
        written = joined(wire.encode_command(asked.command, asked.acks, 7))
        again = wire.decode_command(written)
        assert (type(again.command), again.acks, again.wait_ms) == (call.kind, asked.acks, 7)
        # Lists and tuples travel alike, so the bytes are compared; but sets have no order.
        is_same = joined(wire.encode_command(again.command, again.acks, again.wait_ms)) == written
        assert is_same or again.command == asked.command
    assert found > 10


def test_a_batch_is_a_view_of_the_request():
    body = joined(wire.encode_command(PublishBatch("orders", 2, b"batch" * 100), Acks.ALL))
    asked = wire.decode_command(body)
    command = asked.command
    assert (asked.acks, asked.wait_ms) == (Acks.ALL, 0)
    assert isinstance(command.batch, memoryview)
    assert command.batch.obj is body.obj
    assert (command.topic, command.partition, bytes(command.batch)) == ("orders", 2, b"batch" * 100)


def test_a_request_that_is_cut_off_anywhere_is_refused():
    body = joined(wire.encode_command(PublishBatch("orders", 2, b"batch")))
    for end in range(len(body)):
        with pytest.raises(BadRequest):
            wire.decode_command(body[:end])
    with pytest.raises(BadRequest):
        wire.decode_command(memoryview(bytes(body) + b"\0"))


def request(name, packed, parts=b"", acks=1):
    return memoryview(struct.pack(">BIBI", acks, 0, len(name), len(packed)) + name + packed + parts)


DEEP = b"\x82\xa4name\xa1a\xa8settings" + b"\x81\xa1a" * 100_000 + b"\xc0"
PACKED = msgspec.msgpack.encode({"topic": "orders", "group": "g"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (request(b"Nothing", PACKED), "no command 'Nothing'"),
        (request(b"StartWaiting", PACKED), "no command"),
        (request(b"CountReady", PACKED, acks=3), "acks"),
        (request(b"CountReady", b"\xc1"), "CountReady"),
        (request(b"CountReady", b"\x80"), "missing required field"),
        (request(b"CountReady", PACKED + b"\x00"), "CountReady"),
        (request(b"CountReady", PACKED, b"\0\0\0\1x"), "has 0 parts, found 1"),
        (request(b"CountReady", PACKED, b"\0\0"), "a part ends"),
        (request(b"CountReady", PACKED, b"\x7f\xff\xff\xff"), "a part ends"),
        (request(b"CreateTopic", DEEP), "CreateTopic"),
        (request(b"DescribeTopic", b"\x81\xa4name\xa2\xff\xff"), "DescribeTopic"),
        (request(b"PublishBatch", b"\x82\xa5topic\xa1a\xa9partition\x00"), "has 1 parts, found 0"),
    ],
)
def test_what_is_no_command_is_refused_by_name(body, said):
    with pytest.raises(BadRequest, match=said):
        wire.decode_command(body)


STANDING = Standing(3, "stable", (TopicPartition("a", 1),), (), 9)
FIRST = Published(1, 40, False, 41)
ERROR = NotFound("topic", "x")
REPLIES = [
    (CountReady, 7),
    (CreateTopic, None),
    (DescribeTopic, TopicDescription("a", (PartitionFacts(0, 1, 2, 1, 99),), {"ttl_ms": -1})),
    (Read, ReadReply([Message(b"v", b"k", [("h", b"x")])], {3: 4}, 1, 0, 1)),
    (Peek, [Received(b"v", 1, 2, 0, 0, Place("a", 0, 1), key=b"k", headers=[])]),
    (Publish, [FIRST, FIRST._replace(offset=50)]),
    (
        ListRebalances,
        {
            "g": [
                Rebalance(1, Cause.JOINED, ("m",), 1, 2, (Passed(TopicPartition("a", 0), "", "m"),))
            ]
        },
    ),
    (
        SeeHealth,
        Health(
            False,
            Findings(
                [RecoveryEvent(EventKind.TAIL_CUT, "p", "r")],
                [],
                [Damage("a", 0, "p", 1, None, 3, "r")],
                1,
            ),
        ),
    ),
]


@pytest.mark.parametrize(("kind", "reply"), REPLIES)
def test_replies_round_trip(kind, reply):
    found = back(kind, wire.encode_reply(kind, reply))
    assert (list(found) if kind is Publish else found) == reply


def test_a_run_of_stored_messages_travels_as_one():
    run = PublishedRun(FIRST, 100_000)
    pieces = wire.encode_reply(PublishBatch, BatchStored(run, 3), Safety(Guarantee.FSYNCED))
    assert len(joined(pieces)) < 40
    reply = wire.decode_reply(PublishBatch, joined(pieces))
    found = reply.value
    assert reply.safety == Safety(Guarantee.FSYNCED, 0)
    assert found.partitions == 3
    assert (len(found.stored), found.stored[-1]) == (100_000, FIRST._replace(offset=100_039))


def test_copies_follow_a_reply_where_earlier_clients_do_not_look():
    alone, copied = Safety(Guarantee.REPLICATED), Safety(Guarantee.REPLICATED, 2)
    short, long = (joined(wire.encode_reply(Publish, [FIRST], one)) for one in (alone, copied))
    assert bytes(long) == bytes(short) + b"\2"
    assert wire.decode_reply(Publish, long).safety == copied


def test_errors_among_outcomes_stay_errors():
    stored, error = back(PublishEach, wire.encode_reply(PublishEach, [FIRST, ERROR]))
    assert stored == FIRST
    assert isinstance(error, NotFound)
    outcome = LeaseOutcome(floor=3, stale=frozenset({1}), retry_in_ms={2: 100})
    done, error = back(Answer, wire.encode_reply(Answer, [outcome, ERROR]))
    assert done == outcome
    assert (error.code, str(error), error.fields) == (ERROR.code, str(ERROR), ERROR.fields)


def test_damage_in_a_delayed_message_stays_an_error():
    damage = DamagedBatch("p", 1, "torn", next_offset=None)
    message = DelayedMessage("a", 0, 1, DelayState.PENDING, 5, b"k", None, damage)
    found = back(GetDelayed, wire.encode_reply(GetDelayed, message))
    assert isinstance(found.damage, Damaged)
    assert str(found.damage) == str(damage)


def test_fetched_batches_are_a_part():
    skipped = (SkippedRange(1, 2, "torn"),)
    reply = FetchReply(memoryview(b"batches"), 3, 9, 0, 10, 77, skipped=skipped)
    found = back(Fetch, wire.encode_fetch_reply(reply))
    assert found == reply


def test_a_poll_brings_parts_and_the_standing():
    found = back(PollMember, wire.encode_leased_reply(b"parts", STANDING))
    assert (bytes(found.parts), found.standing) == (b"parts", STANDING)
    assert back(Poll, wire.encode_leased_reply(b"", None)) == (b"", None)
    assert wire.CALLS[b"Poll"].reply is LeasedMessages


def every_error(kind=PenstockError):
    for one in kind.__subclasses__():
        yield one
        yield from every_error(one)


@pytest.mark.parametrize(
    "error",
    [
        ERROR,
        TooManyRequests("requests", limit=5, retry_after_ms=1500),
        Internal(),
        Fatal("disk"),
        Refused("no", big=1 << 80, nan=float("nan"), many=[1, "a"], odd=object()),
    ],
)
def test_errors_come_back_with_their_facts(error):
    with pytest.raises(type(error)) as found:
        wire.decode_reply(CountReady, memoryview(wire.encode_error(error)))
    assert str(found.value) == str(error)
    assert found.value.code == error.code
    assert found.value.retriable == error.retriable
    assert found.value.fields.keys() == error.fields.keys()
    assert found.value.fields.get("retry_after_ms") == error.fields.get("retry_after_ms")


def test_a_code_that_is_not_known_is_told_by_its_family():
    for is_retriable, family in ((True, Unavailable), (False, Refused)):
        found = rebuilt_error(ErrorReply("NEW", "later", is_retriable))
        assert type(found) is family


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\2\0\0\0\0\0", b"\0\7\0\0\0\0", b"\0\0\0\0\0\7"])
def test_what_is_no_reply_is_refused(body):
    with pytest.raises(BadRequest):
        wire.decode_reply(CountReady, memoryview(body))


def test_a_poll_without_its_part_is_refused():
    body = wire.encode_reply(CountReady, None)
    with pytest.raises(BadRequest):
        wire.decode_reply(Poll, joined(body))
