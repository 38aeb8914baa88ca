"""The binary port as a client on a bare socket sees it: commands, waits, cancels, errors."""

import subprocess
import sys
import time

import pytest

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.consume import Poll
from penstock.api.fetch import Fetch, Read
from penstock.api.frames import COMMAND, request_frame
from penstock.api.groups import DescribeLag, Mode
from penstock.api.members import Heartbeat, JoinGroup, LeaveGroup, PollMember
from penstock.api.publish import (
    Acks,
    Guarantee,
    Publish,
    PublishBatch,
    PublishEach,
    PublishValues,
    Safety,
)
from penstock.api.start import Start
from penstock.api.topics import CreateTopic, DeleteTopic, DescribeTopic
from penstock.api.transactions import (
    EndTransaction,
    InitProducer,
    ListTransactions,
    Placed,
    StageBatch,
    Staged,
)
from penstock.codec import Columns, Marks, batches_in, encode
from penstock.codec.leased import decode_leased
from penstock.errors import (
    AlreadyExists,
    BadRequest,
    Cancelled,
    MalformedBatch,
    NotFound,
    TooLarge,
    TransactionEnded,
    UnknownMember,
)
from penstock.model import Message
from tests.stalls import despite_stalls

from ..rigs import served
from .raw_client import connected


def batch(*values):
    return b"".join(encode(Columns(values=list(values), timestamps=1)).pieces())


def leased(reply):
    """Offsets by the lease that holds them."""
    return [(one.lent, list(one.lent.offsets)) for one in decode_leased(reply.parts)]


def test_hello_says_what_a_client_has_to_know(client, binary_broker):
    said = client.hello()
    assert said.http == binary_broker.address
    assert said.node_id == 1
    assert said.limits.frame_bytes_max == 32 << 20
    assert said.data_dir == str(binary_broker.data)


def test_publish_poll_ack_and_fetch(client, topic):
    stored, partitions = client.call(PublishBatch(topic, 0, batch(b"a", b"b", b"c")))
    assert (partitions, [one.offset for one in stored]) == (1, [0, 1, 2])
    ((lease, offsets),) = leased(client.call(Poll(topic, "g", "m", 10)))
    assert offsets == [0, 1, 2]
    answer = LeaseAnswer(Kind.ACK, topic, 0, lease.group, lease.lease, offsets)
    (outcome,) = client.call(Answer([answer]))
    assert outcome.floor == 3
    assert client.call(DescribeLag("g", topic=topic)).partitions[0].lag == 0
    found = client.call(Fetch(topic, 0))
    assert found.next_offset == 3
    assert [head.message_count for head, _ in batches_in(found.data, seed=found.seed)] == [3]
    assert [one.value for one in client.call(Read(topic, 0)).messages] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("acks", "guarantee"),
    [
        (Acks.NONE, Guarantee.BUFFERED),
        (Acks.LEADER, Guarantee.BUFFERED),
        (Acks.ALL, Guarantee.FSYNCED),
    ],
)
def test_acks_say_what_a_publish_waits_for(client, topic, acks, guarantee):
    number = client.begin(PublishValues(topic, [b"a"]), acks=acks)
    assert client.outcome(number).safety == Safety(guarantee, 0)


def test_many_requests_in_flight_are_all_answered(client, topic):
    numbers = [
        client.begin(PublishValues(topic, [b"%d" % one]), acks=Acks.ALL if one % 3 else Acks.LEADER)
        for one in range(3000)
    ]
    found = {client.value(number)[0].offset for number in numbers}
    assert found == set(range(3000))


def test_a_poll_waits_and_is_overtaken(client, topic, binary_broker):
    waiting = client.begin(Poll(topic, "g", "m", 10), wait_ms=60_000)
    assert client.call(DescribeTopic(topic)).name == topic
    with connected(binary_broker.binary_port) as other:
        other.call(Publish(topic, [Message(b"v", b"k")]))
    ((_, offsets),) = leased(client.value(waiting))
    assert offsets == [0]


def test_a_poll_that_finds_nothing_ends_in_time(client, topic):
    began = time.monotonic()
    assert not client.call(Poll(topic, "g", "m", 10), wait_ms=200).parts
    assert time.monotonic() - began > 0.15


def test_a_read_at_the_end_waits_for_the_next_message(client, topic):
    waiting = [
        client.begin(Fetch(topic, 0, Start.at_offset(0)), wait_ms=60_000),
        client.begin(Read(topic, 0, Start.at_offset(0)), wait_ms=60_000),
    ]
    client.call(PublishValues(topic, [b"a"]))
    assert [client.value(number).next_offset for number in waiting] == [1, 1]


