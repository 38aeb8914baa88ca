"""Pipelines that need no YAML, as far as nothing runs."""

import pytest

from penstock.errors import Refused
from penstock.model import check_name
from penstock.spark.pipelines.ad_hoc import archive_pipeline

SERVER = {"server": "penstock://127.0.0.1:1"}


def name_of(lake, **more):
    return archive_pipeline(["orders"], str(lake), server=SERVER, **more).name


def test_lakes_with_one_name_are_two_pipelines(tmp_path, monkeypatch):
    one, two = tmp_path / "a" / "lake", tmp_path / "b" / "lake"
    one.mkdir(parents=True)
    assert name_of(one) != name_of(two)
    assert name_of(one).startswith("archive.lake.")
    monkeypatch.chdir(one)
    assert name_of(".") == name_of(one) == name_of(two / ".." / ".." / "a" / "lake")


def test_the_name_of_a_lake_is_the_same_in_every_version():
    assert name_of("/data/lake") == "archive.lake.096d8846"


@pytest.mark.parametrize("written", ["/", "/data/" + "x" * 255, "/data/Läke (1)", "/data/é" * 30])
def test_any_directory_gives_a_name_that_the_broker_takes(written):
    check_name(name_of(written), "pipeline")


def test_a_name_may_be_given_and_is_checked():
    assert name_of("/data/lake", name="orders-lake") == "orders-lake"
    with pytest.raises(Refused, match="pipeline"):
        name_of("/data/lake", name="a b")
