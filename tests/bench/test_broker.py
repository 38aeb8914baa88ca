"""The race between brokers: every promised case, figures that are judged as said, who is left out and why."""

import time
from itertools import count

import pytest

from bench import broker
from bench.broker import OURS, Judge, Latencies, Participants, Race, cases
from bench.broker_ours import PenstockContender, following, running_ours
from bench.broker_peers import PEERS, BrokerPeer, Start
from bench.command import bench as command
from bench.floors import FloorTimes
from bench.measure import QUICK
from bench.plot import plot
from bench.report import result_of
from bench.table import peers_table, skipped
from penstock.cli.exits import Exit, run

PROMISED = {
    "publish_binary",
    "consume_messages",
    "consume_arrow",
    "fetch_ack",
    "worker",
    "publish_latency",
    "end_to_end_latency",
    "kafka_publish",
    "kafka_consume",
}


def test_promised_cases_are_there():
    found = {case.name: case for case in broker.CASES}
    assert found.keys() >= PROMISED
    assert all(found[name].goal is not None for name in PROMISED)


@pytest.fixture
def judge(monkeypatch):
    """A race whose figures are known."""
    race = Race(Participants(["redis", "beanstalkd"]))
    rates = {OURS: 2_000_000.0, "redis": 100_000.0, "beanstalkd": 30_000.0}
    monkeypatch.setattr(race, "publishing", lambda _effort, _size: rates)
    monkeypatch.setattr(race, "by_kafka_client", lambda _effort: (700_000.0, 300_000.0))
    monkeypatch.setattr(race, "consuming", lambda _effort: rates)
    monkeypatch.setattr(race, "answering_each", lambda _effort: {OURS: 1.0})
    times = {OURS: (90.0, 200.0), "async": (180.0, 300.0), "redis": (53.0, 100.0)}
    floors = FloorTimes(echo=(20.0, 50.0), fsync=(60.0, 400.0))
    monkeypatch.setattr(race, "latency", lambda _effort: Latencies(times, floors))
    race.participants.skipped["beanstalkd"] = (
        "beanstalkd is not installed: apt-get install beanstalkd"
    )
    return Judge(race)


def judged(judge, name, monkeypatch):
    monkeypatch.setattr(broker, "Judge", lambda _race: judge)
    (case,) = [case for case in cases(["redis"]) if case.name == name]
    return result_of("broker", case, case.measure(QUICK))


def test_kafka_is_taken_from_redis_in_the_same_run(judge, monkeypatch):
    result = judged(judge, "publish_binary", monkeypatch)
    assert result.baseline_value == pytest.approx(870_000)
    assert result.ok
    assert result.settings["peers"] == {"redis": 100_000.0, "beanstalkd": 30_000.0}
    latency = judged(judge, "publish_latency", monkeypatch)
    assert latency.ok
    assert latency.baseline_value == pytest.approx(102)
    assert judged(judge, "publish_latency_async", monkeypatch).ok
    assert (latency.settings["floor_echo"], latency.settings["of_floor_echo"]) == (20.0, 4.5)
    slowest = judged(judge, "publish_latency_p99", monkeypatch)
    assert (slowest.settings["floor_fsync"], slowest.settings["of_floor_fsync"]) == (400.0, 0.5)
    lines = peers_table([result, latency]).splitlines()
    assert lines[0].split() == ["case", "unit", "penstock", "redis", "beanstalkd", "async"]
    assert skipped([result])["beanstalkd"].endswith("apt-get install beanstalkd")


def test_a_kafka_client_is_judged_by_kafka_and_noted_by_our_own(judge, monkeypatch):
    published = judged(judge, "kafka_publish", monkeypatch)
    assert published.ratio == pytest.approx(700_000 / 870_000)
    assert published.ok
    assert published.settings["of_our_own_client"] == 0.35
    consumed = judged(judge, "kafka_consume", monkeypatch)
    assert consumed.ratio == pytest.approx(300_000 / 240_000)
    assert consumed.settings["of_our_own_client"] == 0.15


@pytest.mark.tier("test")
def test_the_picture_shows_everybody(judge, monkeypatch, tmp_path):
    result = judged(judge, "publish_binary", monkeypatch)
    plot([result], tmp_path / "race.svg")
    drawn = (tmp_path / "race.svg").read_text()
    assert "<!-- beanstalkd -->" in drawn
    assert "<!-- publish_binary -->" in drawn


def test_without_a_peer_nothing_is_judged(judge, monkeypatch):
    result = judged(judge, "worker", monkeypatch)
    assert (result.ok, result.missing) == (None, ("beanstalkd",))


def test_a_peer_that_is_not_there_is_left_out_with_the_command_that_gets_it(monkeypatch):
    missing = BrokerPeer(
        name="absent",
        program="no-such-broker",
        package="json",
        install="apt-get install no-such-broker",
        durability="none",
        start=lambda program, _data, _port: Start([program]),
    )
    broken = BrokerPeer(
        name="broken",
        program="false",
        package="json",
        install="",
        durability="none",
        start=lambda program, _data, _port: Start([program]),
    )
    monkeypatch.setitem(PEERS, "absent", missing)
    monkeypatch.setitem(PEERS, "broken", broken)
    monkeypatch.setitem(broker.CLIENTS, "broken", lambda _port: None)
    participants = Participants(["absent", "broken"])
    monkeypatch.setattr(participants, "_client", _unless_ours(participants._client))
    assert list(participants.contenders()) == [OURS]
    assert (
        participants.skipped["absent"]
        == "no-such-broker is not installed: apt-get install no-such-broker"
    )
    assert "broken ended with 1" in participants.skipped["broken"]
    participants.close()


def _unless_ours(start):
    return lambda name: None if name == OURS else start(name)


def test_unknown_peers_and_other_benches_are_refused(capsys):
    assert run(command, ["broker", "--peers", "redsi"]) == Exit.USAGE
    assert "redis" in capsys.readouterr().err
    assert run(command, ["codec", "--peers", "redis"]) == Exit.USAGE


@pytest.mark.tier("test")
def test_our_own_part_of_the_race_does_all_of_its_work():
    values, topics = [b"%0100d" % number for number in range(500)], count()
    with running_ours() as port:
        ours = PenstockContender(port)
        for work in (ours.consume, ours.consume_arrow, ours.fetch_ack, ours.fetch_ack_each):
            topic = f"race-{next(topics)}"
            ours.publish(topic, values)
            work(topic, len(values))
            ours.remove(topic)
        ours.open("late")
        with following(OURS, port, "late", 3) as process:
            broker.await_ready(ours, "late", process.stdout.fileno())
            assert process.stdout.readline() == "ready\n"
            started_ns = time.monotonic_ns()
            broker.pace(ours, "late", 3)
            late_ns = broker.json.loads(process.stdout.readlines()[-1])
            assert len(late_ns) == 3
            assert all(0 < one < time.monotonic_ns() - started_ns for one in late_ns)
        ours.close()
