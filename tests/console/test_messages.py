"""Messages are shown as they are now: the newest, the one that was chosen, and all of its key and headers."""

import base64
import os


def test_the_latest_messages_are_the_latest_also_if_they_are_large(broker, visit):
    broker.topic("large")
    for number in range(30):
        noise = base64.b64encode(os.urandom(90_000)).decode()
        message = {"value": f"{number:02} {noise}"}
        broker.call("POST", "/topics/large/messages", {"messages": [message]})
    visitor = visit("readonly")
    visitor.go("messages/large")
    visitor.page.get_by_role("button", name="Open offset 29").wait_for()
    assert visitor.page.get_by_role("button", name="Later").is_disabled()


def asked_from(offset):
    def go_on(route):
        route.continue_(url=route.request.url.replace("offset=0", f"offset={offset}"))

    return go_on


def test_one_that_is_found_and_gone_is_not_opened_as_another(broker, visit):
    broker.topic("passing")
    messages = [{"key": "k", "value": "1"}, {"key": "other", "value": "2"}]
    broker.call("POST", "/topics/passing/messages", {"messages": messages})
    visitor = visit("readonly")
    visitor.go("messages/passing")
    visitor.choose("by", "key")
    visitor.page.locator("[name=text]").fill("k")
    visitor.click("Show")
    visitor.sees("Published", within="main th")
    for following in (1, 2):
        # What is left of a partition whose first messages went: the next message, or its end.
        visitor.page.route("**/messages?offset=0*", asked_from(following))
        visitor.click("0", within="main tbody")
        visitor.sees("Offset 0 is not there any more")
        visitor.click("Close the note")
        visitor.page.unroute("**/messages?offset=0*")
    assert visitor.page.locator("dialog").count() == 0


def test_a_search_is_made_again_when_it_is_asked_for_again(broker, visit):
    broker.topic("asked", "one lamp")
    visitor = visit("readonly")
    visitor.go("messages/asked")
    visitor.choose("by", "value")
    visitor.page.locator("[name=text]").fill("lamp")
    visitor.click("Show")
    visitor.sees("1 message searched")
    broker.call("POST", "/topics/asked/messages", {"messages": [{"value": "two lamps"}]})
    visitor.click("Show")
    visitor.sees("2 messages searched")


def test_a_key_and_headers_are_shown_to_their_end(broker, visit):
    broker.topic("long")
    message = {
        "value": "x",
        "key": "k" * 300 + "end of the key",
        "headers": {"trace": "t" * 300 + "end of the trace", "id": {"base64": "AP+A"}},
        "priority": "high",
    }
    broker.call("POST", "/topics/long/messages", {"messages": [message]})
    visitor = visit("readonly")
    visitor.go("messages/long")
    visitor.click("Open offset 0")
    for text in ("end of the key", "end of the trace", "00 ff 80", "high"):
        visitor.sees(text, within="dialog dd")


def test_no_key_and_a_key_that_says_so_are_told_apart(broker, visit):
    broker.topic("keys")
    messages = [
        {"value": "x", "key": None},
        {"value": "x", "key": "null"},
        {"value": "x", "key": ""},
    ]
    broker.call("POST", "/topics/keys/messages", {"messages": messages})
    visitor = visit("readonly")
    visitor.go("messages/keys")
    rows = visitor.page.locator("main tbody tr").all_inner_texts()
    assert [row.split("\t")[2].strip() for row in rows] == ["(null)", "null", "(empty)"]


def test_the_time_that_was_asked_for_stays_there(broker, visit):
    broker.topic("times", "x")
    visitor = visit("readonly")
    visitor.go("messages/times")
    visitor.choose("by", "time")
    visitor.page.locator("[name=text]").fill("2020-01-01T10:00:00")
    visitor.click("Show")
    visitor.sees("offsets 0 to 1")
    assert visitor.page.locator("[name=text]").input_value().startswith("2020-01-01T10:00")
