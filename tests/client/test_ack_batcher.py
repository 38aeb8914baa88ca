"""The answers of a consumer: the first one counts, none is sent twice, none is forgotten."""

import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.answers import Answer, Kind, LeaseOutcome
from penstock.api.bounds import NAMES_MAX
from penstock.api.wire import encode_command
from penstock.client.ack_batcher import AnswerBuffer, messages_of
from penstock.client.leased_messages import Delivered, LeasedPart, Polled
from penstock.client.synchronous.ack_batcher import AckBatcher
from penstock.client.transaction_answers import WithheldMessages
from penstock.codec import encode_messages, verify
from penstock.codec.leased import LeaseColumns, LeasedBatch
from penstock.errors import AnswerTimeout, Refused, StaleReceipt
from penstock.model import Message


def leased(answers, *offsets, lease=7, partition=0, leased_at_s=0.0):
    """Messages that a consumer has just got."""
    batch = encode_messages([Message(b"%d" % one, timestamp=1) for one in offsets]).to_bytes()
    columns = LeaseColumns("orders", partition, 1, lease, list(offsets), 1)
    part = LeasedPart(LeasedBatch(columns, verify(batch), memoryview(batch)))
    answers.track([part], leased_at_s)
    return Polled([part], Delivered)


def sent(answers):
    return [(one.kind.value, one.lease, one.offsets) for one in answers.take()]


def test_the_first_answer_counts():
    answers = AnswerBuffer()
    first, second, third = leased(answers, 4, 5, 9)
    assert [first.ack(), first.nack(), first.ack(), second.nack("bad", delay=1)] == [1, 0, 0, 1]
    assert [one.is_answered for one in (first, second, third)] == [True, True, False]
    (nack, ack) = answers.take()
    assert (ack.kind, ack.offsets) == (Kind.ACK, [4])
    assert (nack.kind, nack.offsets, nack.reason, nack.ms) == (Kind.NACK, [5], "bad", 1000)
    assert answers.take() == []
    assert not answers.is_idle
    third.give_back()
    assert sent(answers) == [("release", 7, [9])]
    assert answers.is_idle


def test_an_extension_is_sent_before_the_ack_that_came_after_it():
    answers = AnswerBuffer()
    polled = leased(answers, 1, 2, leased_at_s=10.0)
    assert polled[0].extend("30s")
    polled[0].ack()
    assert not polled[0].extend("30s")
    answers.extend_held(500, 0.0, 20.0)
    assert sent(answers) == [("extend", 7, [1]), ("extend", 7, [2]), ("ack", 7, [1])]
    answers.extend_held(500, 11.0, 20.0)
    answers.extend_held(500, 0.0, 9.0)
    assert sent(answers) == []


class Unsearched(list):
    """Offsets that are gone through, and never searched for one: that would be quadratic in the size of a poll."""

    def __contains__(self, offset):
        raise AssertionError(f"searched for {offset}")


def test_a_transaction_takes_a_poll_and_searches_it_for_no_message():
    answers = AnswerBuffer()
    polled = leased(answers, 1, 2, 3)
    (part,) = polled.parts
    part.offsets = Unsearched(part.offsets)
    first, *others = polled
    assert first.extend("30s")
    assert not first.is_answered
    taken = WithheldMessages()
    taken.add(polled)
    assert not answers.is_held(part)
    assert not first.ack(), "it is the transaction's"
    taken.restore()
    assert first.ack()
    with pytest.raises(Refused, match="a message of orders/0 was answered before"):
        taken.add(polled)
    assert [one.ack() for one in others] == [True, True], "nothing was taken"


def test_a_transaction_that_outlives_its_consumer_gives_nothing_back():
    answers, taken = AnswerBuffer(), WithheldMessages()
    (message,) = leased(answers, 1)
    taken.add(message)
    answers.close()
    taken.restore()
    assert not message.ack()
    assert answers.is_idle


def test_what_could_not_be_sent_comes_first():
    answers = AnswerBuffer()
    polled = leased(answers, 1, 2)
    polled[0].ack()
    unsent = answers.take()
    answers.put_back(unsent)
    polled[1].ack()
    assert not answers.is_idle
    assert answers.take() == unsent
    assert sent(answers) == [("ack", 7, [2])]


def test_what_is_not_ours_any_more_needs_no_answer():
    answers = AnswerBuffer()
    gone, old, stale = (leased(answers, 1, 2, lease=one, partition=one) for one in (1, 2, 3))
    answers.forget(["orders/1"])
    assert not gone[0].ack()
    answers.finish_below("orders/2", 2)
    assert [one.ack() for one in old] == [False, True]
    error = StaleReceipt("orders:3:1:0:1.3")
    error.fields["offset"] = 1
    answers.drop_stale(error)
    # Another lease of the same message is not meant.
    answers.drop_stale(StaleReceipt("orders:3:2:0:1.4"))
    assert [one.ack() for one in stale] == [False, True]
    assert answers.held_partitions() == set()
    assert sent(answers) == [("ack", 2, [2]), ("ack", 3, [2])]


