"""Pages of large messages: a page ends by its bytes, too, and the next one goes on from there."""

import pytest

from penstock.api.bounds import PAGE_BYTES_MAX
from penstock.api.dead_letters import BrowseDeadLetters
from penstock.api.delays import FIRST_PLACE, ListDelayed
from penstock.api.fetch import Peek
from penstock.api.publish import Delayed
from penstock.model import Message, content_bytes

from .world import GROUP, MS, TOPIC, World

# Three of them are more than a page has room for.
LARGE = (PAGE_BYTES_MAX // 5) * 2
COUNT = 5


@pytest.fixture
def world():
    world = World()
    world.topic(max_retries=0)
    world.group()
    return world


def large(number):
    return bytes([65 + number]) * LARGE


def sent(world):
    for number in range(COUNT):
        world.publish(Message(large(number)))


def test_dead_letters(world):
    sent(world)
    rejected = 0
    while rejected < COUNT:
        for held in world.poll():
            world.reject(held, error="large")
            rejected += 1
    world.settle()
    cursor, seen, pages = (0, 0), [], 0
    while cursor is not None:
        page = world.execute(BrowseDeadLetters(TOPIC, limit=100, cursor=cursor))
        assert sum(len(letter.message.value) for letter in page.letters) <= PAGE_BYTES_MAX
        seen += [letter.message.value[:1] for letter in page.letters]
        cursor, pages = page.cursor, pages + 1
    assert (seen, pages) == ([b"A", b"B", b"C", b"D", b"E"], 3)


def test_delayed_messages(world):
    for number in range(COUNT):
        world.schedule([Delayed(Message(large(number)), world.wall_ns + (1000 + number) * MS)])
    after, seen, sizes = FIRST_PLACE, [], []
    while after is not None:
        page = world.execute(ListDelayed(TOPIC, 100, after))
        seen += [delayed.message.value[:1] for delayed in page.messages]
        sizes.append(len(page.messages))
        after = page.cursor
    assert (seen, sizes) == ([b"A", b"B", b"C", b"D", b"E"], [3, 2])


def test_what_a_poll_would_get(world):
    sent(world)
    assert len(world.execute(Peek(TOPIC, 0, GROUP, 100))) == 3


def test_a_message_has_the_bytes_of_its_key_value_and_headers():
    assert content_bytes(b"key", b"value", [("h", b"12"), ("i", None)]) == 12
    assert content_bytes(None, None, ()) == 0
