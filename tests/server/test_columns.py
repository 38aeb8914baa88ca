"""Answers in columns through the app: each lease on its own, and nothing that a caller may not reach."""

from functools import partial

import pytest

from penstock.api.answers import Kind, LeaseAnswer
from penstock.api.principals import Role
from penstock.codec.leased import decode_leased
from penstock.server import leased_parts
from penstock.server.http import consume, members
from tests.api.answer_bytes import encode_answers

from .rigs import in_process

BATCH = {"content-type": "application/vnd.penstock.batch"}
ACCEPT = {"accept": "application/vnd.penstock.batch"}


async def polled(broker, query="", topic="orders"):
    reply = await broker.call("GET", f"/topics/{topic}/messages?group=g{query}", headers=ACCEPT)
    assert reply.status == 200, reply.body
    return [part.lent for part in decode_leased(reply.body)]


async def answered(broker, *answers, headers=None):
    body = encode_answers(answers)
    reply = await broker.call(
        "POST", "/messages/answers", body, headers={**BATCH, **(headers or {})}
    )
    assert reply.status == 200, reply.body
    return reply.json


def on(lent, kind, offsets, **more):
    place = lent.topic, lent.partition, lent.group, lent.lease
    return LeaseAnswer(kind, *place, offsets, **more)


async def test_each_kind_of_answer_counts(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=5)
        await broker.publish(*"012345")
        (lent,) = await polled(broker)
        done = await answered(
            broker,
            on(lent, Kind.ACK, [0]),
            on(lent, Kind.NACK, [1], reason="bad", ms=0),
            on(lent, Kind.REJECT, [2], reason="worse"),
            on(lent, Kind.EXTEND, [3], ms=3_600_000),
            on(lent, Kind.RELEASE, [4]),
        )
        assert done == {"answered": 5, "failed": []}
        again = {one.offsets[0]: one for one in await polled(broker, "&max=1")}
        again |= {one.offsets[0]: one for one in await polled(broker, "&max=1")}
        assert {offset: one.attempts for offset, one in again.items()} == {1: 2, 4: 1}
        assert again[1].errors == {1: "bad"}
        broker.clock.advance("31s")  # Only what was extended is still lent.
        (held,) = (await broker.call("GET", "/groups/g/inflight")).json["in_flight"]
        assert held["offset"] == 3
        broker.settle()
        (letter,) = (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"]
        assert (letter["originalOffset"], letter["lastError"]) == (2, "worse")


async def test_what_is_not_lent_is_listed_and_the_rest_is_done(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish(*"012")
        (lent,) = await polled(broker)
        assert (await answered(broker, on(lent, Kind.ACK, [0])))["answered"] == 1
        done = await answered(
            broker,
            on(lent, Kind.ACK, [0, 1, 99]),
            LeaseAnswer(Kind.ACK, "orders", 7, 1, 1, [0]),
            LeaseAnswer(Kind.ACK, "nowhere", 0, 1, 1, [0]),
            LeaseAnswer(Kind.ACK, "orders", 0, 9999, 1, [2]),
            on(lent, Kind.NACK, [0]),
            on(lent, Kind.EXTEND, [2], ms=0),
            on(lent, Kind.ACK, [-1]),
        )
        assert done["answered"] == 2
        found = [(one["topic"], one["offset"], one["error"]) for one in done["failed"]]
        assert found == [
            ("orders", 99, "NOT_FOUND"),
            ("orders", 0, "NOT_FOUND"),
            ("nowhere", 0, "NOT_FOUND"),
            ("orders", 2, "STALE_RECEIPT"),
            ("orders", 0, "STALE_RECEIPT"),
            ("orders", 2, "INVALID_ARGUMENT"),
            ("orders", -1, "INVALID_ARGUMENT"),
        ]
        assert {one["status"] for one in done["failed"]} == {400, 404, 409}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"PAN1\x91", BATCH, 400),
        (b"garbage", BATCH, 400),
        (b"", BATCH, 400),
        (b"{}", {"content-type": "application/json"}, 400),
        (b"PAN1\x90", {"content-type": "text/plain"}, 415),
        (encode_answers([LeaseAnswer(Kind.NACK, "t", 0, 1, 1, [0], "x" * 5000)]), BATCH, 413),
    ],
)
async def test_what_is_no_answer_is_refused(tmp_path, body, headers, status):
    async with in_process(tmp_path) as broker:
        reply = await broker.call("POST", "/messages/answers", body, headers=headers)
        assert reply.status == status, reply.body


