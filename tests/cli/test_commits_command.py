"""`penstock commits` against a server process."""

import json

import pytest

from penstock.cli.exits import Exit

pytestmark = pytest.mark.tier("test")


def test_names_are_listed_shown_and_forgotten(call, client):
    client.create_topic("committed", partitions=1)
    for sequence in (3, 4):
        with client.staging("nightly", sequence, "job-1", attempt="task 9") as staging:
            staging.publish("committed", b"x")
        if sequence == 3:
            client.commit_stagings("nightly", 3, "job-1", [staging.handle])
    listed = [json.loads(line) for line in call("commits", "list", "--json").out.splitlines()]
    (row,) = [one for one in listed if one["name"] == "nightly"]
    assert (row["sequence"], row["writer"]) == (3, "job-1")
    assert (row["staging_count"], row["staged_messages"]) == (1, 1)
    assert "nightly" in call("commits", "list").out
    shown = json.loads(call("commits", "show", "nightly", "--json").out)
    assert shown["offsets"] == [{"topic": "committed", "partition": 0, "offset": 0, "count": 1}]
    (waiting,) = shown["stagings"]
    assert (waiting["staging"], waiting["attempt"]) == (staging.handle.staging, "task 9")
    assert (
        f"{staging.handle.staging}: sequence 4, 1 messages"
        in call("commits", "show", "nightly").out
    )
    done = call("commits", "reset", "nightly")
    assert (done.code, done.out) == (Exit.OK, "nightly is forgotten; its last commit was 3\n")
    missing = call("commits", "show", "nightly")
    assert missing.code == Exit.REFUSED
    assert "nightly" in missing.err
