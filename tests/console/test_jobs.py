"""The main job of each screen, done by an administrator in a browser; the broker is asked what came of it."""

import base64


def names(broker):
    return broker.call("GET", "/topics")["topics"]


def test_a_topic_is_created_changed_grown_and_deleted_by_its_name(broker, visit):
    visitor = visit()
    visitor.go("topics")
    visitor.sees("penstock topic create")
    visitor.click("Create topic")
    visitor.fill(name="invoices", partitions="2")
    visitor.click("Create topic", within="dialog")
    visitor.page.get_by_role("heading", name="invoices", level=1).wait_for()
    visitor.click("Change retention_hours")
    visitor.fill(value="12")
    visitor.click("Change", within="dialog")
    visitor.sees("not the usual")
    visitor.click("Add partitions")
    visitor.fill(count="5")
    visitor.click("Add partitions", within="dialog")
    visitor.sees("3 partitions were added")
    topic = broker.call("GET", "/topics/invoices")
    assert (topic["partitions"], topic["config"]["retention_hours"]) == (5, 12)
    visitor.click("Delete")
    visitor.confirm("invoices", "Delete topic")
    visitor.page.get_by_role("heading", name="Topics", level=1).wait_for()
    assert "invoices" not in names(broker)


def test_what_the_broker_refuses_is_said_and_changes_nothing(broker, visit):
    visitor = visit()
    broker.topic("taken")
    visitor.go("topics")
    visitor.click("Create topic")
    visitor.fill(name="taken")
    visitor.click("Create topic", within="dialog")
    visitor.page.locator("dialog").get_by_role("alert").wait_for()
    # The browser notes the 409 by itself.
    assert all("409" in one for one in visitor.problems)
    visitor.problems.clear()


def test_a_message_is_published_read_and_followed(broker, visit):
    broker.topic("letters")
    visitor = visit()
    visitor.go("messages/letters")
    visitor.sees("penstock produce letters")
    visitor.click("Publish a message")
    visitor.fill(value='{"to": "ann"}', key="k1", headers='{"source": "console"}')
    visitor.click("Publish", within="dialog")
    visitor.sees("Published at offset 0")
    visitor.click("Open offset 0")
    visitor.sees('"to": "ann"', within="dialog pre")
    visitor.click("Hex", within="dialog")
    visitor.sees("7b 22 74 6f", within="dialog pre")
    visitor.click("Show the journey")
    visitor.sees("publish.received", within="dialog")
    assert visitor.faults() == []
    visitor.click("Close", within="dialog")
    for way, text in (("key", "k1"), ("header", "source=console")):
        visitor.choose("by", way)
        visitor.page.locator("[name=text]").fill(text)
        visitor.click("Show")
        visitor.sees("Published", within="main th")
    visitor.choose("by", "value")
    visitor.page.locator("[name=text]").fill("nothing like it")
    visitor.click("Show")
    visitor.sees("1 message searched")
    visitor.choose("by", "offset")
    visitor.click("Show")
    visitor.sees("k1", within="main table")


def test_a_group_is_reset_after_it_was_said_what_would_happen(broker, visit):
    broker.topic("stream", *"abc")
    receipts = [one["receipt_handle"] for one in broker.poll("stream", "readers", 3)]
    broker.call("POST", "/messages/ack", {"receipt_handles": receipts})
    assert broker.call("GET", "/groups/readers/lag")["total"] == 0
    visitor = visit()
    visitor.go("groups/readers")
    visitor.click("Reset")
    visitor.click("What would happen?")
    visitor.sees("This is what would happen", within="dialog")
    assert broker.call("GET", "/groups/readers/lag")["total"] == 0
    assert visitor.faults() == []
    visitor.click("Reset the group")
    visitor.sees("3 messages behind")
    assert broker.call("GET", "/groups/readers/lag")["total"] == 3
    visitor.click("Delete")
    visitor.confirm("readers", "Delete group")
    visitor.page.get_by_role("heading", name="Groups", level=1).wait_for()
    assert "readers" not in broker.call("GET", "/groups")["groups"]


def test_messages_in_flight_are_extended_released_and_made_dead_letters(broker, visit):
    broker.topic("work", "1", "2")
    broker.poll("work", "crew", 2)
    visitor = visit()
    visitor.go("in-flight/crew")
    visitor.page.get_by_label("Choose work 0 0").check()
    visitor.click("Extend by 60 s")
    visitor.sees("1 of 1 extended")
    visitor.page.get_by_label("Choose work 0 0").check()
    visitor.click("Release")
    visitor.sees("1 of 1 released")
    visitor.no_longer_sees("work/0/0")
    visitor.page.get_by_label("Choose work 0 1").check()
    visitor.click("Dead-letter")
    visitor.confirm("crew", "Dead-letter")
    visitor.sees("1 of 1 are dead letters")
    visitor.sees("No message is held now")
    assert [one["originalValue"] for one in broker.letters("work", 1)] == ["2"]