@given(st.lists(st.tuples(st.integers(0, 19), st.sampled_from([*Kind])), max_size=60))
def test_every_message_is_answered_once_with_its_first_answer(words):
    answers, expected, found = AnswerBuffer(), {}, {}
    messages = {one.offset: one for one in leased(answers, *range(20))}
    for offset, kind in words:
        if kind is Kind.EXTEND:
            assert messages[offset].extend(1) == (offset not in expected)
            continue
        is_first = answers.add(messages[offset].part, offset, kind)
        assert is_first == (offset not in expected)
        expected.setdefault(offset, kind)
        if offset % 3 == 0:
            collect(answers, found)
    collect(answers, found)
    assert found == expected
    polled = Polled([messages[0].part], Delivered)
    assert answers.add_all(polled.parts[0], Kind.ACK) == 20 - len(expected)


def collect(answers, found):
    for one in answers.take():
        for offset in one.offsets:
            if one.kind is not Kind.EXTEND:
                assert offset not in found
                found[offset] = one.kind


def test_one_answer_cannot_spoil_those_that_are_sent_with_it():
    answers = AnswerBuffer()
    first, second, third = leased(answers, 4, 5, 9)
    for message, too_long in ((first, 10**30), (second, float("inf"))):
        with pytest.raises(Refused, match="366 days"):
            message.nack("later", delay=too_long)
        assert not message.is_answered
    third.reject(f"cannot read {os.fsdecode(bytes([255]))}")
    sent_bytes = b"".join(encode_command(Answer(answers.take())))
    assert b"cannot read \\udcff" in sent_bytes


def test_long_reasons_of_many_messages_are_sent_in_several_requests():
    """In one the server would take none of them, nor the acks that were sent with them."""
    answers, requests = AnswerBuffer(), []
    first, *others = leased(answers, *range(1500))
    first.ack()
    for message in others:
        message.nack(f"{message.offset}: {'ü' * 5000}")
    while taken := answers.take():
        assert sum(map(len, encode_command(Answer(taken)))) < 2 << 20
        requests += taken
    assert sorted(offset for one in requests for offset in one.offsets) == [*range(1500)]
    assert requests[-1].kind is Kind.ACK


def test_answers_for_many_leases_are_sent_in_several_requests():
    answers = AnswerBuffer()
    for lease in range(NAMES_MAX + 2):
        leased(answers, 1, lease=lease)[0].ack()
    assert [len(answers.take()) for _ in range(3)] == [NAMES_MAX, 2, 0]


@pytest.mark.parametrize("wrong", [None, ValueError("no stock"), b"late", ["late"]])
def test_a_reason_is_text(wrong):
    (message,) = leased(AnswerBuffer(), 4)
    for answer in (message.nack, message.reject):
        with pytest.raises(Refused, match="a reason is text"):
            answer(wrong)
    assert not message.is_answered


@pytest.mark.parametrize("wrong", [None, 7, "4", [None], b"\xff"])
def test_only_messages_can_be_answered(wrong):
    with pytest.raises(Refused, match="a message of this consumer"):
        messages_of(wrong)
    assert messages_of([]) == []


def test_messages_that_are_made_one_by_one_are_answered_one_by_one():
    """A generator that reads on only when those before are answered would wait for ever; and its errors are its own."""
    answers = AnswerBuffer()
    polled = leased(answers, 4, 5)

    def made():
        yield polled[0]
        assert polled[0].is_answered
        yield polled[1]
        yield None

    found = messages_of(made())
    assert next(found).ack()
    assert next(found).ack()
    with pytest.raises(Refused, match="not None"):
        next(found)
    assert sent(answers) == [("ack", 7, [4, 5])]
    with pytest.raises(TypeError, match="unsupported operand"):
        list(messages_of(one + "" for one in [1]))


class LostReplies:
    """A connector whose first reply is lost, and whose second one says that the leases are over."""

    def execute(self, command, *, may_repeat, on_failure):
        assert may_repeat
        on_failure(AnswerTimeout("a broker", "it has stopped", is_sent=True))
        return SimpleNamespace(
            value=[LeaseOutcome(stale=frozenset(one.offsets)) for one in command.answers]
        )


def test_an_ack_that_no_server_has_taken_is_told_also_if_it_was_repeated():
    """A server tells an ack that it had before from one whose lease is over; of a nack it cannot say."""
    answers, told = AnswerBuffer(), []
    acked, nacked, _ = leased(answers, 4, 5, 6)
    acked.extend("30s")
    acked.ack()
    nacked.nack("bad")
    AckBatcher(LostReplies(), answers, told.append).send()
    assert [(type(one), one.fields["offset"]) for one in told] == [(StaleReceipt, 4)]
