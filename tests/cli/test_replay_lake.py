"""`penstock replay` over the seam of lake and log: every offset once, wherever it is; and to one group alone."""

import json
import shutil
from collections import Counter

import pytest

from penstock.cli.exits import Exit
from penstock.cli.replay_lake import LakeReplay
from penstock.cli.transfer import Run, Selection
from penstock.spark.pipelines.lake_messages import LakeMessages

from ..spark.pipelines.rigs import archived, publish
from .test_replay_command import started, until

pytestmark = pytest.mark.tier("test")

SHORT = {"segment_size_bytes": 4096, "retention_bytes": 4096}


def filled(client, name, count, *, first=0):
    """A topic of two partitions with a short retention, which takes nothing before `compact_topic`, and a target."""
    if not first:
        client.create_topic(name, partitions=2, **SHORT)
        client.create_topic(f"{name}-2", partitions=3)
    for start in range(first, first + count, 50):
        publish(client, name, 50, first=start)
    return name, f"{name}-2"


def values(client, topic):
    return Counter(int(one.value.removeprefix(b"value ")) for _, one in client.read(topic))


def test_every_offset_comes_once_over_the_seam_whatever_is_killed(url, call, client, tmp_path):
    source, target = filled(client, "seam", 950)
    with client.producer(source) as producer:
        for number in range(950, 1000):
            producer.send(b"value %d" % number, b"k%d" % number, headers={"n": b"%d" % number})
    originals = {one.value: one for _, one in client.read(source)}
    archived(tmp_path / "lake", url, source, commit_messages_max=300)
    filled(client, source, 100, first=1000)
    client.compact_topic(source)
    earliest = [client.topic(source).ends(number).earliest for number in (0, 1)]
    assert all(0 < one < 500 for one in earliest), "lake and log overlap"
    words = ["replay", source, "--to", target, "--lake", str(tmp_path / "lake")]
    plan = [json.loads(one) for one in call(*words, "--dry-run", "--json").out.splitlines()]
    assert [one["start"] for one in plan] == [0, 0]
    assert sum(one["left"] for one in plan) == 1100
    for rate in ("150", "330"):
        before = sum(values(client, target).values())
        process = started(url, *words, "--rate", rate)
        until(lambda before=before: sum(values(client, target).values()) > before)
        process.kill()
        process.communicate()
    done = json.loads(call(*words, "--json").out)
    assert done["done_before"] + done["messages"] == 1100
    assert values(client, target) == Counter(range(1100))
    for _, one in client.read(target):
        if one.value in originals:
            before = originals[one.value]
            facts = [(at.key, at.headers, at.timestamp) for at in (one, before)]
            assert facts[0] == facts[1]
        assert one.priority == 4
    # A time that only the lake knows: its first message of that time.
    moment = originals[b"value 120"].timestamp
    first = min(one.offset for one in originals.values() if one.timestamp >= moment)
    timed = call(*words, "--from-time", str(moment), "--dry-run", "--json").out.splitlines()
    assert min(json.loads(one)["start"] for one in timed) == first
    # The lake outlives the topic.
    client.delete_topic(source)
    client.create_topic("seam-3", partitions=1)
    words[3] = "seam-3"
    assert call(*words).code == Exit.OK
    assert values(client, "seam-3") == Counter(range(1000))
    kept = {one.value: (one.headers, one.timestamp) for _, one in client.read("seam-3")}
    assert kept == {value: (one.headers, one.timestamp) for value, one in originals.items()}


def test_what_retention_takes_while_it_runs_comes_from_the_lake(client, tmp_path):
    source, target = filled(client, "moving", 1000)
    archived(tmp_path, client.url, source)
    lake = LakeMessages(str(tmp_path), source)
    job = LakeReplay(
        kind="replay",
        name="moving",
        source=source,
        target=target,
        selection=Selection(),
        rate=400,
        lake=lake,
    )

    def take(run):
        if run.commits == 1:
            client.compact_topic(source)

    run = Run(client, job, 3, take)
    ranges = job.ranges(client)
    assert [one.start for one in ranges] == [0, 0]
    run.move(ranges)
    assert client.topic(source).ends(0).earliest > 0
    assert values(client, target) == Counter(range(1000))


