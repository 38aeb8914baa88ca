"""Without an address `work`, `with_data` and a listener talk to the server that `penstock` on this machine means."""

import json
from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.errors import NotFound, Unreachable
from penstock.spark import with_data, work
from penstock.spark.pipelines.remote import Remote

AWAY = "penstock://127.0.0.1:1"
ROWS = SimpleNamespace(schema=StructType([StructField("value", BinaryType())]))
CALLS = {
    "work": lambda **more: work(None, "orders", "g", lambda rows: rows, once=True, **more),
    "with_data": lambda **more: with_data(ROWS, "orders-value", **more),
}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    for name in ("PENSTOCK_SERVER", "PENSTOCK_CONTEXT", "PENSTOCK_KEY", "PENSTOCK_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_CONTEXTS", str(tmp_path / "contexts.json"))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_server_of_the_environment_that_is_away_is_one_error(monkeypatch, call):
    monkeypatch.setenv("PENSTOCK_SERVER", AWAY)
    with pytest.raises(Unreachable, match=AWAY):
        call()
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:2"):
        call(url="penstock://127.0.0.1:2")


def test_the_current_context_is_meant_and_its_key_stays_where_it_is(monkeypatch, tmp_path):
    context = {"server": AWAY, "key_env": "SHOP_KEY"}
    text = json.dumps({"current": "shop", "contexts": {"shop": context}})
    (tmp_path / "contexts.json").write_text(text)
    monkeypatch.setenv("SHOP_KEY", "secret")
    remote = Remote.named(None, None, None)
    assert (remote.url, remote.key()) == (AWAY, "secret")
    assert "secret" not in repr(remote)
    (tmp_path / "key").write_text("another")
    assert Remote.named(None, str(tmp_path / "key"), None).key() == "another"
    assert Remote.named("penstock://else:9092", None, None).key() is None
    monkeypatch.setenv("PENSTOCK_CONTEXT", "none")
    with pytest.raises(NotFound, match="none"):
        Remote.named(None, None, None)
