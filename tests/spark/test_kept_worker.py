"""What Spark's collection after each task need not look at."""

import gc

import pytest

from penstock.spark.kept_worker import leave_loaded_alone


@pytest.fixture(autouse=True)
def afresh():
    leave_loaded_alone.cache_clear()
    yield
    gc.unfreeze()
    leave_loaded_alone.cache_clear()


def test_a_worker_that_spark_keeps_is_not_looked_through_after_every_task(monkeypatch):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    leave_loaded_alone()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    rings = []
    rings.append(rings)
    del rings
    leave_loaded_alone()
    # Fewer if something that was frozen has died meanwhile.
    assert gc.get_freeze_count() <= frozen, "later garbage is still found"


def test_any_other_process_is_left_as_it_is(monkeypatch):
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    leave_loaded_alone()
    assert gc.get_freeze_count() == 0
