"""What is typed into a form stays as it was typed while the screen behind it is refreshed, and is what is sent."""

import pytest

# A place, what opens the form there, its field, what is typed, and the route that the screen asks again.
FORMS = {
    "another time": ("delayed/forms", "Reschedule k", "delay", "2h", "/forms/delayed"),
    "a setting": (
        "topics/forms",
        "Change retention_hours",
        "value",
        "12",
        "/topics/forms/partitions",
    ),
    "partitions": ("topics/forms", "Add partitions", "count", "7", "/topics/forms/partitions"),
    "a new secret": ("keys", "Rotate a-readonly", "grace", "0s", "/admin/keys"),
    "a schedule": ("delayed/forms", "Move nightly", "cron", "5 4 * * *", "/forms/schedules"),
}


@pytest.fixture(scope="module")
def forms(broker):
    later = {"value": "x", "delay": "5h", "delay_key": "k"}
    broker.topic("forms")
    broker.call("POST", "/topics/forms/messages", {"messages": [later]})
    for key, timing in (("nightly", {"cron": "0 3 * * *"}), ("often", {"every": "1h"})):
        schedule = {"key": key, "value": "go", **timing}
        broker.call("POST", "/topics/forms/schedules", schedule)
    return broker


@pytest.mark.parametrize("form", FORMS)
def test_a_refresh_of_the_screen_leaves_what_is_typed(forms, visit, form):
    place, opens, field, typed, route = FORMS[form]
    visitor = visit()
    visitor.go(place)
    visitor.click(opens)
    visitor.fill(**{field: typed})
    visitor.refreshed(route)
    assert visitor.page.locator(f"dialog [name={field}]").input_value() == typed


def test_a_refresh_leaves_the_offset_that_is_typed(forms, visit):
    visitor = visit()
    visitor.go("messages/forms")
    visitor.choose("by", "offset")
    visitor.page.locator("[name=offset]").fill("7")
    visitor.refreshed("/partitions/0/messages")
    assert visitor.page.locator("[name=offset]").input_value() == "7"


def test_other_times_of_a_schedule_are_those_that_were_typed(forms, visit):
    visitor = visit()
    visitor.go("delayed/forms")
    visitor.click("Move often")
    visitor.fill(cron="0 5 * * *")
    visitor.click("Reschedule", within="dialog")
    visitor.sees("often comes 0 5 * * *")
    assert forms.call("GET", "/topics/forms/schedules/often")["cron"] == "0 5 * * *"
    visitor.click("Move often")
    visitor.fill(cron="0 6 * * *", every="2h")
    visitor.click("Reschedule", within="dialog")
    visitor.sees("not by both", within="dialog")
    assert forms.call("GET", "/topics/forms/schedules/often")["cron"] == "0 5 * * *"