def test_the_first_dead_letters_go_back_and_then_the_rest(broker, visit):
    broker.dead_letters("jobs", *["no lamps left"] * 4, "card expired", "card expired")
    visitor = visit()
    visitor.go("dead-letters")
    visitor.page.get_by_role("link", name="jobs").click()
    visitor.sees("6 dead letters")
    visitor.click("no lamps left")
    visitor.sees("4 dead letters, filtered")
    visitor.click("Send back")
    visitor.fill(limit="1")
    visitor.click("Send the first ones")
    visitor.sees("back with the group", within="dialog")
    assert visitor.faults() == []
    back = broker.poll("jobs", "billing", 10)
    assert len(back) == 1
    broker.call("POST", "/messages/ack", {"receipt_handle": back[0]["receipt_handle"]})
    visitor.sees("done", within="dialog tbody")
    visitor.click("Send the other 3")
    visitor.sees("3 dead letters went back to the group")
    assert len(broker.poll("jobs", "billing", 10)) == 3
    left = broker.call("GET", "/topics/jobs/dlq")["dead_letters"]
    assert {one["lastError"] for one in left} == {"card expired"}


def test_a_dead_letter_is_edited_and_sent_back_and_others_are_discarded(broker, visit):
    broker.dead_letters("bills", "wrong", "wrong", "wrong")
    visitor = visit()
    visitor.go("dead-letters/bills")
    visitor.click("Open dead letter 0 1")
    visitor.click("Edit and send back")
    visitor.fill(value='{"order": 17}', key="ann", headers="source: console")
    for line in ('-   "order": 1', '+   "order": 17', "+ key: ann", "+ header source: console"):
        visitor.sees(line, within="dialog .diff")
    visitor.click("Send back to the topic")
    visitor.sees("The edited message went back")
    visitor.sees("2 dead letters")
    back = broker.poll("bills", "billing")[0]
    assert (back["value"], back["key"]) == ('{"order": 17}', "ann")
    assert back["headers"] == [["source", "console"]]
    visitor.click("Discard")
    visitor.confirm("bills", "Discard")
    visitor.sees("2 dead letters discarded")
    visitor.sees("No dead letters")
    assert broker.call("GET", "/topics/bills/dlq")["dead_letters"] == []


def test_a_delayed_message_comes_at_once_and_another_never(broker, visit):
    broker.topic("later")
    messages = [{"value": one, "delay": "5h", "delay_key": one} for one in ("soon", "never")]
    broker.call("POST", "/topics/later/messages", {"messages": messages})
    visitor = visit()
    visitor.go("delayed/later")
    visitor.click("Reschedule soon")
    visitor.fill(delay="0s")
    visitor.click("Reschedule", within="dialog")
    visitor.sees("It comes at")
    assert [one["value"] for one in broker.poll("later", "g")] == ["soon"]
    visitor.click("Cancel never")
    visitor.confirm("never", "Cancel the message")
    visitor.sees("Cancelled: it will not come")
    visitor.sees("No message waits for its time")


def test_a_key_is_made_shown_once_rotated_and_revoked(broker, visit):
    visitor = visit()
    visitor.go("keys")
    visitor.click("Create key")
    visitor.fill(name="shop", prefixes="orders")
    visitor.page.locator("dialog select").select_option("producer")
    visitor.click("Create key", within="dialog")
    visitor.page.locator("dialog pre").wait_for()
    made = visitor.page.locator("dialog pre").inner_text()
    assert made.startswith("pk-")
    visitor.click("Close", within="dialog")
    assert made not in visitor.page.content()
    visitor.click("Rotate shop")
    visitor.click("Make a new secret")
    visitor.page.locator("dialog pre").wait_for()
    assert visitor.page.locator("dialog pre").inner_text() != made
    visitor.click("Close", within="dialog")
    visitor.click("Revoke shop")
    visitor.confirm("shop", "Revoke key")
    visitor.sees("The key of shop is revoked")
    assert "shop" not in [one["name"] for one in broker.call("GET", "/admin/keys")["keys"]]
    visitor.go("audit")
    visitor.sees(f"key {made.partition('.')[0]} revoked")


def test_an_open_transaction_is_aborted(broker, visit):
    broker.topic("ledger")
    session = broker.call("POST", "/producers/init", {"transactional_id": "booker"})
    broker.call("POST", "/transactions/publish", {**session, "topic": "ledger", "value": "x"})
    visitor = visit()
    visitor.go("transactions")
    visitor.sees("1 message staged")
    visitor.page.get_by_role("button", name="Abort").click()
    visitor.confirm("booker", "Abort")
    visitor.sees("Aborted: nothing of it will be seen")
    visitor.sees("0 messages staged")


