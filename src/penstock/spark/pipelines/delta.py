"""Adds the commits of a lake to a Delta table, so that readers of Delta see whole commits only.

The manifest decides; the Delta log follows. Each commit of the lake is one transaction of the Delta log, with the
lake's identity and the commit's number as its application transaction, so a repetition changes nothing. Entries of the
log are written here, by `create`: deltalake has no call that adds and removes files with `dataChange: false`, which
tells readers of changes that a merge has no new rows. deltalake reads the log, and makes its checkpoints.
"""

import json
import time
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from msgspec import to_builtins

from ...errors import AlreadyExists, Damaged, Refused
from .lake import Lake
from .manifest import LakeFile, Manifest
from .s3_store import storage_options
from .schema import Column
from .store import S3_SCHEME

_LOG = "_delta_log"
_FOLDER_KINDS = {"topic": "string", "date": "date", "hour": "string"}
# Delta's own default.
CHECKPOINT_VERSIONS = 100


def publish(lake: Lake, manifest: Manifest) -> None:
    """Add a commit to the Delta table of a lake, unless it is there."""
    if not manifest.files:
        return
    while True:
        table = _table(lake)
        done = None if table is None else table.transaction_version(lake.identity.lake)
        if done is not None and done >= manifest.commit:
            return
        version = 0 if table is None else table.version() + 1
        actions = [*_metadata(lake, manifest, table), *_changes(lake, manifest)]
        text = "\n".join(json.dumps(one, separators=(",", ":")) for one in actions)
        try:
            lake.store.create(f"{_LOG}/{version:020d}.json", f"{text}\n".encode())
        except AlreadyExists:
            continue  # Another program has written to the table.
        if version and version % CHECKPOINT_VERSIONS == 0 and (now := _table(lake)) is not None:
            now.create_checkpoint()
        return


def _table(lake: Lake) -> DeltaTable | None:
    """Returns the Delta table of a lake, None if it has no commit yet. Damaged; Unavailable: the store went away."""
    options = storage_options() if lake.store.url.startswith(S3_SCHEME) else None
    try:
        with lake.store.translated(_LOG):
            return DeltaTable(lake.store.url, storage_options=options)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise Damaged(f"the Delta log of {lake.store.url}: {str(error)[:200]}") from None


def _metadata(lake: Lake, manifest: Manifest, table: DeltaTable | None) -> list[dict[str, Any]]:
    """Returns the entries of a new table, or of one that lacks columns of the lake; otherwise none.

    A commit without files may have brought them, which is not in the Delta log.
    """
    folders = list(manifest.files[0].folders)
    if table is not None and not manifest.columns:
        known = {one.name for one in table.schema().fields}
        if known.issuperset(one.name for one in lake.now.columns):
            return []
    columns = [_field(one) for one in lake.now.columns]
    columns += [_field(Column(name, _FOLDER_KINDS[name])) for name in folders]
    schema = {"type": "struct", "fields": columns}
    own = {
        "id": lake.identity.lake if table is None else str(table.metadata().id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": folders,
        "configuration": {},
        "createdTime": int(time.time() * 1000),
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}] if table is None else []
    return [*first, {"metaData": own}]


def _field(column: Column) -> dict[str, Any]:
    """Returns a column as Delta's schema has it, with `metadata` in every field. Refused: Delta has no such type."""
    found: Any = _with_metadata(to_builtins(column))
    if column.type == "timestamp_ntz":
        raise Refused(f"column {column.name}: a Delta table takes timestamps with a time zone only")
    return {**found, "metadata": {}}


def _with_metadata(kind: Any) -> Any:
    """Returns a type with `metadata` in the fields of its structs."""
    if isinstance(kind, list):
        return [_with_metadata(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    found = {name: _with_metadata(one) for name, one in kind.items()}
    return {**found, "metadata": {}} if "nullable" in found else found


def _changes(lake: Lake, manifest: Manifest) -> list[dict[str, Any]]:
    now = int(time.time() * 1000)
    operation = "OPTIMIZE" if manifest.is_merge else "WRITE"
    folders = {} if not manifest.is_merge else _folders_of(manifest)
    return [
        {"commitInfo": {"timestamp": now, "operation": operation, "engineInfo": "penstock"}},
        {"txn": {"appId": lake.identity.lake, "version": manifest.commit, "lastUpdated": now}},
        *(_removed(one, now, folders) for one in manifest.replaced),
        *(_added(one, now, is_new=not manifest.is_merge) for one in manifest.files),
    ]


def _folders_of(manifest: Manifest) -> dict[str, dict[str, str]]:
    """Returns the columns that are folders, by the folder of a path: a merge stays within one."""
    return {one.path.rpartition("/")[0]: one.folders for one in manifest.files}


def _removed(path: str, now: int, folders: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": now,
            "dataChange": False,
            "extendedFileMetadata": False,
            "partitionValues": folders[path.rpartition("/")[0]],
        }
    }


def _added(file: LakeFile, now: int, *, is_new: bool) -> dict[str, Any]:
    statistics = {
        "numRecords": file.rows,
        "minValues": {name: found[0] for name, found in file.ranges.items()},
        "maxValues": {name: found[1] for name, found in file.ranges.items()},
    }
    return {
        "add": {
            "path": file.path,
            "partitionValues": file.folders,
            "size": file.size,
            "modificationTime": now,
            "dataChange": is_new,
            "stats": json.dumps(statistics, separators=(",", ":")),
        }
    }
