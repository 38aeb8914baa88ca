"""`penstock group`, `penstock delay` and `penstock transactions` against a server process."""

import json

import pytest

from penstock.api.transactions import EndTransaction, InitProducer, Stage
from penstock.cli.exits import Exit
from penstock.errors import TransactionEnded
from penstock.model import Message

pytestmark = pytest.mark.tier("test")
GROUP = "resetters"


@pytest.fixture
def billing(client):
    """A group that has finished two of five messages and holds none, whatever a test before did with it."""
    if "resets" not in client.topics():
        client.create_topic("resets", partitions=1, visibility_timeout_ms=600_000)
        client.publish_many("resets", [b"a", b"b", b"c", b"d", b"e"])
    else:
        client.reset(GROUP, 0, force=True)
    client.ack(client.poll("resets", GROUP, limit=2))
    return GROUP


def floor(client, group):
    return client.offsets(group)["resets"][0]


def test_group_is_listed_shown_and_its_lag_is_known(call, billing):
    listed = [json.loads(line) for line in call("group", "list", "--json").out.splitlines()]
    assert {"group": GROUP, "topics": ["resets"], "lag": 3} in listed
    lines = call("group", "list").out.splitlines()
    assert [GROUP, "resets", "3"] in [line.split() for line in lines]
    shown = json.loads(call("group", "show", billing, "--json").out)
    assert shown["modes"] == {"resets": "shared"}
    (lag,) = [json.loads(line) for line in call("group", "lag", billing, "--json").out.splitlines()]
    assert (lag["floor"], lag["end"], lag["lag"]) == (2, 5, 3)
    assert call("group", "held", billing).err == "no consumer holds a message of this group\n"


def test_dry_run_of_a_reset_changes_nothing_and_the_real_one_does(call, client, billing):
    before = floor(client, billing)
    tried = call("group", "reset", billing, "--to", "earliest", "--dry-run")
    assert "nothing was changed" in tried.out
    assert floor(client, billing) == before == 2
    (move,) = call(
        "group", "reset", billing, "--to", "1h", "--topic", "resets", "--json"
    ).out.split("\n", 1)[:1]
    assert json.loads(move)["floor_after"] == floor(client, billing) == 0
    assert call("group", "reset", billing, "--to", "2").code == Exit.OK
    assert floor(client, billing) == 2


def test_reset_of_a_group_that_holds_messages_needs_force(call, client, billing):
    held = client.poll("resets", billing, limit=1)
    assert len(held) == 1
    assert "resets" in call("group", "held", billing).out
    refused = call("group", "reset", billing, "--to", "earliest")
    assert (refused.code, refused.err.count("\n")) == (Exit.REFUSED, 1)
    assert call("group", "reset", billing, "--to", "2", "--force").code == Exit.OK


def test_reset_of_one_partition_leaves_the_others(call, client):
    client.create_topic("parts", partitions=2)
    for number in range(2):
        client.publish("parts", b"a", partition=number)
    client.commit("parted", {"parts": {0: 1, 1: 1}})
    words = ("group", "reset", "parted", "--to", "0", "--topic", "parts", "--partition", "1")
    (row,) = call(*words, "--json").out.splitlines()
    assert json.loads(row)["partition"] == 1
    assert {one.partition: one.floor for one in client.lag("parted").partitions} == {0: 1, 1: 0}
    assert call("group", "reset", "parted", "--to", "0", "--partition", "1").code == Exit.REFUSED


def test_group_is_forgotten(call, client):
    client.create_topic("forgets", partitions=1)
    client.poll("forgets", "soon-gone")
    assert json.loads(call("group", "delete", "soon-gone", "--json").out)["deleted"] is True
    gone = call("group", "show", "soon-gone")
    assert gone == (Exit.REFUSED, "", "Error: there is no group soon-gone (NOT_FOUND)\n")


