"""`penstock schedule` against a server."""

import json

from penstock.cli.exits import Exit


def test_from_creation_to_deletion(call, client):
    client.create_topic("cli-jobs", partitions=1)
    words = ("cli-jobs", "nightly", "report", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    made = call("schedule", "create", *words, "--header", "a=1", "--priority", "high", "--json")
    assert made.code == Exit.OK
    found = json.loads(made.out)
    assert (found["key"], found["cron"], found["value"]) == ("nightly", "0 3 * * *", "report")
    assert (found["headers"], found["priority"]) == ([["a", "1"]], "high")
    assert call("schedule", "create", *words).code == Exit.REFUSED
    again = call("schedule", "create", *words, "--if-missing", "--json")
    assert json.loads(again.out) == found
    listed = call("schedule", "list", "cli-jobs")
    assert "0 3 * * * Europe/Berlin" in listed.out
    delayed = call("delay", "list", "cli-jobs")
    assert "nightly" in delayed.out
    (shown,) = map(json.loads, call("delay", "list", "cli-jobs", "--json").out.splitlines())
    assert (shown["key"], shown["next_due"]) == ("nightly", found["next_due"])
    paused = json.loads(call("schedule", "pause", "cli-jobs", "nightly", "--json").out)
    assert (paused["paused"], paused["next_due"]) == (True, None)
    resumed = call("schedule", "resume", "cli-jobs", "nightly")
    assert "comes at" in resumed.out
    ran = json.loads(call("schedule", "run", "cli-jobs", "nightly", "--json").out)
    assert (ran["partition"], ran["offset"]) == (0, 0)
    shown = json.loads(call("schedule", "show", "cli-jobs", "nightly", "--json").out)
    assert shown["version"] == 3
    assert call("schedule", "delete", "cli-jobs", "nightly", "--yes").code == Exit.OK
    assert call("schedule", "show", "cli-jobs", "nightly").code == Exit.REFUSED
    assert "no schedules" in call("schedule", "list", "cli-jobs").err


def test_what_is_wrong_costs_one_line(call, client):
    client.create_topic("cli-wrong", partitions=1)
    both = call("schedule", "create", "cli-wrong", "s", "x", "--cron", "@daily", "--every", "1h")
    assert both.code == Exit.USAGE
    bad = call("schedule", "create", "cli-wrong", "s", "x", "--cron", "99 * * * *")
    assert bad.code == Exit.REFUSED
    assert "minute is 0 to 59" in bad.err
    assert call("schedule", "create", "cli-wrong", "s", "x", "--every", "5").code == Exit.USAGE
