"""`penstock dlq` against a server process: look, correct, send back."""

import json
import time
from itertools import count

import pytest

from penstock.api.dead_letters import REDRIVE_LIMIT
from penstock.api.letters import Redriven
from penstock.cli.dlq import send_back
from penstock.cli.exits import Exit
from penstock.client.dead_letters import Redrive

pytestmark = pytest.mark.tier("test")
NAMES = count()


@pytest.fixture
def letters(client):
    """A topic with three dead letters: two rejected, one out of attempts."""
    topic = f"letters-{next(NAMES)}"
    client.create_topic(topic, partitions=1, max_retries=0)
    client.publish_many(topic, [b"a", b"b", b"c"])
    first, second, third = client.poll(topic, "billing", limit=3)
    client.reject([first, second], "no \x1b[31m apples")
    client.nack(third, "boom")
    until_s = time.monotonic() + 120
    while len(client.dead_letters(topic)) < 3:  # They travel when it is durable that they are dead.
        assert time.monotonic() < until_s
    return topic


@pytest.fixture
def many(client):
    """A topic with three dead letters more than the server takes in one call."""
    topic, left = f"many-letters-{next(NAMES)}", REDRIVE_LIMIT + 3
    client.create_topic(topic, partitions=1)
    client.publish_many(topic, [b"x"] * left)
    while left:
        found = client.poll(topic, "billing", limit=1000, timeout=60)
        client.reject(found, "no apples")
        left -= len(found)
    until_s = time.monotonic() + 120
    while sum(one["count"] for one in client.count_dead_letters(topic)) < REDRIVE_LIMIT + 3:
        assert time.monotonic() < until_s
    return topic


def listed(call, topic, *words):
    return [
        json.loads(one) for one in call("dlq", "list", topic, "--json", *words).out.splitlines()
    ]


def test_dead_letters_are_listed_selected_and_counted(call, letters):
    assert [one["originalValue"] for one in listed(call, letters)] == ["a", "b", "c"]
    assert [one["originalValue"] for one in listed(call, letters, "--reason", "REJECTED")] == [
        "a",
        "b",
    ]
    assert listed(call, letters, "--before", "1h") == []
    assert len(listed(call, letters, "--after", "1h", "--group", "billing")) == 3
    counts = {one["error"]: one["count"] for one in listed(call, letters, "--group-by", "error")}
    assert counts == {"no \x1b[31m apples": 2, "boom": 1}


def test_list_that_ends_at_its_limit_says_that_there_are_more(call, letters):
    cut = call("dlq", "list", letters, "--limit", "2", "--json")
    assert (cut.code, len(cut.out.splitlines())) == (Exit.OK, 2)
    assert cut.err == "the first 2, and there are more: --limit\n"
    assert call("dlq", "list", letters, "--limit", "3", "--json").err == ""


def test_what_others_wrote_cannot_move_the_cursor(call, letters):
    shown = call("dlq", "list", letters).out + call("dlq", "show", letters, "0/0").out
    assert "\x1b" not in shown
    assert "no \\x1b[31m apples" in shown


def test_long_value_is_cut_in_a_table_and_whole_elsewhere(call, client):
    client.create_topic("long", partitions=1)
    client.publish("long", b"x" * 5000)
    client.reject(client.poll("long", "g"), "too long")
    until_s = time.monotonic() + 120
    while not (shown := call("dlq", "list", "long").out):
        assert time.monotonic() < until_s
    assert max(map(len, shown.splitlines())) < 200
    assert listed(call, "long")[0]["originalValue"] == "x" * 5000
    assert "x" * 5000 in call("dlq", "show", "long", "0/0").out


def test_one_letter_is_shown_with_its_story(call, letters):
    found = json.loads(call("dlq", "show", letters, "0/2", "--json").out)
    assert (found["dlqReason"], found["deliveryAttempts"]) == ("MAX_RETRIES_EXCEEDED", 1)
    assert f"came from: {letters} 0/2" in call("dlq", "show", letters, "0/2").out
    missing = call("dlq", "show", letters, "0/9")
    assert (missing.code, missing.err.count("\n")) == (Exit.REFUSED, 1)


def test_corrected_letter_ends_in_the_topic(call, client, letters):
    words = ("dlq", "edit", letters, "0/1", "--value", "pears", "--key", "k", "--header", "x=y")
    assert "1 would go back" in call(*words, "--dry-run").out
    assert len(listed(call, letters)) == 3
    assert json.loads(call(*words, "--json").out)["redriven"] == 1
    assert [one["originalValue"] for one in listed(call, letters)] == ["a", "c"]
    (again,) = client.poll(letters, "billing")
    assert (again.value, again.key, list(again.headers)) == (b"pears", b"k", [("x", b"y")])
    client.ack(again)


def test_editing_without_a_terminal_wants_to_know_what(call, letters):
    done = call("dlq", "edit", letters, "0/0")
    assert (done.code, len(listed(call, letters))) == (Exit.USAGE, 3)
    assert "--value" in done.err


