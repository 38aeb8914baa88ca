"""Every screen with a readonly, a consumer and an admin key: what is shown, what is offered, and to whom."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .visitor import PATIENCE_MS

SEEN = {
    "readonly": "Overview, Topics, Messages, Groups, In flight, Dead letters, Delayed, Lanes, Transactions, "
    "Schemas, Pipelines",
    "consumer": "Overview, Topics, Messages, Groups, In flight, Dead letters, Delayed, Schemas, Pipelines",
    "admin": "Overview, Topics, Messages, Groups, In flight, Dead letters, Delayed, Lanes, Transactions, Schemas, "
    "Pipelines, Keys, Audit, Settings",
}
# By screen: a place, what every role that sees it finds there, and what only an administrator is offered.
PLACES = {
    "Overview": [("overview", "billing", [])],
    "Topics": [
        ("topics", "orders", ["Create topic"]),
        ("topics/orders", "How long messages are kept", ["Delete", "Add partitions"]),
    ],
    "Messages": [("messages/orders", '"order": 1', ["Publish a message"])],
    "Groups": [
        ("groups", "billing", []),
        ("groups/billing", "idle", ["Reset", "Delete"]),
    ],
    "In flight": [("in-flight/billing", "orders/0/2", ["Release", "Dead-letter"])],
    "Dead letters": [("dead-letters/orders", "no lamps left", ["Send back", "Discard"])],
    "Delayed": [
        ("delayed/orders", "remind dave", ["Cancel dave", "Reschedule dave"]),
        ("delayed/orders", "nightly", ["Pause nightly", "Run nightly now", "Delete nightly"]),
    ],
    "Lanes": [("lanes/orders", "background", [])],
    "Transactions": [
        ("transactions", "shop", []),
        ("transactions", "sink-orders", ["Forget sink-orders"]),
    ],
    "Schemas": [("schemas/orders-value", "What version 2 changed", [])],
    "Pipelines": [("pipelines", "lake-orders", [])],
    "Keys": [("keys", "a-readonly", ["Create key"])],
    "Audit": [("audit", "create a topic", [])],
    "Settings": [("settings", "topic.num_partitions", [])],
}
PICTURES = os.environ.get("PENSTOCK_PICTURES", "")
"""The directory for pictures of docs/console.md, if they are to be taken for it."""
PICTURE_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def orders(broker):
    """A topic with something of everything."""
    broker.dead_letters("orders", "no lamps left", "card expired")
    broker.call(
        "POST",
        "/topics/orders/messages",
        {"messages": [{"value": '{"order": 1}', "key": "ann", "headers": {"source": "shop"}}] * 9},
    )
    later = {"value": "remind dave", "delay": "2h", "delay_key": "dave"}
    broker.call("POST", "/topics/orders/messages", {"messages": [later]})
    broker.poll("orders", "billing", 3)
    # A member of a shared group that holds nothing.
    broker.call("GET", "/topics/orders/messages?group=billing&max=1&owner=waits&priority=low")
    nightly = {"key": "nightly", "cron": "0 3 * * *", "value": "go"}
    broker.call("POST", "/topics/orders/schedules", nightly)
    staging = {"sequence": 0, "writer": "driver"}
    broker.call("POST", "/commits/sink-orders/stagings", staging)
    session = broker.call("POST", "/producers/init", {"transactional_id": "shop"})
    broker.call("POST", "/transactions/publish", {**session, "topic": "orders", "value": "x"})
    for more in ("", ', {"name": "note", "type": "string", "default": ""}'):
        schema = f'{{"type": "record", "name": "Order", "fields": [{{"name": "id", "type": "int"}}{more}]}}'
        broker.call("POST", "/subjects/orders-value/versions", {"schema": schema})
    report = {"kind": "archive", "state": "running", "topics": ["orders"], "target": "lake"}
    broker.call("PUT", "/pipelines/lake-orders", report)
    return broker


@pytest.mark.parametrize("role", SEEN)
def test_each_role_sees_its_screens_and_is_offered_what_it_may_do(orders, visit, role):
    visitor = visit(role)
    seen = SEEN[role].split(", ")
    assert visitor.screens() == seen
    for screen in seen:
        for place, text, actions in PLACES[screen]:
            visitor.go(place)
            visitor.sees(text)
            offered = [one for one in actions if visitor.offers(one)]
            assert offered == (actions if role == "admin" else []), place
            assert visitor.faults() == [], place


def test_screens_that_a_role_may_not_see_are_not_there_by_their_address_either(orders, visit):
    visitor = visit("readonly")
    for place in ("keys", "audit", "settings", "nothing"):
        visitor.go(place)
        visitor.sees("There is no such screen")


def test_dark_on_a_phone_by_keyboard(orders, visit):
    visitor = visit("admin", viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = visitor.page
    visitor.go("topics")
    assert visitor.faults() == []
    # Nothing but tables is wider than the screen.
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Groups", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Groups", level=1).wait_for()
    # The heading of a new screen has the focus, so a screen reader reads it.
    expect(page.get_by_role("heading", level=1)).to_be_focused(timeout=PATIENCE_MS)
    visitor.go("topics")
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    assert visitor.faults() == []
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


def test_a_wrong_key_does_not_get_in_and_a_good_one_ends_with_the_tab(orders, visit):
    visitor = visit(None)
    assert visitor.faults() == []
    visitor.page.get_by_label("Key").fill("pk-nobody.nothing")
    visitor.click("Log in")
    visitor.page.get_by_role("alert").wait_for()
    # The browser notes the refusal by itself.
    assert [one for one in visitor.problems if "401" not in one] == []
    visitor.problems.clear()
    visitor.log_in(orders.keys["readonly"])
    visitor.page.reload()
    visitor.page.get_by_role("navigation").wait_for()
    assert visitor.page.evaluate("JSON.stringify(localStorage)").find(orders.keys["readonly"]) < 0
    visitor.click("Log out")
    visitor.page.get_by_label("Key").wait_for()
    assert visitor.page.evaluate("sessionStorage.length") == 0


def test_what_is_no_key_and_what_is_refused_leave_a_way_in(orders, visit):
    visitor = visit(None)
    visitor.page.get_by_label("Key").fill("pk-copied\u200b.along")
    visitor.click("Log in")
    visitor.sees("That is no key")
    visitor.page.route(
        "**/whoami", lambda one: one.fulfill(status=429, json={"message": "too many failed keys"})
    )
    visitor.page.get_by_label("Key").fill("pk-nobody.nothing")
    visitor.click("Log in")
    visitor.sees("too many failed keys")
    visitor.page.unroute("**/whoami")
    visitor.click("Use another key")
    visitor.log_in(orders.keys["readonly"])
    assert all("429" in one for one in visitor.problems)
    visitor.problems.clear()


def test_addresses_and_names_that_scripts_stumble_over(orders, visit):
    orders.topic("constructor")
    orders.poll("orders", "toString")
    visitor = visit("readonly")
    visitor.page.goto(f"{orders.address}/#/nothing%")
    visitor.sees("There is no such screen")
    visitor.page.reload()
    visitor.sees("There is no such screen")
    visitor.go("lanes/constructor")
    visitor.sees("No group reads this topic yet")
    visitor.go("groups/toString")
    visitor.sees("behind")


def test_a_revoked_key_leads_back_to_the_login(orders, visit):
    made = orders.call("POST", "/admin/keys", {"name": "short", "role": "readonly"})
    visitor = visit(None)
    visitor.log_in(made["key"])
    visitor.go("in-flight/billing")
    orders.call("DELETE", f"/admin/keys/{made['key_id']}")
    visitor.page.get_by_label("Key").wait_for()
    assert all("401" in one for one in visitor.problems)
    visitor.problems.clear()


def test_pictures_for_the_documentation(orders, visit, tmp_path):
    # Curves need some rows of the last hour, which come every ten seconds.
    rows, count = 8 if PICTURES else 1, 0
    while len(orders.call("GET", "/stats/recent")["times"]) < rows:
        count += 1
        messages = [{"value": f'{{"order": {count}}}', "key": f"customer-{count % 7}"}] * (
            count % 5 + 1
        )
        orders.call("POST", "/topics/orders/messages", {"messages": messages})
        for group in ("stock", "shipping", "billing")[: count % 4]:
            held = orders.poll("orders", group, 3)
            receipts = [one["receipt_handle"] for one in held]
            orders.call("POST", "/messages/ack", {"receipt_handles": receipts})
    visitor = visit("admin", viewport={"width": 1200, "height": 760})
    for name in (
        "overview",
        "messages/orders",
        "dead-letters/orders",
        "lanes/orders",
        "delayed/orders",
    ):
        visitor.go(name)
        if name == "overview":
            visitor.page.locator("canvas").first.wait_for()
        path = Path(PICTURES or tmp_path) / f"console-{name.partition('/')[0]}.png"
        visitor.page.screenshot(path=path)
        assert path.stat().st_size < PICTURE_BYTES_MAX
