"""Lists are whole, or say that they are not, and their figures are those of what is listed."""

import json

UNKNOWN = "\N{EN DASH}"


def test_older_lines_of_the_audit_log_have_no_gap_before_them(broker, visit):
    for number in range(130):
        broker.topic(f"noted-{number}")
    visitor = visit()
    visitor.go("audit")
    visitor.click("Older lines")
    visitor.sees("Older lines are below")
    for number in range(130, 150):
        broker.topic(f"noted-{number}")
    visitor.refreshed("/admin/audit")
    visitor.click("Show more")
    lines = visitor.page.locator("main tbody tr").all_inner_texts()
    noted = [line.split("\t")[3] for line in lines if "create a topic" in line]
    assert noted[:130] == [f"noted-{number}" for number in reversed(range(130))]
    visitor.click("Newest lines")
    visitor.sees("noted-149")


def test_messages_in_flight_that_are_not_listed_are_told(broker, visit):
    def cut(route):
        route.fulfill(json={**route.fetch().json(), "cursor": "more"})

    broker.topic("held", "1")
    broker.poll("held", "many")
    visitor = visit("readonly")
    visitor.page.route("**/groups/many/inflight*", cut)
    visitor.go("in-flight/many")
    visitor.sees("These are the first 1; there are more.")


def test_a_filter_that_nothing_matches_does_not_say_that_nothing_is_there(broker, visit):
    broker.topic("lists", "1")
    broker.poll("lists", "listed")
    later = {"value": "x", "delay": "9h", "delay_key": "ann"}
    broker.call("POST", "/topics/lists/messages", {"messages": [later]})
    visitor = visit("readonly")
    visitor.go("groups")
    visitor.page.get_by_role("searchbox").fill("nothing")
    visitor.sees("No group has “nothing” in its name")
    visitor.go("delayed/lists")
    visitor.page.get_by_role("searchbox").fill("nothing")
    visitor.sees("No key of these messages has “nothing” in it")


def test_the_rate_of_a_pipeline_is_that_between_its_reports(broker, visit):
    report = {"kind": "archive", "state": "running", "target": "lake"}

    def rate(messages):
        broker.call("PUT", "/pipelines/slow", {**report, "messages": messages})
        visitor.refreshed("/pipelines")
        row = visitor.page.locator("main tbody tr").filter(has_text="slow")
        return row.locator("td").nth(6).inner_text()

    visitor = visit("readonly")
    visitor.go("pipelines")
    assert rate(0) == UNKNOWN
    assert rate(1_000_000) not in {UNKNOWN, "0"}
    assert rate(5) == UNKNOWN


def test_numbers_are_not_rounded_in_schemas_and_settings(broker, visit):
    broker.topic("numbers")
    field = {"name": "id", "type": "long", "default": 2**53 + 1}
    schema = json.dumps({"type": "record", "name": "Sum", "fields": [field]})
    broker.call("POST", "/subjects/numbers-value/versions", {"schema": schema})
    visitor = visit()
    visitor.go("schemas/numbers-value")
    visitor.sees('"default": 9007199254740993', within="main pre")
    visitor.go("topics/numbers")
    visitor.click("Change retention_bytes")
    visitor.fill(value=str(2**53 + 1))
    visitor.click("Change", within="dialog")
    visitor.sees("too large to be sent as it is", within="dialog")


def test_a_group_with_shared_members_is_not_called_empty(broker, visit):
    broker.topic("shared", "1")
    broker.poll("shared", "sharers")
    visitor = visit("readonly")
    visitor.go("groups/sharers")
    visitor.sees("shared: shared")
    assert "empty" not in visitor.page.locator("main .lead").inner_text()


def test_how_long_a_topic_keeps_messages_is_not_rounded_to_hours(broker, visit):
    for name, hours in (("kept-a-quarter", 0.25), ("kept-a-week", 168)):
        broker.topic(name, retention_hours=hours)
    visitor = visit("readonly")
    visitor.go("topics")
    row = visitor.page.locator("main tbody tr")
    assert "15 min 0 s" in row.filter(has_text="kept-a-quarter").inner_text()
    assert "7 d 0 h" in row.filter(has_text="kept-a-week").inner_text()
