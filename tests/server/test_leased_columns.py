"""A poll's answer in binary is the same, whether it is known beforehand that messages are bare or not."""

import msgspec
import pytest

from penstock.api.leased import LeasedMessages, LeasedPart
from penstock.api.receipts import Place
from penstock.model import MessageColumns
from penstock.server.http.consume import leased_response


def bare(offsets, times):
    count = len(offsets)
    values = [b"v%d" % one if one % 3 else None for one in offsets]
    columns = MessageColumns(
        values,
        [None] * count,
        [()] * count,
        [2] * count,
        times,
        *[[None] * count] * 3,
        offsets,
    )
    return LeasedPart(Place("t", 0, 5), 1, columns, 1, True)


@pytest.mark.parametrize(
    "parts",
    [
        [bare(range(3), [77] * 3)],
        [bare(range(3), [77, 78, 90])],
        [bare(range(3), [77] * 3), bare(range(5, 9), [80] * 4)],
    ],
    ids=["one time", "times of their own", "two batches"],
)
def test_what_is_known_beforehand_changes_no_byte(parts):
    looked_at = [msgspec.structs.replace(one, is_bare=False) for one in parts]
    known, unknown = (leased_response(LeasedMessages(*some), {}) for some in (parts, looked_at))
    assert bytes(known.body) == bytes(unknown.body)
