"""The Spark bench has every case that is promised. Measuring takes a session of Spark, so nothing is measured here."""

from bench import spark
from bench.spark import spread
from bench.spark_standin import ready_batches
from penstock.spark.columns import DEFAULT_COLUMNS
from penstock.spark.decoder import arrow_schema

PROMISED = {"read_noop", "read_count", "read_groupby", "files_noop", "trigger_overhead"}


def test_promised_cases_are_there():
    assert {case.name for case in spark.CASES} >= PROMISED
    assert all(case.goal is not None for case in spark.CASES)


def test_the_stand_in_has_the_shape_of_the_source():
    batches = list(ready_batches(25_000))
    assert sum(batch.num_rows for batch in batches) == 25_000
    assert all(batch.schema.equals(arrow_schema(DEFAULT_COLUMNS)) for batch in batches)


def test_every_turn_is_told_and_the_middle_of_the_pairs():
    told = spread([100.0, 300.0, 90.0], [100.0, 150.0, 100.0])
    assert told["pairs_median"] == 1.0
    assert told["rates"] == {"ours": [100, 300, 90], "baseline": [100, 150, 100]}