def test_delayed_message_is_listed_moved_and_cancelled(call, client):
    client.create_topic("later", partitions=1)
    placed = client.publish("later", b"soon", delay="1h", delay_key=b"cart")
    place = f"{placed.partition}/{placed.offset}"
    (row,) = [json.loads(one) for one in call("delay", "list", "later", "--json").out.splitlines()]
    assert (row["value"], row["delay_key"], row["state"]) == ("soon", "cart", "PENDING")
    assert place in call("delay", "list", "later").out
    assert json.loads(call("delay", "show", "later", place, "--json").out)["value"] == "soon"
    moved = call("delay", "move", "later", "--delay-key", "cart", "--delay", "2h", "--json")
    assert json.loads(moved.out)["time_remaining"] > row["time_remaining"]
    stats = [json.loads(one) for one in call("delay", "stats", "--json").out.splitlines()]
    assert 1 in [one["pending"] for one in stats if one["topic"] == "later"]
    assert "cancelled" in call("delay", "cancel", "later", place).out
    again = call("delay", "cancel", "later", place)
    assert (again.code, again.err.count("\n")) == (Exit.REFUSED, 1)
    assert call("delay", "list", "later").err == "nothing waits for its time\n"


def test_produce_takes_a_delay_key_and_an_idempotency_key(call, client):
    client.create_topic("keyed-later", partitions=1)
    for value in ("first", "second"):
        done = call("produce", "keyed-later", value, "--delay", "1h", "--delay-key", "cart")
        assert done.code == Exit.OK
    cancelled = call("delay", "cancel", "keyed-later", "--delay-key", "cart", "--json")
    assert json.loads(cancelled.out)["value"] == "second"
    assert call("delay", "list", "keyed-later").err == "nothing waits for its time\n"
    for _ in range(2):
        call("produce", "keyed-later", "once", "--idempotency-key", "order 17")
    assert [message.value for _, message in client.read("keyed-later")] == [b"once"]
    refused = call("produce", "keyed-later", "now", "--delay-key", "cart")
    assert (refused.code, refused.err.splitlines()[-1][:6]) == (Exit.REFUSED, "Error:")


def test_list_of_what_is_to_come_says_that_it_ends_at_its_limit(call, client):
    client.create_topic("many-later", partitions=2)
    for number in range(3):
        client.publish("many-later", b"x", delay=f"{number + 1}h")
    cut = call("delay", "list", "many-later", "--limit", "2", "--json")
    assert (len(cut.out.splitlines()), cut.err) == (2, "the first 2, and there are more: --limit\n")
    assert call("delay", "list", "many-later", "--limit", "3", "--json").err == ""


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["group", "reset", "nobody", "--to", "earliest"], Exit.REFUSED, "no group nobody"),
        (["group", "reset", "nobody"], Exit.USAGE, "--to"),
        (["group", "reset", GROUP, "--to", "sunrise"], Exit.USAGE, "sunrise"),
        (["group", "lag", "nobody"], Exit.REFUSED, "no group nobody"),
        (["delay", "list", "nowhere"], Exit.REFUSED, "no topic nowhere"),
        (["delay", "show", "resets"], Exit.USAGE, "say which"),
        (["delay", "show", "resets", "0-1"], Exit.USAGE, "is not PARTITION/OFFSET"),
        (["delay", "show", "resets", "0/99"], Exit.REFUSED, "no delayed message"),
        (["delay", "move", "resets", "0/1"], Exit.USAGE, "say when"),
        (["delay", "cancel", "resets", "--delay-key", "x"], Exit.REFUSED, "no delayed message"),
    ],
)
def test_wrong_calls_get_one_clear_line(call, billing, words, code, text):
    done = call(*words)
    assert (done.code, done.out) == (code, "")
    assert text in done.err.splitlines()[-1]


def test_a_transaction_is_listed_described_and_aborted(call, client):
    if "ledger" not in client.topics():
        client.create_topic("ledger", partitions=1)
    session = client.execute(InitProducer("ledger-1"))
    client.execute(Stage(*session, "ledger", [Message(b"a"), Message(b"b")]))
    lines = call("transactions", "list", "--state", "Ongoing", "--json").out.splitlines()
    (found,) = [one for one in map(json.loads, lines) if one["transactional_id"] == "ledger-1"]
    assert found["state"] == "Ongoing"
    name = found["transaction_id"]
    described = json.loads(call("transactions", "describe", name, "--json").out)
    assert [one["messages"] for one in described["participants"]] == [2]
    assert "ledger/0: 2" in call("transactions", "describe", name).out
    assert call("transactions", "abort", name).code == Exit.OK
    assert "CompleteAbort" in call("transactions", "describe", name).out
    assert call("transactions", "describe", "1-1").code == Exit.REFUSED
    with pytest.raises(TransactionEnded):
        client.execute(EndTransaction(*session, is_commit=True))
