"""What the classes of commands say of themselves."""

from string import Formatter

import pytest

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.publish import Delayed, Publish, PublishEach, Schedule, ScheduleValues
from penstock.api.schedules import GetSchedule, RunSchedule
from penstock.api.wire import CALLS
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


@pytest.mark.parametrize("call", CALLS.values(), ids=lambda call: call.kind.__name__)
def test_audit_lines_name_what_is_there(call):
    for _, name, _, _ in Formatter().parse(call.kind.audit_line):
        if name is not None:
            source, _, path = name.partition(".")
            kind = {"command": call.kind, "reply": call.reply}[source]
            first = path.partition(".")[0]
            assert hasattr(kind, first) if first else source == "reply", name
    assert not (call.kind.is_audited_first and "reply" in call.kind.audit_line)