def test_a_schema_is_registered_checked_and_compared(broker, visit):
    visitor = visit()
    visitor.go("schemas")
    visitor.click("Register a schema")
    plain = '{"type": "record", "name": "Bill", "fields": [{"name": "id", "type": "int"}]}'
    visitor.fill(subject="bills-value", schema=plain)
    visitor.click("Register")
    visitor.page.get_by_role("heading", name="bills-value", level=1).wait_for()
    visitor.sees("BACKWARD")
    visitor.click("Check a new version")
    visitor.fill(schema=plain.replace("]}", ', {"name": "sum", "type": "int"}]}'))
    visitor.click("Check", within="dialog")
    visitor.sees("Not compatible", within="dialog")
    visitor.fill(schema=plain.replace("]}", ', {"name": "sum", "type": "int", "default": 0}]}'))
    visitor.click("Check", within="dialog")
    visitor.sees("It is compatible", within="dialog")
    visitor.click("Register", within="dialog")
    visitor.sees("What version 2 changed")
    assert broker.call("GET", "/subjects/bills-value/versions") == [1, 2]


def test_a_schedule_is_made_paused_run_now_moved_and_deleted(broker, visit):
    broker.topic("reports")
    visitor = visit()
    visitor.go("delayed/reports")
    visitor.sees("penstock schedule create reports")
    visitor.click("Create schedule")
    visitor.fill(key="nightly", cron="0 3 * * *", value="go")
    visitor.click("Create schedule", within="dialog")
    visitor.click("Pause nightly")
    visitor.sees("nightly is paused")
    assert broker.call("GET", "/topics/reports/schedules/nightly")["paused"]
    visitor.click("Run nightly now")
    visitor.sees("nightly is published at offset 0")
    assert [one["value"] for one in broker.poll("reports", "g")] == ["go"]
    visitor.click("Move nightly")
    visitor.fill(every="6h")
    assert visitor.faults() == []
    visitor.click("Reschedule", within="dialog")
    visitor.sees("nightly comes every 6 h")
    assert broker.call("GET", "/topics/reports/schedules/nightly")["every_ms"] == 21_600_000
    visitor.click("Delete nightly")
    visitor.confirm("nightly", "Delete schedule")
    visitor.sees("nightly comes no more")
    assert broker.call("GET", "/topics/reports/schedules")["schedules"] == []


def test_lanes_tell_their_shares_and_waits_for_a_group(broker, visit):
    broker.topic("mail")
    for priority in ("critical", "background"):
        messages = [{"value": priority, "priority": priority}] * 3
        broker.call("POST", "/topics/mail/messages", {"messages": messages})
    broker.poll("mail", "senders", 2)
    visitor = visit("readonly")
    visitor.go("lanes/mail")
    visitor.sees("Lanes of mail for senders", within="main")
    rows = visitor.page.locator("main tbody tr").all_inner_texts()
    critical, background = (rows[lane].split("\t") for lane in (0, 4))
    # Waiting, in flight, its share, its share of the last minute.
    assert critical[1:5] == ["1", "2", "50 %", "100 %"]
    assert background[1:5] == ["3", "0", "3 %", "0 %"]


def test_a_name_of_commits_is_forgotten(broker, visit):
    staging = {"sequence": 7, "writer": "driver"}
    broker.call("POST", "/commits/loader/stagings", staging)
    visitor = visit()
    visitor.go("transactions")
    visitor.click("Forget loader")
    visitor.confirm("loader", "Forget")
    visitor.sees("loader is forgotten")
    visitor.no_longer_sees("loader", within="main table")
    assert "loader" not in [one["name"] for one in broker.call("GET", "/commits")["commits"]]


def test_a_value_is_shown_as_its_schema_has_it(broker, visit):
    broker.topic("typed")
    schema = '{"type": "record", "name": "Sum", "fields": [{"name": "cents", "type": "long"}]}'
    made = broker.call("POST", "/subjects/typed-value/versions", {"schema": schema})
    # Zigzag of 2**53 + 1, which a script's numbers cannot hold.
    written = bytes([0, 0, 0, 0, made["id"], 0x82, *[0x80] * 6, 0x20])
    value = {"base64": base64.b64encode(written).decode()}
    broker.call("POST", "/topics/typed/messages", {"messages": [{"value": value}]})
    visitor = visit("consumer")
    visitor.go("messages/typed")
    visitor.click("Open offset 0")
    visitor.click("Schema", within="dialog")
    visitor.sees('"cents": 9007199254740993', within="dialog pre")
    assert visitor.faults() == []