async def test_a_key_answers_for_its_own_topics_only(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        admin = broker.key("root", Role.ADMIN).text
        theirs = broker.key("theirs", Role.CONSUMER, "invoices").text
        as_admin = {"authorization": f"Bearer {admin}"}
        topic = {"name": "orders", "num_partitions": 1}
        await broker.call("POST", "/topics", topic, headers=as_admin)
        body = encode_answers([LeaseAnswer(Kind.ACK, "orders", 0, 1, 1, [0])])
        for key, status in ((theirs, 403), (admin, 200)):
            headers = {**BATCH, "authorization": f"Bearer {key}"}
            reply = await broker.call("POST", "/messages/answers", body, headers=headers)
            assert reply.status == status, reply.body


async def test_an_answer_has_a_size_and_the_rest_goes_back(tmp_path):
    """Six messages of 4 MiB: four fit, and the others are ready for somebody else, as if they had never left."""
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for _ in range(6):
            await broker.publish("x" * (4 << 20))
        first = await polled(broker, "&owner=a&request_id=one")
        assert [one for lent in first for one in lent.offsets] == [0, 1, 2, 3]
        again = await polled(broker, "&owner=a&request_id=one")
        assert again == first
        rest = await polled(broker, "&owner=b")
        assert [one for lent in rest for one in lent.offsets] == [4, 5]
        assert {lent.attempts for lent in rest} == {1}


async def test_what_of_one_batch_does_not_fit_goes_back_too(tmp_path, monkeypatch):
    """One batch is always opened whole: three of its messages fit into an answer, two and one into its parts."""
    monkeypatch.setattr(consume, "fitting", partial(leased_parts.fitting, bytes_max=9000))
    monkeypatch.setattr(leased_parts, "_PART_BYTES", 6000)
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish(*[str(one) * 3000 for one in range(5)])
        assert [lent.offsets for lent in await polled(broker, "&owner=a")] == [[0, 1], [2]]
        (held,) = await polled(broker, "&owner=b&max=1")
        assert (held.offsets, held.attempts) == ([3], 1)


async def test_a_shared_join_finds_out_that_the_group_is_assigned(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        wish = {"topics": ["orders"]}
        assert (await broker.call("POST", "/groups/g/join", wish)).status == 200
        shared = {**wish, "mode": "shared"}
        reply = await broker.call("POST", "/groups/g/join", shared)
        assert (reply.status, reply.json["error"]) == (409, "MODE_CONFLICT")


@pytest.mark.parametrize("is_member", [False, True])
async def test_no_more_is_lent_than_fits_into_an_answer(tmp_path, monkeypatch, is_member):
    monkeypatch.setattr(consume, "POLL_BYTES_MAX", 10_000)
    monkeypatch.setattr(members, "POLL_BYTES_MAX", 10_000)
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for one in range(8):
            await broker.publish(str(one) * 3000)
        if is_member:
            joined = await broker.call("POST", "/groups/g/join", {"topics": ["orders"]})
            target = f"/groups/g/poll?member_id={joined.json['member_id']}&max_messages=8"
            reply = await broker.call("GET", target, headers=ACCEPT)
            assert reply.status == 200, reply.body
            lent = [part.lent for part in decode_leased(reply.body)]
        else:
            lent = await polled(broker, "&max=8")
        assert [offset for one in lent for offset in one.offsets] == [0, 1, 2]
        held = (await broker.call("GET", "/groups/g/inflight")).json["in_flight"]
        assert [one["offset"] for one in held] == [0, 1, 2]
