"""What a poll hands out: columns, and objects that say the same."""

import msgspec
import pytest

from penstock.api.leased import LeasedMessages, LeasedPart
from penstock.api.receipts import Place
from penstock.api.received import Received
from penstock.model import Message, MessageColumns

from ..broker.world import GROUP, MS, TOPIC, WALL_NS, World

PLACE, OTHER = Place("t", 0, 5), Place("t", 1, 5)


def part(*offsets, place=PLACE, lease=1, attempts=1):
    count = len(offsets)
    columns = MessageColumns(
        [b"v%d" % one if one % 3 else None for one in offsets],
        [b"key" if one % 2 else None for one in offsets],
        [((("a", b"b"),) if one == 4 else ()) for one in offsets],
        *[[one] * count for one in (2, 77, None, None, None)],
        list(offsets),
    )
    return LeasedPart(place, lease, columns, attempts)


def test_objects_say_what_the_columns_say():
    handed = LeasedMessages(part(3, 4, attempts=[1, 2]), part(7, place=OTHER, lease=9))
    assert list(handed) == [
        Received(None, 3, 77, 1, 1, PLACE, key=b"key"),
        Received(b"v4", 4, 77, 2, 1, PLACE, headers=(("a", b"b"),)),
        Received(b"v7", 7, 77, 1, 9, OTHER, key=b"key"),
    ]
    assert handed[-1] is handed[2]
    assert (len(handed), bool(handed), handed.content_bytes()) == (3, True, 10)
    assert handed.content_sizes() == [3, 2, 5]
    assert not LeasedMessages()
    assert LeasedMessages() == []
    assert handed == list(handed)
    assert handed != LeasedMessages(part(3, 4))


@pytest.mark.parametrize("count", range(7))
def test_a_cut_loses_nothing_and_leaves_no_empty_part(count):
    whole = LeasedMessages(part(1, 2, 3, attempts=[4, 5, 6]), part(2, 5, place=OTHER))
    first, others = whole.cut(count)
    assert [*first, *others] == list(whole)
    assert len(first) == min(count, 5)
    assert all(one.count for one in (*first.parts, *others.parts))


def test_what_is_added_later_is_seen_by_whoever_looked_before():
    handed = LeasedMessages(part(1))
    assert len(list(handed)) == 1
    handed += LeasedMessages(part(2, place=OTHER))
    assert [one.offset for one in handed] == [1, 2]


@pytest.mark.parametrize(
    "batches",
    [[(4, 4), (0,), (2,)], [(4, 1), (0, 4, 1)], [(2,)], [(3, 1, 3, 1)]],
    ids=["one priority each", "several in each", "a single one", "one batch"],
)
def test_what_one_lease_holds_is_one_part_with_the_urgent_first(batches):
    world = World()
    world.topic()
    world.group()
    sent = []
    for priorities in batches:
        some = [Message(b"of %d" % len(sent), priority=one) for one in priorities]
        world.publish(*some)
        sent += some
    handed = world.poll(10)
    (only,) = handed.leased()
    assert only.count == len(sent)
    wanted = sorted(enumerate(sent), key=lambda one: one[1].priority)
    assert [(one.offset, one.value, one.priority) for one in handed] == [
        (offset, one.value, one.priority) for offset, one in wanted
    ]


def test_parts_of_one_lease_are_joined_with_the_attempts_of_each() -> None:
    place = Place("orders", 0, 1)
    columns = MessageColumns([b"a"], [None], [()], [2], [1], [None], [None], [None], [4])
    others = columns.each(lambda one: [one[0]] * 2)._replace(values=[b"b", b"c"], offsets=[7, 8])
    another = LeasedPart(place, 10, columns, 1)
    handed = LeasedMessages(
        LeasedPart(place, 9, columns, 1), LeasedPart(place, 9, others, [2, 3]), another
    )
    joined, last = handed.leased()
    assert [*joined.messages(), *last.messages()] == [*handed]
    assert (joined.attempts, [*joined.offsets], last) == ([1, 2, 3], [4, 7, 8], another)
    (even,) = LeasedMessages(
        LeasedPart(place, 9, columns, 1), LeasedPart(place, 9, others, 1)
    ).leased()
    assert even.attempts == 1
    assert even.count == 3
    (uneven,) = LeasedMessages(
        LeasedPart(place, 9, columns, 1), LeasedPart(place, 9, others, 2)
    ).leased()
    assert uneven.attempts == [1, 2, 2]


def bare(*offsets):
    """Found in a batch of which it is known that nobody says more, with times of their own."""
    count = len(offsets)
    rest = [[one] * count for one in (None, (), 2)], [[None] * count for _ in range(3)]
    values, times = [b"v%d" % one for one in offsets], [77 + one for one in offsets]
    return LeasedPart(
        PLACE,
        1,
        MessageColumns(values, *rest[0], times, *rest[1], range(offsets[0], offsets[-1] + 1)),
        1,
        True,
    )


def test_bare_parts_are_joined_into_a_bare_one():
    parts = [bare(3, 4), bare(7), bare(9, 10, 11)]
    (joined,) = LeasedMessages(*parts).leased()
    (looked_at,) = LeasedMessages(
        *[msgspec.structs.replace(one, is_bare=False) for one in parts]
    ).leased()
    assert (joined.is_bare, looked_at.is_bare) == (True, False)
    assert joined.columns == looked_at.columns
    assert LeasedMessages(*parts).content_bytes() == sum(map(len, joined.values))
    (mixed,) = LeasedMessages(bare(1, 2), part(4, 5)).leased()
    assert not mixed.is_bare
    assert [*mixed.messages()] == [*LeasedMessages(bare(1, 2), part(4, 5))]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"key": b"k"},
        {"headers": (("a", b"b"),)},
        {"priority": 4},
        {"expires_at": WALL_NS + 60_000 * MS},
        {"idempotency_key": b"once"},
        {"schema_id": 3},
    ],
    ids=lambda said: next(iter(said), "nothing"),
)
@pytest.mark.parametrize("limit", [2, 3], ids=["a part of the batch", "all of it"])
def test_what_one_message_of_a_batch_says_only_that_one_says(said, limit):
    world = World()
    world.topic()
    world.group()
    place = Place(TOPIC, 0, world.node.partition(TOPIC, 0).group(GROUP).group)
    world.publish(b"a", Message(b"b", **said), b"c")
    handed = world.poll(limit)
    lease = handed.parts[0].lease
    plain = {
        offset: Received(value, offset, WALL_NS, 1, lease, place)
        for offset, value in enumerate((b"a", b"b", b"c"))
    }
    wanted = {**plain, 1: msgspec.structs.replace(plain[1], **said)}
    assert {one.offset: one for one in handed} == {one.offset: wanted[one.offset] for one in handed}
    assert (len(handed), handed.parts[0].is_bare) == (limit, not said)


def test_a_message_shows_what_was_put_before_what_its_delivery_adds():
    assert repr(Received(b"v", 3, 77, 1, 9, PLACE, headers=(("a", b"b"),))) == (
        "Received(value=b'v', key=None, headers=(('a', b'b'),), priority=2, timestamp=77, expires_at=None,"
        " idempotency_key=None, schema_id=None, offset=3, attempts=1, lease=9,"
        " place=Place(topic='t', partition=0, group=5))"
    )
