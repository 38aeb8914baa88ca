"""What a caller gets who does something wrong: a refusal that names it, and a queue that goes on."""

import copy
import multiprocessing
import os

import pytest

import penstock
from penstock.errors import InvalidConfig, NoSpace, NotFound, NotPending, Refused
from penstock.runtime.file import RealFile


@pytest.fixture
def queue(tmp_path):
    with penstock.open(tmp_path / "queue", auto_ack=False) as found:
        yield found


@pytest.mark.parametrize("ttl", ["200000d", 10**30])
def test_a_time_to_live_beyond_all_clocks_spoils_nothing(queue, ttl):
    with pytest.raises(Refused, match="2262"):
        queue.put(b"for ever", ttl=ttl)
    queue.put(b"next")
    assert queue.get().value == b"next"


def test_a_time_to_live_of_a_topic_has_a_limit(tmp_path):
    with pytest.raises(InvalidConfig, match=r"ttl_ms must be in 1\.\.3162240000000"):
        penstock.open(tmp_path / "queue", ttl_ms=10**18)


@pytest.mark.parametrize("where", ["value", "key", "header", "header name"])
def test_text_that_is_no_text_is_refused(queue, where):
    bad = "\ud800"
    headers = {bad: b""} if where == "header name" else {"x": bad} if where == "header" else {}
    with pytest.raises(Refused, match="UTF-8"):
        queue.put(
            bad if where == "value" else b"", key=bad if where == "key" else b"", headers=headers
        )


@pytest.mark.parametrize("held", [None, 7, [None], [b"x"]])
def test_only_messages_are_answered(queue, held):
    with pytest.raises(Refused, match="an answer is for messages"):
        queue.ack(held)


def test_an_error_is_no_reason(queue):
    queue.put(b"x")
    message = queue.get()
    for answer in (queue.nack, queue.reject):
        with pytest.raises(Refused, match="a reason is text, not ValueError"):
            answer(message, ValueError("no stock"))
    queue.ack(message)


def test_text_is_not_many_values(queue):
    with pytest.raises(Refused, match="use put"):
        queue.put_many("abc")


def test_auto_ack_is_yes_or_no(tmp_path):
    with pytest.raises(InvalidConfig, match="auto_ack must be True or False, got 'no'"):
        penstock.open(tmp_path / "queue", auto_ack="no")


def test_what_is_no_directory_is_called_that(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="file is not a directory"):
        penstock.open(tmp_path / "file")
    for path in ("", 3, b"queue", "a\0b"):
        with pytest.raises(Refused, match="a directory is named by"):
            penstock.open(path)


def test_a_directory_that_cannot_be_made_is_no_missing_file(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "meta").write_text("")
    wrong = {
        tmp_path / ("x" * 300): "a name of more than 255 bytes",
        tmp_path / "file" / "queue": "file is not a directory",
        tmp_path / "link": "leads nowhere",
        tmp_path / "taken": "taken/meta is not a directory",
        "/proc/penstock/queue": "cannot make the directory /proc/penstock: /proc takes no",
        "\ud800": "text that no path can hold",
    }
    for path, words in wrong.items():
        for open_it in (penstock.open, penstock.Broker):
            with pytest.raises(Refused, match=words):
                open_it(path)


def test_a_full_disk_is_named_with_the_whole_path(tmp_path, monkeypatch):
    def full(file, *_parts):
        raise NoSpace(file.path)

    monkeypatch.setattr(RealFile, "append", full)
    with pytest.raises(NoSpace, match=f"no space left to write {tmp_path}/meta/"):
        penstock.open(tmp_path)


def test_whatever_is_asked_of_a_closed_queue_it_says_that_it_is_closed(queue):
    queue.close()
    calls = (
        lambda: queue.put(b"x"),
        queue.get,
        queue.peek,
        queue.stats,
        queue.sync,
        queue.dead_letters,
    )
    for call in calls:
        with pytest.raises(Refused, match="the queue is closed"):
            call()
    queue.close()


def in_child(work):
    """What a forked process writes to a pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def refusal_of(call):
    try:
        call()
    except Refused as error:
        return str(error)
    return "it was done"


def test_a_forked_process_keeps_its_hands_off_the_queue_of_its_parent(queue):
    queue.put(b"before")
    calls = (lambda: queue.put(b"child"), queue.get, lambda: queue.put_many([b"child"]), queue.sync)

    def use():
        refusals = [refusal_of(call) for call in calls]
        queue.close()
        return "\n".join(refusals)

    assert all("before a fork" in said for said in in_child(use).split("\n"))
    queue.put(b"after")
    assert [message.value for message in queue.get_many(10)] == [b"before", b"after"]


def test_a_forked_process_keeps_its_hands_off_the_broker_of_its_parent(tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
        said = in_child(lambda: refusal_of(lambda: broker.publish("orders", b"child")))
        assert f"process {os.getpid()}, before a fork" in said


def test_a_forked_process_keeps_its_hands_off_the_member_of_its_parent(tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish_many("orders", [b"first", b"second"])
        member = broker.join("orders", "billing")
        calls = (
            member.poll,
            member.heartbeat,
            lambda: member.commit({"orders/0": 2}),
            member.leave,
        )

        def use():
            return "\n".join(refusal_of(call) for call in calls)

        # Another thread of the parent may be in the middle of something.
        with broker.driver.lock:
            said = in_child(use).split("\n")
        assert len(said) == len(calls)
        assert all("before a fork" in one for one in said)
        assert [one.value for one in member.poll()] == [b"first", b"second"]
        member.commit({"orders/0": 2})
    with penstock.Broker(tmp_path / "data") as broker:
        assert broker.lag("billing")[0].floor == 2


def test_a_forked_process_keeps_its_hands_off_the_transactions_of_its_parent(queue):
    def put_in(block):
        block.put(b"child")

    def put_in_a_block_of_its_own(block):
        with block:
            block.put(b"child")

    def leave(block):
        block.__exit__(None, None, None)

    entered, other = queue.transaction(), queue.transaction()
    with entered:
        entered.put(b"parent")
        uses = ((put_in, entered), (leave, entered), (put_in_a_block_of_its_own, other))

        def use():
            return "\n".join(refusal_of(lambda work=work: work[0](work[1])) for work in uses)

        said = in_child(use).split("\n")
        assert len(said) == len(uses)
        assert all("before a fork" in one for one in said)
    assert [one.value for one in queue.get_many()] == [b"parent"]


def test_what_a_process_has_open_is_neither_sent_to_another_nor_copied(queue):
    child = multiprocessing.get_context("spawn").Process(target=print, args=(queue,))
    with penstock.Broker() as broker:
        sends = (child.start, lambda: copy.copy(queue), lambda: copy.deepcopy(broker))
        said = [refusal_of(one) for one in sends]
    assert [one.partition(" cannot be copied")[0] for one in said] == ["a queue"] * 2 + ["a broker"]
    queue.put(b"still here")


def test_a_delayed_message_is_named_by_the_number_that_was_given(queue):
    with pytest.raises(NotFound, match=r"there is no delayed message 99$"):
        queue.cancel(99)
    number = queue.put(b"later", delay="1h")
    queue.cancel(number)
    with pytest.raises(NotPending, match=f"delayed message {number} is not pending"):
        queue.reschedule(number, delay="2h")
    assert queue.delayed_get(number).number == number


def test_a_refused_get_is_not_an_error_about_an_error(queue):
    with pytest.raises(Refused) as refused:
        queue.get("soon")
    assert refused.value.__context__ is None
