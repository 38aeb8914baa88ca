"""What the classes of commands say of themselves."""

import pytest

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.publish import Delayed, Publish, PublishEach, Schedule, ScheduleValues
from penstock.api.schedules import GetSchedule, RunSchedule
from penstock.model import Message

ONCE, PLAIN = Message(b"a", idempotency_key=b"k"), Message(b"a")


def answer(*kinds: Kind) -> Answer:
    return Answer([LeaseAnswer(kind, "t", 0, 1, 1, [0]) for kind in kinds])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (GetSchedule("t", "s"), True),
        (RunSchedule("t", "s"), False),
        (Publish("t", [ONCE, ONCE]), True),
        (Publish("t", [ONCE, PLAIN]), False),
        (PublishEach("t", [PLAIN]), False),
        (Schedule("t", [Delayed(ONCE, 1)]), True),
        (Schedule("t", [Delayed(PLAIN, 1)]), False),
        (ScheduleValues("t", [b"a"], 1), False),
        (answer(Kind.ACK, Kind.EXTEND), True),
        (answer(Kind.ACK, Kind.NACK), False),
    ],
)
def test_a_lost_reply_is_asked_for_again_if_nothing_happens_twice(command, expected):
    assert command.may_be_repeated() is expected
