"""Members whose connection breaks: they go on by another one, as the members that they are."""

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.server.kafka.schema import REQUESTS
from tests.kafka.brokers import KafkaAddress
from tests.kafka.client_wire import decode_response, encode_request
from tests.kafka.librdkafka import make_topic, produce, producer
from tests.kafka.test_hostile import answered, frame

pytestmark = pytest.mark.tier("test")
CLASSIC_JOIN, CLASSIC_HEARTBEAT, CLASSIC_SYNC = 11, 12, 14
HEARTBEAT, SHARE_HEARTBEAT, SHARE_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 68, 76, 77, 78, 79
UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, SHARE_SESSION_NOT_FOUND, INVALID_RECORD_STATE = (
    25,
    69,
    122,
    121,
)


class Wire:
    """One connection of a member."""

    def __init__(self, broker: KafkaAddress) -> None:
        self._stream = socket.create_connection((broker.host, broker.port), timeout=120)

    def ask(self, key: int, version: int, **values: Any) -> dict[str, Any]:
        self.begin(key, version, **values)
        return self.answer(key, version)

    def begin(self, key: int, version: int, **values: Any) -> None:
        body = encode_request(key, version, values)
        self._stream.sendall(frame(key, version, body))

    def answer(self, key: int, version: int) -> dict[str, Any]:
        answer = answered(self._stream)
        assert answer, "the broker ended the connection"
        skipped = 5 if version >= REQUESTS[key].flexible else 4
        return decode_response(key, version, answer[skipped:])

    def cut(self) -> None:
        """End it as a network does: without a word to the broker about the member."""
        linger = struct.pack("ii", 1, 0)
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._stream.close()

    def close(self) -> None:
        self._stream.close()


@pytest.fixture
def connect(broker: KafkaAddress) -> Iterator[Callable[[], Wire]]:
    """Makes connections, all of which end with the test."""
    wires: list[Wire] = []

    def made() -> Wire:
        wires.append(Wire(broker))
        return wires[-1]

    yield made
    for one in wires:
        one.close()


def share_heartbeat(wire: Wire, epoch: int, topics: list[str] | None, member: str = "m") -> Any:
    return wire.ask(
        SHARE_HEARTBEAT,
        1,
        group_id="share",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=topics,
    )


def share_fetch(wire: Wire, epoch: int, topic_id: bytes, **more: Any) -> Any:
    part = {"partition_index": 0, "acknowledgement_batches": []}
    return wire.ask(
        SHARE_FETCH,
        1,
        group_id="share",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=2000,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=more.get("max_records", 2),
        batch_size=100,
        topics=[{"topic_id": topic_id, "partitions": [part]}] if more.get("is_full", True) else [],
        forgotten_topics_data=[],
    )


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (one["first_offset"], one["last_offset"], one["delivery_count"])
        for topic in answer["responses"]
        for part in topic["partitions"]
        for one in part["acquired_records"]
    ]


def acknowledge(wire: Wire, epoch: int, topic_id: bytes, first: int, last: int) -> Any:
    batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [1]}
    part = {"partition_index": 0, "acknowledgement_batches": [batch]}
    return wire.ask(
        SHARE_ACKNOWLEDGE,
        1,
        group_id="share",
        member_id="m",
        share_session_epoch=epoch,
        topics=[{"topic_id": topic_id, "partitions": [part]}],
    )


def described(wire: Wire, group: str) -> Any:
    (found,) = wire.ask(SHARE_DESCRIBE, 1, group_ids=[group], include_authorized_operations=False)[
        "groups"
    ]
    return found