def test_dry_run_sends_nothing_back(call, client, letters):
    assert "3 found, 3 would go back" in call("dlq", "redrive", letters, "--all", "--dry-run").out
    assert len(listed(call, letters)) == 3
    assert client.topic(letters).total_messages == 3


def test_chosen_letters_go_back_to_the_group_that_failed(call, client, letters):
    done = call("dlq", "redrive", letters, "0/0", "0/2", "--target", "group", "--output", "yaml")
    assert done.out.startswith("matched: 2\nredriven: 2\n")
    assert {one.value for one in client.poll(letters, "billing", timeout=60)} == {b"a", b"c"}
    assert client.poll(letters, "others", limit=9)[-1].offset == 2


def test_letters_go_back_at_a_rate(call, client, letters):
    done = json.loads(call("dlq", "redrive", letters, "--all", "--rate", "2", "--json").out)
    assert (done["matched"], done["redriven"], done["failed"]) == (3, 3, [])
    assert client.topic(letters).total_messages == 6


def test_discarded_letters_are_listed_no_more_and_stay_in_their_topic(call, client, letters):
    assert "1 found, 1 would be" in call("dlq", "discard", letters, "0/1", "--dry-run").out
    refused = call("dlq", "discard", letters, "--yes")
    assert (refused.code, len(listed(call, letters))) == (Exit.USAGE, 3)
    done = json.loads(call("dlq", "discard", letters, "0/1", "--yes", "--json").out)
    assert (done["matched"], done["discarded"]) == (1, 1)
    assert [one["originalValue"] for one in listed(call, letters)] == ["a", "c"]
    assert client.discard(letters, limit=1).discarded == 1
    assert client.topic(f"{letters}.dlq").total_messages == 3


def test_all_go_back_also_if_the_server_takes_fewer_in_one_call(call, client, many):
    count = REDRIVE_LIMIT + 3
    words = ("dlq", "redrive", many, "--all")
    assert f"{count} found, {count} would go back" in call(*words, "--dry-run").out
    assert "1 found, 1 went back" in call(*words, "--limit", "1").out
    done = json.loads(call(*words, "--json").out)
    assert (done["matched"], done["redriven"], done["failed"]) == (count - 1, count - 1, [])
    assert client.dead_letters(many) == []
    assert client.topic(many).total_messages == 2 * count


def test_all_are_discarded_also_if_the_server_takes_fewer_in_one_call(call, client, many):
    count = REDRIVE_LIMIT + 3
    words = ("dlq", "discard", many, "--all")
    assert f"{count} found, {count} would be discarded" in call(*words, "--dry-run").out
    assert "1 found, 1 are discarded" in call(*words, "--limit", "1").out
    done = json.loads(call(*words, "--json").out)
    assert (done["matched"], done["discarded"]) == (count - 1, count - 1)
    assert client.dead_letters(many) == []


class SlowServer:
    """Answers a paced redrive as a server does whose time for one call is up after two letters."""

    def __init__(self, waiting: int, stuck: int = 0) -> None:
        self.waiting, self.stuck, self.calls = waiting, stuck, 0

    def redrive(self, topic: str, *, dry_run: bool, **_order: object) -> Redriven:
        matched = self.waiting + self.stuck
        if dry_run:
            return Redriven(matched, 0, [], dry_run=True)
        self.calls += 1
        sent = min(2, self.waiting)
        self.waiting -= sent
        return Redriven(matched, sent, [{"partition": 0, "offset": 1}] * self.stuck)


@pytest.mark.parametrize("stuck", [0, 1])
def test_paced_redrive_is_called_until_all_that_can_go_are_gone(stuck):
    server = SlowServer(5, stuck)
    done = send_back(server, "t", Redrive(rate=1))
    assert (done.matched, done.redriven, len(done.failed)) == (5 + stuck, 5, stuck)
    assert server.calls == 3


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["dlq", "list", "nowhere"], Exit.REFUSED, "no topic nowhere"),
        (["dlq", "list", "t", "--group-by", "mood"], Exit.USAGE, "mood"),
        (["dlq", "show", "t", "first"], Exit.USAGE, "is not PARTITION/OFFSET"),
        (["dlq", "redrive", "t"], Exit.USAGE, "say which"),
        (["dlq", "redrive", "t", "--all", "--reason", "REJECTED"], Exit.USAGE, "say which"),
        (["dlq", "redrive", "t", "--all", "--rate", "0"], Exit.USAGE, "rate"),
        (["dlq", "redrive", "nowhere", "--all"], Exit.REFUSED, "no topic nowhere"),
    ],
)
def test_wrong_calls_get_one_clear_line(call, words, code, text):
    done = call(*words)
    assert (done.code, done.out) == (code, "")
    assert text in done.err.splitlines()[-1]
