"""A limit of what may be unread: refused with numbers, and never halfway."""

import pytest

import penstock
from penstock.errors import BacklogFull, NeverFits
from penstock.testing import VirtualClock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "queue"


def test_a_full_queue_says_the_limit_what_is_there_and_what_was_to_come(path):
    with penstock.open(path, max_backlog_messages=5) as queue:
        queue.put_many([b"x"] * 3)
        with pytest.raises(BacklogFull) as refused:
            queue.put_many([b"x"] * 4)
        assert str(refused.value) == ("max_backlog_messages is 5: 3 messages unread, 4 to be added")
        assert refused.value.retriable
        assert queue.put_many([b"x"] * 2) == range(4, 6)


def test_bytes_are_counted_before_they_are_written(path):
    with penstock.open(path, max_backlog_bytes=5000) as queue:
        queue.put(b"x" * 1000)
        with pytest.raises(BacklogFull, match="4500 to be added") as refused:
            queue.put(b"x" * 4500)
        fields = refused.value.fields
        assert fields["reason"] == "backlog_bytes"
        assert (fields["adding"], fields["limit"]) == (4500, 5000)
        assert 1000 < fields["found"] < 1300
        queue.get()
        queue.stats()
        assert queue.put(b"x" * 4500) == 2


@pytest.mark.parametrize("limit", [{"max_backlog_messages": 10}, {"max_backlog_bytes": 9000}])
def test_what_can_never_fit_is_called_that_and_spoils_nothing(path, limit):
    (setting,) = limit
    with penstock.open(path, **limit) as queue:
        # So many that they would be several batches, of which the first would be written.
        with pytest.raises(NeverFits, match=f"at once can never fit, {setting} is") as refused:
            queue.put_many([b"x" * 600] * 20_000)
        assert not refused.value.retriable
        assert queue.stats().put == 0
        queue.put(b"next")
        assert queue.get().value == b"next"
    with penstock.open(path) as queue:
        assert queue.stats().put == 1


def test_what_fits_is_written_though_it_is_more_on_the_disk_than_in_the_call(path):
    with penstock.open(path, max_backlog_bytes=5242 * 1000) as queue:
        # Two batches: the second begins when the first has filled most of the limit.
        assert queue.put_many([b"x" * 1000] * 5242) == range(1, 5243)
        assert queue.stats().waiting == 5242


def put_in_a_transaction(queue):
    with queue.transaction() as transaction:
        transaction.put(b"c")


@pytest.mark.parametrize(
    "put",
    [
        lambda queue: queue.put(b"c"),
        lambda queue: queue.put_many([b"c"]),
        lambda queue: queue.put(b"c", idempotency_key="k"),
        put_in_a_transaction,
    ],
    ids=["put", "put_many", "once", "transaction"],
)
def test_what_was_gotten_is_not_unread(path, put):
    # No time passes, so it is not acked by the clock.
    with penstock.open(path, clock=VirtualClock(), max_backlog_messages=2) as queue:
        queue.put_many([b"a", b"b"])
        with pytest.raises(BacklogFull, match="2 messages unread, 1 to be added"):
            put(queue)
        assert queue.get().value == b"a"
        put(queue)
        with pytest.raises(BacklogFull, match="2 messages unread, 1 to be added"):
            queue.put(b"d")
        assert [one.value for one in queue] == [b"b", b"c"]


def test_a_broker_says_the_same():
    with penstock.Broker() as broker:
        broker.create_topic("t", partitions=1, max_backlog_messages=5, max_backlog_bytes=5000)
        with pytest.raises(NeverFits, match="6 messages at once"):
            broker.publish_many("t", [b"x"] * 6)
        with pytest.raises(NeverFits, match="bytes at once can never fit, max_backlog_bytes is"):
            broker.publish("t", b"x" * 5000)
        broker.publish_many("t", [b"x"] * 4)
        with pytest.raises(BacklogFull, match="4 messages unread, 2 to be added"):
            broker.publish_many("t", [b"x"] * 2)