def test_a_wait_ends_when_the_topic_is_deleted(client, topic):
    waiting = client.begin(Poll(topic, "g", "m", 10), wait_ms=60_000)
    reading = client.begin(Fetch(topic, 0, Start.at_offset(0)), wait_ms=60_000)
    client.call(DeleteTopic(topic))
    for number in (waiting, reading):
        with pytest.raises(NotFound):
            client.value(number)


def test_a_member_polls_and_hears_how_it_stands(client, topic):
    topic = f"{topic}-of-two"
    client.call(CreateTopic(topic, 2))
    joined = client.call(JoinGroup("team", "", (topic,)))
    client.call(PublishValues(topic, [b"a"]))
    reply = client.call(PollMember("team", joined.member, 10), wait_ms=60_000)
    assert reply.standing.generation == joined.standing.generation
    assert [offsets for _, offsets in leased(reply)] == [[0]]
    waiting = client.begin(
        PollMember("team", joined.member, 10, changes=reply.standing.changes), wait_ms=60_000
    )
    client.call(JoinGroup("team", "other", (topic,)))
    assert client.value(waiting).standing.changes != reply.standing.changes


def test_members_of_a_shared_group_join_poll_and_leave(client, topic, binary_broker):
    """Of one topic, which is waited for without a task, or of several."""
    other = f"{topic}-other"
    client.call(CreateTopic(other, 1))
    for topics in ((topic,), (topic, other)):
        name = client.call(JoinGroup("pool", "m", topics, mode=Mode.SHARED)).member
        assert name == "m"
        assert client.call(Heartbeat("pool", name)).assigned == ()
        waiting = client.begin(PollMember("pool", name, 10), wait_ms=60_000)
        with connected(binary_broker.binary_port) as producer:
            producer.call(PublishValues(topics[-1], [b"a"]))
        ((lease, offsets),) = leased(client.value(waiting))
        assert (lease.topic, offsets) == (topics[-1], [0])
        held = client.begin(PollMember("pool", name, 10), wait_ms=60_000)
        assert client.cancel(held)
        client.call(LeaveGroup("pool", name))
        with pytest.raises(UnknownMember):
            client.call(Heartbeat("pool", name))
        ((_, offsets),) = leased(client.call(Poll(topics[-1], "pool", "n", 10)))
        assert offsets == [0]


def test_a_shared_member_that_is_not_heard_of_is_missed(client, topic, binary_broker):
    client.call(PublishValues(topic, [b"a"]))

    def story(session_s):
        group = f"crowd-{session_s}"
        joins = JoinGroup(group, "gone", (topic,), mode=Mode.SHARED, session_ms=1000 * session_s)
        with connected(binary_broker.binary_port) as gone:
            gone.call(joins)
            assert gone.call(PollMember(group, "gone", 10)).parts
        ((_, offsets),) = leased(client.call(Poll(topic, group, "n", 10), wait_ms=60_000))
        assert offsets == [0]

    despite_stalls(story, (1, 10, 30))


def test_cancel_ends_a_wait_and_gives_nothing_away(client, topic):
    waiting = client.begin(Poll(topic, "g", "m", 10), wait_ms=60_000)
    assert client.cancel(waiting)
    with pytest.raises(Cancelled):
        client.value(waiting)
    assert not client.cancel(waiting)
    client.call(PublishValues(topic, [b"a"]))
    ((_, offsets),) = leased(client.call(Poll(topic, "g", "n", 10)))
    assert offsets == [0]


def test_a_client_that_leaves_holds_nothing(client, topic, binary_broker):
    with connected(binary_broker.binary_port) as gone:
        gone.begin(Poll(topic, "g", "gone", 10), wait_ms=60_000)
        gone.call(DescribeTopic(topic))
    client.call(PublishValues(topic, [b"a"]))
    assert leased(client.call(Poll(topic, "g", "m", 10), wait_ms=60_000))


