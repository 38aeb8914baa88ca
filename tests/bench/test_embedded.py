"""The embedded bench runs and reports every case that is promised. No timings here."""

import pytest

from bench import embedded, queues
from bench.measure import Effort
from bench.report import result_of

BRIEF = Effort(turns=3, turn_ms_min=1)
PROMISED = {"put", "put_many", "get", "get_many_ack", "put_fsync_threads", "delivery_cycle"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, count in (("OURS", 200), ("THEIRS", 5), ("ROUNDS", 1), ("PUTS_A_THREAD", 2)):
        monkeypatch.setattr(embedded, name, count)
    for name in ("CYCLE", "SMALL_BACKLOG", "FILL"):
        monkeypatch.setattr(embedded, name, 4000)
    monkeypatch.setattr(embedded, "LARGE_BACKLOG_QUICK", 8000)
    # One that is quick: what the others do is not ours to test, and they take seconds.
    for table in ("PEERS", "SYNCED_PEERS"):
        peers = {name: one for name, one in getattr(embedded, table).items() if "WAL" in name}
        monkeypatch.setattr(embedded, table, peers)
    yield
    embedded.one_by_one.cache_clear()
    embedded.cycles.cache_clear()


def test_promised_cases_are_there():
    assert {case.name for case in embedded.CASES} >= PROMISED


@pytest.mark.tier("test")
def test_every_case_measures_something_and_is_judged():
    for case in embedded.CASES:
        result = result_of("embedded", case, case.measure(BRIEF))
        assert result.value > 0, case.name
        assert result.ok is not None, case.name
        assert case.baseline is None or result.baseline_value > 0


def test_payloads_are_distinct():
    values = embedded.make_values(5000)
    assert len(set(values)) == 5000
    assert {len(value) for value in values} == {embedded.VALUE_BYTES}


@pytest.mark.parametrize("name", [*queues.PEERS, *queues.SYNCED_PEERS])
def test_peer_gives_back_what_it_was_given_in_order(name, tmp_path):
    peer = (queues.PEERS | queues.SYNCED_PEERS)[name]
    with peer.open(tmp_path / "peer") as contender:
        for number in range(3):
            contender.put(b"%d" % number)
        for _ in range(3):
            contender.get()
        contender.put(b"more")
        contender.get()


def test_missing_peer_is_named(monkeypatch):
    monkeypatch.setitem(
        embedded.PEERS, "nothing", queues.QueuePeer("no_such_package", queues.sqlite_wal)
    )
    assert embedded.measure_one_by_one("put", BRIEF).missing == ("nothing",)
