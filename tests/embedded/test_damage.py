"""What a queue or broker in the process says and does when its files are damaged."""

import logging
from pathlib import Path

import pytest

import penstock
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.errors import DamagedBatch, DamagedFile, InvalidConfig
from penstock.testing import VirtualClock


class Lines(logging.Handler):
    """A logger of the host, and what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.logger = logging.getLogger(f"host.{id(self)}")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.levelname, record.getMessage()))


def segment_of(path: Path, topic: str = "queue.1", kind: str = "messages") -> Path:
    return next((path / "topics" / "default" / topic / "partition-0" / kind).glob("*.log"))


def flip(file: Path, value: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[data.index(value)] ^= 1
    file.write_bytes(bytes(data))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A queue of four messages, each in a batch of its own, the second one damaged."""
    with penstock.open(tmp_path) as queue:
        for value in (b"zero", b"one", b"two", b"three"):
            queue.put(value)
            queue.flush()
    flip(segment_of(tmp_path), b"one")
    return tmp_path


def test_a_queue_stops_at_damage_with_an_error_that_names_it_and_logs_it_once(path):
    lines = Lines()
    with penstock.open(path, logger=lines.logger) as queue:
        assert queue.get().value == b"zero"
        for _ in range(3):
            with pytest.raises(DamagedBatch) as found:
                queue.get()
        assert (found.value.offset, found.value.next_offset) == (1, 2)
        with pytest.raises(DamagedBatch):
            queue.peek()
        assert queue.stats().waiting == 3
    ((level, text),) = lines.found
    assert level == "ERROR"
    assert "topics/default/queue.1/partition-0/messages/00000000000000000000.log at byte" in text
    assert "offset 1 of topic queue partition 0 cannot be read" in text


@pytest.mark.parametrize("kind", ["messages", "state", "delayed", "staging"])
def test_a_queue_that_has_lost_a_part_of_a_file_says_which_and_opens_with_it(tmp_path, kind):
    with penstock.open(tmp_path) as queue:
        queue.put(b"later", delay="1h")
        with queue.transaction() as transaction:
            transaction.put(b"now")
    file = segment_of(tmp_path, kind=kind)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedFile, match=f"partition-0/{kind}/{file.name}: .* missing"):
        penstock.open(tmp_path)
    assert run(root, ["queue", "stats", str(tmp_path)]) == Exit.FOUND_PROBLEMS
    file.write_bytes(whole)
    with penstock.open(tmp_path) as queue:
        assert (queue.get().value, len(queue.delayed())) == (b"now", 1)


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_queue_that_skips_damage_gives_everything_else_once_and_stays_so(path, auto_ack):
    lines = Lines()
    options = {"auto_ack": auto_ack, "logger": lines.logger}
    with penstock.open(path, on_damage="skip", **options) as queue:
        assert [one.value for one in queue.peek_many(9)] == [b"zero", b"two", b"three"]
        got = queue.get_many(9) + queue.get_many(9)
        if not auto_ack:
            queue.ack(got)
        assert [one.value for one in got] == [b"zero", b"two", b"three"]
        assert queue.stats().waiting == 0
        queue.put(b"four")
    assert [level for level, _ in lines.found] == ["ERROR", "WARNING"]
    assert (
        "group queue skipped 1 messages of topic queue partition 0, offset 1" in lines.found[1][1]
    )
    with penstock.open(path, **options) as queue:
        assert [one.value for one in queue.get_many(9)] == [b"four"]


def test_a_queue_that_was_stopped_goes_on_once_it_is_opened_with_skip(path):
    with penstock.open(path) as queue:
        queue.get()
        with pytest.raises(DamagedBatch):
            queue.get()
    with penstock.open(path, on_damage="skip") as queue:
        assert queue.get(timeout=None).value == b"two"


def test_dead_letters_behind_a_damaged_one_are_listed_where_damage_is_skipped(tmp_path):
    with penstock.open(tmp_path, auto_ack=False, max_retries=0) as queue:
        for value in (b"first", b"second"):
            queue.put(value)
            queue.reject(queue.get())
            assert queue.dead_letters()
    flip(segment_of(tmp_path, "queue.dlq.2"), b"first")
    with penstock.open(tmp_path, auto_ack=False) as queue, pytest.raises(DamagedBatch):
        queue.dead_letters()
    with penstock.open(tmp_path, auto_ack=False, on_damage="skip") as queue:
        assert [one.value for one in queue.dead_letters()] == [b"second"]
        assert queue.stats().dead_letters == 1


