"""The table of states, walked completely, and the page that is made from it."""

from pathlib import Path

import pytest

from .states import FINISHED, MEANINGS, NEXT, Event, State, can_become

DOCUMENT = Path(__file__).parents[2] / "docs" / "delivery.md"


def table() -> list[str]:
    """The rows of docs/delivery.md: where a message can go, and by what."""
    return [
        f"| {event.value} | {MEANINGS[event]} | {', '.join(starts(event))} | {ends(event)} |"
        for event in Event
    ]


def starts(event: Event) -> list[str]:
    return [state.name for state in State if (state, event) in NEXT]


def ends(event: Event) -> str:
    return ", ".join({end.name for (_, one), end in NEXT.items() if one is event})


def test_every_state_can_be_reached_and_left() -> None:
    reached = {end for (start, _), end in NEXT.items() if start is not end}
    assert reached == set(State)
    assert {start for start, _ in NEXT} == set(State)


def test_a_finished_message_comes_back_only_by_a_reopen_or_a_rewind() -> None:
    back = {event for (start, event), end in NEXT.items() if start in FINISHED}
    assert back == {Event.REOPEN, Event.REWIND}


def test_an_event_leads_to_one_state_whatever_the_message_was() -> None:
    for event in Event:
        assert len({end for (_, one), end in NEXT.items() if one is event}) == 1


@pytest.mark.parametrize("start", list(State))
@pytest.mark.parametrize("end", list(State))
def test_can_become_says_what_the_table_says(start: State, end: State) -> None:
    steps = {(one, after) for (one, _), after in NEXT.items()}
    assert can_become(start, end) == ((start, end) in steps)


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text()
    assert [row for row in table() if row not in text] == []