def test_errors_have_their_codes_and_the_connection_goes_on(client, topic):
    with pytest.raises(NotFound):
        client.call(Fetch("nothing", 0))
    with pytest.raises(AlreadyExists):
        client.call(CreateTopic(topic, 1))
    with pytest.raises(MalformedBatch):
        client.call(PublishBatch(topic, 0, b"not a batch"))
    with pytest.raises(TooLarge):
        client.call(PublishValues(topic, [b"x" * (11 << 20)]))
    stored, error = client.call(
        PublishEach(topic, [Message(b"v"), Message(b"v", b"x" * (1 << 17))])
    )
    assert stored.offset == 0
    assert isinstance(error, TooLarge)


def test_topics_begin_with_the_settings_of_the_broker(client, topic):
    name = f"{topic}-usual"
    client.call(CreateTopic(name, 0, {"ttl_ms": 5000}))
    found = client.call(DescribeTopic(name))
    assert len(found.partitions) == 3
    assert found.settings["ttl_ms"] == 5000


def test_a_large_batch_goes_in_and_out(client, topic):
    """Out of its file, in pieces as the socket takes them."""
    value = bytes(range(256)) * 4096
    sent = batch(*[value] * 8)
    client.call(PublishBatch(topic, 0, sent))
    numbers = [
        client.begin(Fetch(topic, 0, bytes_max=16 << 20, is_checked=is_checked))
        for is_checked in (False, True, False)
    ]
    later = client.begin(DescribeTopic(topic))
    for number in numbers:
        found = client.value(number)
        assert len(found.data) == len(sent)
        assert [head.message_count for head, _ in batches_in(found.data, seed=found.seed)] == [8]
    assert client.value(later).name == topic


def test_a_stop_answers_those_who_wait(tmp_path):
    with served(tmp_path / "data") as broker, connected(broker.binary_port) as client:
        client.call(CreateTopic("orders", 1))
        polling = client.begin(Poll("orders", "g", "m", 10), wait_ms=60_000)
        reading = client.begin(Fetch("orders", 0, Start.at_offset(0)), wait_ms=60_000)
        client.call(DescribeTopic("orders"))
        broker.signal(15)
        assert not client.value(polling).parts
        assert not client.value(reading).data
        assert client.is_closed()
        assert broker.wait() == 0


def test_a_port_that_is_taken_is_named(tmp_path, binary_broker):
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", tmp_path / "data"]
    done = subprocess.run(
        [*command, "--port", "0", "--binary-port", str(binary_broker.binary_port)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4
    assert "broker.binary_port" in done.stderr


def test_the_port_can_be_off(tmp_path):
    with served(tmp_path / "data", "--binary-port", "-1") as broker:
        assert "penstock://" not in broker.start_line


def test_a_connection_cut_at_any_byte_of_a_request_stores_at_most_once(
    client, topic, binary_broker
):
    _, frame = client.frame(Publish(topic, [Message(b"value", b"key")]))
    for end in range(len(frame)):
        with connected(binary_broker.binary_port) as cut:
            cut.send(frame[:end])
    assert client.call(Read(topic, 0)).messages == []
    with connected(binary_broker.binary_port) as whole:
        whole.send(frame)
    deadline = time.monotonic() + 120
    while not client.call(Read(topic, 0)).messages and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(client.call(Read(topic, 0)).messages) == 1


def test_a_request_may_come_byte_by_byte(client, topic):
    number, frame = client.frame(PublishValues(topic, [b"a"]))
    for byte in frame:
        client.send(bytes([byte]))
    assert client.value(number)[0].offset == 0


def test_unknown_keys_and_versions_are_refused(client):
    client.send(*request_frame(10_999, 5, []))
    client.kinds[5] = client.kinds[6] = DescribeTopic
    with pytest.raises(BadRequest, match="api key 10999"):
        client.value(5)
    frame = bytearray(b"".join(request_frame(COMMAND, 6, [])))
    frame[7] = 9
    client.send(bytes(frame))
    with pytest.raises(BadRequest, match="version 9"):
        client.value(6)


def test_a_transaction(client, topic):
    session = client.call(InitProducer("port"))
    marks = Marks(producer_id=session.producer_id, producer_epoch=session.epoch, first_sequence=0)
    some = encode(Columns(values=[b"a", b"b"], timestamps=1), marks=marks).to_bytes()
    assert client.call(StageBatch(topic, 0, some)) == Staged(0, 0, False)
    end = client.call(EndTransaction(*session, is_commit=True))
    assert end.places == (Placed(topic, 0, 0, 2),)
    assert client.call(EndTransaction(*session, is_commit=True)) == end
    with pytest.raises(TransactionEnded):
        client.call(EndTransaction(*session, is_commit=False))
    assert client.call(ListTransactions()) != []
