"""What Spark's collection after each task need not look at."""

import gc

import pytest

from penstock.spark.batch import freeze_loaded_modules


@pytest.fixture(autouse=True)
def afresh():
    freeze_loaded_modules.cache_clear()
    yield
    gc.unfreeze()
    freeze_loaded_modules.cache_clear()


def test_a_worker_that_spark_keeps_is_not_looked_through_after_every_task(monkeypatch):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    freeze_loaded_modules()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    rings = []
    rings.append(rings)
    del rings
    freeze_loaded_modules()
    # Fewer if something that was frozen has died meanwhile.
    assert gc.get_freeze_count() <= frozen, "later garbage is still found"


def test_any_other_process_is_left_as_it_is(monkeypatch):
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    freeze_loaded_modules()
    assert gc.get_freeze_count() == 0
