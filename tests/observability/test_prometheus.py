"""The text format of Prometheus, as its own documentation says it."""

import re

import pytest

from penstock.api.health import Sample
from penstock.observability.prometheus import Histogram, render

LINE = re.compile(r'penstock_info\{version="1",broker="((?:[^"\\\n]|\\["\\n])*)"\} 1')
ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@pytest.mark.parametrize("name", ["plain", 'a "b"', "c:\\d", "\\n", "two\nlines", '\\"', '"\\\n\\'])
def test_a_label_is_read_as_it_was_written(name):
    _, _, line = render([Sample("penstock_info", {"version": "1", "broker": name}, 1)]).split(
        b"\n"
    )[:3]
    found = LINE.fullmatch(line.decode())
    assert found is not None, line
    assert re.sub(r"\\.", lambda one: ESCAPED[one[0]], found[1]) == name


def test_buckets_count_everything_up_to_their_bound():
    one = Histogram("penstock_fsync_seconds", {}, (0.1, 0.5), (3, 2, 1), 1.25)
    lines = render([one]).decode().splitlines()
    assert [line for line in lines if line.startswith("penstock_fsync_seconds")] == [
        'penstock_fsync_seconds_bucket{le="0.1"} 3',
        'penstock_fsync_seconds_bucket{le="0.5"} 5',
        'penstock_fsync_seconds_bucket{le="+Inf"} 6',
        "penstock_fsync_seconds_sum 1.25",
        "penstock_fsync_seconds_count 6",
    ]