def test_the_setting_is_checked_and_shown(tmp_path):
    with pytest.raises(InvalidConfig, match="on_damage must be stop or skip, got 'ignore'"):
        penstock.open(tmp_path / "queue", on_damage="ignore")
    with penstock.Broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", on_damage="skip")
        broker.create_topic("mails")
        found = {name: broker.settings(name)["on_damage"] for name in broker.topics()}
        assert found == {"orders": "skip", "mails": "stop"}
        with pytest.raises(InvalidConfig, match="on_damage must be stop or skip"):
            broker.configure_topic("mails", on_damage="perhaps")


def test_what_a_start_cut_off_is_logged_once_by_the_hosts_logger(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"value")
    file = segment_of(tmp_path, "orders.1")
    size = file.stat().st_size
    with file.open("ab") as opened:
        opened.write(b"half a batch")
    lines = Lines()
    with penstock.Broker(tmp_path, logger=lines.logger) as broker:
        assert [one.value for one in broker.read("orders", 0)] == [b"value"]
    ((level, text),) = lines.found
    assert level == "WARNING"
    assert text.startswith(
        f"start: tail_cut {file.relative_to(tmp_path)} at byte {size}, 12 bytes, "
    )
    assert "topic orders partition 0: " in text
    again = Lines()
    with penstock.Broker(tmp_path, logger=again.logger):
        assert again.found == []


def test_a_damaged_delayed_message_fires_no_more_once_the_topic_is_set_to_skip(tmp_path):
    clock = VirtualClock()
    with penstock.Broker(tmp_path, clock=clock) as broker:
        broker.create_topic("orders", partitions=1)
        lost = broker.publish("orders", b"damaged", delay="1h").offset
    flip(segment_of(tmp_path, "orders.1", "delayed"), b"damaged")
    with penstock.Broker(tmp_path, clock=clock) as broker:
        clock.advance("2h")
        assert broker.delay_stats("orders")[0].unreadable == 1
        broker.configure_topic("orders", on_damage="skip")
        (facts,) = broker.delay_stats("orders")
        assert (facts.pending, facts.lost, facts.unreadable) == (0, 1, 0)
        assert broker.delayed_get("orders", 0, lost).state.value == "LOST"


def test_one_damaged_delayed_message_does_not_hide_the_others(tmp_path):
    clock = VirtualClock()
    with penstock.Broker(tmp_path, clock=clock) as broker:
        broker.create_topic("orders", partitions=1)
        places = [
            broker.publish("orders", value, delay=delay, delay_key=key).offset
            for value, delay, key in ((b"b", "2h", "b"), (b"damaged", "1h", "x"), (b"c", "3h", "c"))
        ]
    flip(segment_of(tmp_path, "orders.1", "delayed"), b"damaged")
    with penstock.Broker(tmp_path, clock=clock) as broker:
        for hours in (0, 1):  # Before it is due, and when it could not be delivered.
            clock.advance(f"{hours}h")
            damaged, *others = broker.delayed("orders")
            assert [one.message.value for one in others] == [b"b", b"c"]
            assert (damaged.id, damaged.message, damaged.state.value, damaged.delay_key) == (
                places[1],
                None,
                "PENDING",
                b"x",
            )
            assert damaged.damage.path.endswith("partition-0/delayed/00000000000000000000.log")
            assert [one.damage for one in others] == [None, None]
        with pytest.raises(DamagedBatch):
            broker.delayed_get("orders", 0, places[1])
        with pytest.raises(DamagedBatch):
            broker.delayed_get("orders", delay_key="x")
        moved = broker.reschedule("orders", delay_key="x", delay="9h")
        assert moved.damage is not None
        assert [one.message and one.message.value for one in broker.delayed("orders")] == [
            b"b",
            b"c",
            None,
        ]
        broker.cancel_delayed("orders", delay_key="x")
        assert [one.message.value for one in broker.delayed("orders")] == [b"b", b"c"]


def test_a_queue_lists_what_is_damaged_among_what_is_to_come(tmp_path):
    with penstock.open(tmp_path) as queue:
        queue.put(b"damaged", delay="1h")
        queue.put(b"whole", delay="2h")
    flip(segment_of(tmp_path, kind="delayed"), b"damaged")
    with penstock.open(tmp_path) as queue:
        first, second = queue.delayed()
        assert (first.number, first.value, second.value, second.damage) == (1, None, b"whole", None)
        assert "at byte" in str(first.damage)
        with pytest.raises(DamagedBatch):
            queue.delayed_get(1)


def test_get_many_returns_what_comes_before_the_damage_and_then_raises(path):
    with penstock.open(path) as queue:
        assert [one.value for one in queue.get_many(9)] == [b"zero"]
        with pytest.raises(DamagedBatch):
            queue.get_many(9)
