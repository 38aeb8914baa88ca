"""Adds the files of a lake to a Delta table, so that readers of Delta see whole commits only.

The manifest decides; the Delta log follows. Each commit of the lake is one transaction of the Delta log, with the
lake's identity and the commit's number as its application transaction, so a repetition changes nothing.
"""

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from .lake import Lake
from .manifest import LakeFile, Manifest

_KINDS = {"topic": pa.string(), "date": pa.date32(), "hour": pa.string()}


def publish(lake: Lake, manifest: Manifest) -> None:
    """Add the files of a commit to the Delta table of a lake, unless they are in it."""
    if not manifest.files:
        return
    folders = list(manifest.files[0].folders)
    table = _table(lake, manifest.files[0])
    done = table.transaction_version(lake.identity.lake)
    if done is not None and done >= manifest.commit:
        return
    mark = Transaction(lake.identity.lake, manifest.commit)
    table.create_write_transaction(
        [_added(one) for one in manifest.files],
        mode="append",
        schema=table.schema(),
        partition_by=folders,
        commit_properties=CommitProperties(app_transactions=[mark]),
    )


def _table(lake: Lake, first: LakeFile) -> DeltaTable:
    """Returns the table of a lake; a new one has the columns of its first file."""
    try:
        return DeltaTable(str(lake.root))
    except TableNotFoundError:
        columns = pq.read_schema(lake.path_of(first))
        fields = [*columns, *(pa.field(name, _KINDS[name]) for name in first.folders)]
        schema = Schema([Field.from_arrow(one) for one in fields])
        return DeltaTable.create(str(lake.root), schema, partition_by=list(first.folders))


def _added(file: LakeFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.folders),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
