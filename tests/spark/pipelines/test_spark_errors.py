"""An error of ours that a Spark worker raised is recognised in the traceback that Spark prints."""

import traceback

import pytest

from penstock import errors
from penstock.spark.pipelines.spark_errors import error_kind, penstock_error_in, rebuild_error


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_recognised_by_its_line(name: str) -> None:
    kind = getattr(errors, name)
    error = kind.__new__(kind, "broken")
    lines = ["Traceback (most recent call last):", *traceback.format_exception_only(error)]
    line = penstock_error_in([one.strip() for one in lines])
    assert line is not None
    assert error_kind(line) is kind


def test_errors_of_others_are_not_ours() -> None:
    assert (
        penstock_error_in(["ValueError: penstock.errors.Refused", "penstock.errorsome.X: y"])
        is None
    )


@pytest.mark.parametrize(
    "before",
    [
        "org.apache.spark.api.python.PythonException: ",
        "[STREAM_FAILED] Query [id = 7] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to commit: ",
    ],
)
def test_an_error_is_recognised_behind_what_spark_failed_to_do(before: str) -> None:
    line = "penstock.errors.requests.NotFound: there is no topic orders"
    assert penstock_error_in([before + line, "SQLSTATE: 38000"]) == line


def test_the_family_and_the_text_survive() -> None:
    line = "penstock.errors.requests.NotFound: there is no topic orders"
    again = rebuild_error("transform", line)
    assert type(again) is errors.Refused
    assert str(again) == "transform: there is no topic orders"
