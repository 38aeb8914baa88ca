"""What is sent back or discarded is what the screen showed: by error, in which moment, and how many."""

import json


def errors_left(broker, topic):
    return [one["lastError"] for one in broker.call("GET", f"/topics/{topic}/dlq")["dead_letters"]]


def test_an_error_of_many_lines_is_chosen_by_its_first(broker, visit):
    trace = "lamp broke\n  in light()\n  line "
    broker.dead_letters("lamps", trace + "1", trace + "2", "", "lamp")
    visitor = visit()
    visitor.go("dead-letters/lamps")
    visitor.click("lamp broke")
    visitor.sees("2 dead letters, filtered")
    visitor.click("Open dead letter 0 1")
    visitor.sees("line 2", within="dialog")
    visitor.click("Close", within="dialog")
    visitor.click("Discard")
    visitor.confirm("lamps", "Discard")
    visitor.sees("2 dead letters discarded")
    assert errors_left(broker, "lamps") == ["", "lamp"]
    visitor.click("Show all")
    visitor.click("none was given")
    visitor.sees("1 dead letter, filtered")
    rows = visitor.page.get_by_role("region", name="Dead letters", exact=True).locator("tbody tr")
    assert rows.count() == 1


def test_what_became_of_the_first_ones_is_shown_also_if_they_were_all(broker, visit):
    broker.dead_letters("few", "e", "e")
    visitor = visit()
    visitor.go("dead-letters/few")
    visitor.click("Send back")
    visitor.click("Send the first ones")
    visitor.sees("2 dead letters went back", within="dialog")
    visitor.sees("back with the group", within="dialog")
    visitor.sees("There are no others", within="dialog")
    visitor.sees("No dead letters")


def test_one_that_died_again_is_not_among_the_others_that_go_back(broker, visit):
    broker.dead_letters("again", *["first"] * 3)
    visitor = visit()
    visitor.go("dead-letters/again")
    visitor.click("Send back")
    visitor.fill(limit="1")
    visitor.click("Send the first ones")
    visitor.sees("back with the group", within="dialog")
    [held] = broker.poll("again", "billing")
    body = {"receipt_handle": held["receipt_handle"], "reason": "once more"}
    broker.call("POST", "/messages/reject", body)
    visitor.sees("a dead letter again", within="dialog")
    broker.letters("again", 3)
    visitor.click("Send the other 2")
    visitor.sees("2 dead letters went back to the group")
    assert errors_left(broker, "again") == ["once more"]


def test_one_that_dies_while_the_question_is_open_is_not_discarded(broker, visit):
    broker.dead_letters("late", "first")
    visitor = visit()
    visitor.go("dead-letters/late")
    visitor.click("Discard")
    visitor.sees("1 dead letter will not be listed", within="dialog")
    broker.call("POST", "/topics/late/messages", {"messages": [{"value": "x"}]})
    [held] = broker.poll("late", "billing")
    body = {"receipt_handle": held["receipt_handle"], "reason": "second"}
    broker.call("POST", "/messages/reject", body)
    broker.letters("late", 2)
    visitor.confirm("late", "Discard")
    visitor.sees("1 dead letter discarded")
    assert errors_left(broker, "late") == ["second"]


def test_an_edit_of_one_that_is_gone_is_not_said_to_have_gone_back(broker, visit):
    broker.dead_letters("gone", "e")
    visitor = visit()
    visitor.go("dead-letters/gone")
    visitor.click("Open dead letter 0 0")
    visitor.click("Edit and send back")
    visitor.fill(value="new")
    broker.call("POST", "/topics/gone/dlq/discard", {"all": True})
    visitor.click("Send back to the topic")
    visitor.sees("It is no dead letter any more", within="dialog")
    assert broker.call("GET", "/topics/gone")["total_messages"] == 1


def test_what_changes_is_shown_also_at_the_end_of_a_large_value(broker, visit):
    items = [{"item": number} for number in range(3000)]
    broker.topic("tall", json.dumps(items))
    [held] = broker.poll("tall", "billing")
    body = {"receipt_handle": held["receipt_handle"], "reason": "wrong"}
    broker.call("POST", "/messages/reject", body)
    broker.letters("tall", 1)
    visitor = visit()
    visitor.go("dead-letters/tall")
    visitor.click("Open dead letter 0 0")
    visitor.click("Edit and send back")
    items[2990]["item"] = 17
    visitor.fill(value=json.dumps(items))
    for line in ('-     "item": 2990', '+     "item": 17', '"item": 2989', '"item": 2991'):
        visitor.sees(line, within="dialog .diff")


def test_more_than_a_page_of_them_can_be_looked_through(broker, visit):
    broker.dead_letters("crowd", *["e"] * 120)
    visitor = visit("readonly")
    visitor.go("dead-letters/crowd")
    visitor.sees("120 dead letters")
    visitor.click("Later")
    visitor.page.get_by_role("button", name="Open dead letter 0 119").wait_for()
    assert visitor.page.get_by_role("button", name="Open dead letter 0 0", exact=True).count() == 0
    visitor.click("The first")
    visitor.page.get_by_role("button", name="Open dead letter 0 0", exact=True).wait_for()