def test_what_neither_has_is_refused_with_the_way_and_nothing_is_done(call, client, tmp_path):
    source, target = filled(client, "holes", 100)
    lake = tmp_path / "lake"
    archived(lake, client.url, source)
    filled(client, source, 1500, first=100)
    client.compact_topic(source)
    words = ["replay", source, "--to", target, "--lake", str(lake)]
    ends = LakeMessages(str(lake), source).partitions[0].end
    done = call(*words)
    assert (done.code, done.out, len(done.err.splitlines())) == (Exit.REFUSED, "", 1)
    assert f"offsets {ends} to " in done.err
    assert f"neither in the lake nor in the log: end with --until {ends}" in done.err
    assert values(client, target) == Counter()
    assert call(*words, "--partition", "0", "--until", str(ends)).code == Exit.OK
    assert sum(values(client, target).values()) == ends
    client.delete_topic(source)
    client.create_topic(source, partitions=2)
    done = call(*words, "--name", "again")
    assert (done.code, "from before the topic was made again" in done.err) == (Exit.REFUSED, True)


@pytest.mark.parametrize("job", ["replay", "restore"])
def test_a_store_that_goes_and_comes_back_leaves_nothing_half_done(
    url, call, client, tmp_path, job
):
    source, target = filled(client, f"away-{job}", 1000)[0], f"away-{job}-back"
    client.create_topic(target, partitions=2)
    lake, away = tmp_path / "lake", tmp_path / "away"
    archived(lake, url, source, commit_messages_max=200)
    client.delete_topic(source)
    words = {
        "replay": ["replay", source, "--to", target, "--lake", str(lake)],
        "restore": ["archive", "restore", str(lake), source, "--as", target],
    }[job]
    process = started(url, *words, "--rate", "200", errors=True)
    until(lambda: sum(values(client, target).values()) > 0)
    shutil.move(lake, away)
    out, err = process.communicate()
    assert (process.returncode, out, len(err.splitlines())) == (Exit.REFUSED, "", 1)
    assert "does not exist" in err
    assert max(values(client, target).values()) == 1
    shutil.move(away, lake)
    assert call(*words).code == Exit.OK
    assert values(client, target) == Counter(range(1000))


def test_one_group_alone_goes_back_while_the_log_has_the_range(call, client):
    source, _ = filled(client, "once-more", 1000)
    for group in ("old", "other"):
        ends = {one: client.topic(source).ends(one).latest for one in (0, 1)}
        client.commit(group, {source: {0: ends[0], 1: 10}})
    words = ["replay", source, "--group", "old"]
    plan = call(*words, "--partition", "0", "--from", "400", "--dry-run", "--json")
    (row,) = map(json.loads, plan.out.splitlines())
    assert (row["partition"], row["floor_after"], row["dry_run"]) == (0, 400, True)
    assert client.offsets("old")[source][0] == ends[0]
    assert call(*words, "--partition", "0", "--from", "400").code == Exit.OK
    # The other partition has still to be read from 10 on: no group goes forward.
    assert call(*words, "--from-time", "1ms").code == Exit.REFUSED
    assert client.offsets("old")[source] == {0: 400, 1: 10}
    assert client.offsets("other")[source] == {0: ends[0], 1: 10}
    (held,) = client.poll(source, "old", limit=1)
    busy = call(*words, "--partition", "0", "--from", "300")
    assert (busy.code, "in the hands of its members" in busy.err) == (Exit.REFUSED, True)
    assert client.offsets("old")[source] == {0: 400, 1: 10}
    client.nack(held)
    client.compact_topic(source)
    done = call(*words, "--partition", "0", "--from", "3")
    assert (done.code, len(done.err.splitlines())) == (Exit.REFUSED, 1)
    assert "with --lake --to a topic that group old alone reads" in done.err
    for option in (["--to", "x"], ["--lake", "x"], ["--sql", "x"], ["--until-time", "1h"]):
        done = call(*words, *option)
        assert (done.code, "reads on to its end" in done.err) == (Exit.USAGE, True)
    assert call("replay", source).code == Exit.USAGE
