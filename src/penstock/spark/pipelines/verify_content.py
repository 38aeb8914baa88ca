"""Compares the rows of a lake with the messages that the broker still has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .lake_log import LogRows, sorted_rows
from .manifest import LakeFile
from .partitions import BrokerPartition, kept_fetches
from .rows import SCHEMA, lake_rows

if TYPE_CHECKING:
    from .verify import Verification


def compare_content(
    run: "Verification", now: BrokerPartition, end: int, live: Sequence[LakeFile]
) -> None:
    """A problem for the first message of a partition that is not in the lake as the broker has it.

    Memory is that of one answer of the broker and of the files that overlap with it.
    """
    files, client, report = run
    assert client is not None, "the broker was asked for this partition"
    at = now.earliest
    rows = LogRows(files, [one for one in live if one.last >= at])
    for fetched in kept_fetches(client, now.name, at):
        at = max(at, fetched.earliest)
        if fetched.seed != now.log or at >= end:
            return
        until = min(fetched.next_offset, end)
        found = [lake_rows(one, now.name.number, now.log) for one in fetched.record_batches()]
        theirs = _between(sorted_rows(found), at, until)
        problem = difference(theirs, _between(rows.below(until), at, until), now)
        if problem is not None:
            report.problem(f"{now.name}: {problem}")
            return
        report.compared += theirs.num_rows
        at = until


def _between(found: pa.Table, start: int, end: int) -> pa.Table:
    first, last = np.searchsorted(found.column("offset").to_numpy(), [start, end])
    return found.slice(int(first), int(last - first))


def difference(theirs: pa.Table, ours: pa.Table, now: BrokerPartition) -> str | None:
    """Returns what the lake has otherwise than the broker in a range of offsets; None if nothing."""
    broker = theirs.column("offset").to_numpy()
    lake = ours.column("offset").to_numpy()
    lost = np.setdiff1d(broker, lake)
    if len(lost):
        return f"offset {lost[0]} is in the broker, not in the lake"
    added = np.setdiff1d(lake, broker)
    if len(added) and not now.is_compacted:
        return f"offset {added[0]} is in the lake, not in the broker"
    if len(added):
        # Compaction has removed them since they were archived.
        ours = ours.filter(pa.array(np.isin(lake, broker)))
    if ours.equals(theirs):
        return None
    for name in SCHEMA.names:
        pairs = zip(ours.column(name).to_pylist(), theirs.column(name).to_pylist(), strict=True)
        for place, (own, other) in enumerate(pairs):
            if own != other:
                return f"offset {broker[place]} has another {name} in the lake than in the broker"
    return None
