"""A click does one thing, to what it was meant for, and leaves a keyboard where it was."""


def focused(visitor):
    return visitor.page.evaluate(
        "document.activeElement.ariaLabel ?? document.activeElement.innerText"
    )


def test_a_double_click_runs_a_schedule_once(broker, visit):
    broker.topic("twice")
    body = {"key": "nightly", "cron": "0 3 * * *", "value": "go"}
    broker.call("POST", "/topics/twice/schedules", body)
    visitor = visit()
    visitor.go("delayed/twice")
    visitor.page.get_by_role("button", name="Run nightly now").dblclick()
    visitor.sees("nightly is published at offset 0")
    visitor.click("Run nightly now")
    visitor.sees("nightly is published at offset 1")
    assert broker.call("GET", "/topics/twice")["total_messages"] == 2


def test_the_focus_stays_with_its_row_when_the_order_changes(broker, visit):
    broker.topic("order")
    for key, every in (("early", "100h"), ("later", "200h")):
        body = {"key": key, "every": every, "value": "go"}
        broker.call("POST", "/topics/order/schedules", body)
    visitor = visit()
    visitor.go("delayed/order")
    visitor.page.get_by_role("button", name="Pause early").focus()
    broker.call("PATCH", "/topics/order/schedules/early", {"every": "300h"})
    visitor.page.locator("main tbody tr").first.get_by_text("later").wait_for()
    assert focused(visitor) != "Pause later"
    visitor.page.get_by_role("button", name="Pause later").focus()
    broker.call("PATCH", "/topics/order/schedules/later", {"every": "400h"})
    visitor.page.locator("main tbody tr").first.get_by_text("early").wait_for()
    assert focused(visitor) != "Pause early"


def test_a_dialog_gives_the_focus_back_however_it_ends(broker, visit):
    broker.topic("focus", "x")
    visitor = visit()
    visitor.go("messages/focus")
    for end in ("Close", "Escape"):
        visitor.page.get_by_role("button", name="Open offset 0").press("Enter")
        visitor.page.locator("dialog[open]").wait_for()
        if end == "Close":
            visitor.click("Close", within="dialog")
        else:
            visitor.page.keyboard.press("Escape")
        visitor.page.locator("dialog").wait_for(state="detached")
        assert focused(visitor) == "Open offset 0", end