def test_a_share_member_goes_on_by_another_connection(
    broker: KafkaAddress, admin: AdminClient, connect: Callable[[], Wire]
) -> None:
    make_topic(admin, "share-cut")
    produce(producer(broker), "share-cut", [b"%d" % number for number in range(4)])
    first = connect()
    joined = share_heartbeat(first, 0, ["share-cut"])
    (assigned,) = joined["assignment"]["topic_partitions"]
    topic_id = assigned["topic_id"]
    assert acquired(share_fetch(first, 0, topic_id)) == [(0, 1, 1)]
    first.cut()
    second = connect()
    # It says nothing of its topics, because these have not changed.
    again = share_heartbeat(second, joined["member_epoch"], None)
    assert again["assignment"] == joined["assignment"]
    answer = acknowledge(second, 1, topic_id, 0, 1)
    assert answer["responses"][0]["partitions"][0]["error_code"] == 0
    assert acquired(share_fetch(second, 2, topic_id, is_full=False)) == [(2, 3, 1)]
    # A session that begins anew gives back what the one before held, uncounted.
    assert acquired(share_fetch(second, 0, topic_id)) == [(2, 3, 1)]
    share_heartbeat(second, -1, None)
    assert share_fetch(second, 3, topic_id)["error_code"] == SHARE_SESSION_NOT_FOUND
    assert share_heartbeat(second, 1, None)["error_code"] == UNKNOWN_MEMBER_ID


def test_share_groups_are_described(
    broker: KafkaAddress, admin: AdminClient, connect: Callable[[], Wire]
) -> None:
    make_topic(admin, "share-told", 2)
    produce(producer(broker), "share-told", [b"a"])
    wire = connect()
    assert described(wire, "unknown")["error_code"] == GROUP_ID_NOT_FOUND
    share_heartbeat(wire, 0, ["share-told"], member="told")
    found = described(wire, "share")
    (member,) = [one for one in found["members"] if one["member_id"] == "told"]
    (assigned,) = member["assignment"]["topic_partitions"]
    assert (found["error_code"], found["group_state"]) == (0, "Stable")
    assert (assigned["topic_name"], assigned["partitions"]) == ("share-told", [0, 1])
    assert member["subscribed_topic_names"] == ["share-told"]
    assert member["client_host"] == "/127.0.0.1"


def test_a_member_of_an_assigned_group_goes_on_by_another_connection(
    broker: KafkaAddress, admin: AdminClient, connect: Callable[[], Wire]
) -> None:
    make_topic(admin, "kip848-cut", 3)
    asked = {"group_id": "assigned", "member_id": "m", "rebalance_timeout_ms": 5000}
    first = connect()
    joined = first.ask(
        HEARTBEAT,
        1,
        **asked,
        member_epoch=0,
        subscribed_topic_names=["kip848-cut"],
        topic_partitions=[],
    )
    first.cut()
    second = connect()
    again = second.ask(HEARTBEAT, 1, **asked, member_epoch=joined["member_epoch"])
    assert (again["error_code"], again["member_epoch"]) == (0, joined["member_epoch"])
    # The assignment is as it was, so it need not be told again.
    assert again["assignment"] is None or again["assignment"] == joined["assignment"]


def test_a_member_of_a_classic_group_goes_on_by_another_connection(
    broker: KafkaAddress, admin: AdminClient, connect: Callable[[], Wire]
) -> None:
    make_topic(admin, "classic-cut")
    first = connect()
    asked: dict[str, Any] = {
        "group_id": "classic",
        "session_timeout_ms": 120_000,
        "rebalance_timeout_ms": 120_000,
        "protocol_type": "test",
        "protocols": [{"name": "p", "metadata": b"x"}],
    }
    member = first.ask(CLASSIC_JOIN, 5, **asked, member_id="")["member_id"]
    first.cut()
    second = connect()
    joined = second.ask(CLASSIC_JOIN, 5, **asked, member_id=member)
    assert (joined["error_code"], joined["member_id"]) == (0, member)
    second.cut()
    third = connect()
    named = {
        "group_id": "classic",
        "member_id": member,
        "generation_id": joined["generation_id"],
    }
    assignments = [{"member_id": member, "assignment": b"all"}]
    assert third.ask(CLASSIC_SYNC, 3, **named, assignments=assignments)["assignment"] == b"all"
    assert third.ask(CLASSIC_HEARTBEAT, 3, **named)["error_code"] == 0
