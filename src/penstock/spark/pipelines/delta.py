"""Adds the commits of a lake to a Delta table, so that readers of Delta see whole commits only.

The manifest decides; the Delta log follows. Each commit of the lake is one transaction of the Delta log, with the
lake's identity and the commit's number as its application transaction, so a repetition changes nothing. Entries of the
log are written here, by `create`: deltalake has no call that adds and removes files with `dataChange: false`, which
tells readers of changes that a merge has no new rows. deltalake reads the log, and makes its checkpoints.

The table is a view of the lake. It carries a writer feature that no other program has, and each publication compares
its files with those of the manifests: what another program rewrote is refused and not written over.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from msgspec import to_builtins

from ...errors import AlreadyExists, Damaged, NotFound, Refused
from .lake import Lake, LakeReader
from .manifest import NO_VALUE, LakeFile, Manifest
from .s3_store import storage_options
from .schema import Column, folder_columns
from .state import LakeState
from .store import S3_SCHEME

_LOG = "_delta_log"
# Delta's own default.
CHECKPOINT_VERSIONS = 100
_ENGINE = "penstock"
# A feature that other programs do not have keeps those that follow the protocol from writing. Readers read on.
_FEATURE = "penstock"
_PROTOCOL: dict[str, Any] = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": [_FEATURE],
}
_FEATURES = {_FEATURE, "appendOnly", "invariants"}
_RELEASED = "penstock.released"
_HISTORY_LOOKED_AT = 20
_REBUILD = "`penstock archive delta-rebuild` makes the table anew from the manifests"


def publish(lake: Lake, manifest: Manifest) -> None:
    """Add a commit to the Delta table of a lake, unless it is there.

    Refused: another program has rewritten the table, or it was released, or needs what this program does not write.
    """
    while True:
        table = open_table(lake)
        done = -1 if table is None else table.transaction_version(lake.identity.lake)
        is_done = done is not None and done >= manifest.commit
        before = lake.now.files.keys() - {file.path for file in manifest.files}
        require_own(
            lake, table, lake.now.files.keys() if is_done else before | {*manifest.replaced}
        )
        if is_done or not manifest.files:
            return
        if _write(lake, table, [*_metadata(lake, manifest, table), *_changes(lake, manifest)]):
            return


def require_own(lake: LakeReader, table: DeltaTable | None, expected: Collection[str]) -> None:
    """Refused, unless a table has exactly these files, and may be written by this program. None: there is no log."""
    root = lake.store.url
    if table is None:
        if expected:
            raise Refused(
                f"the Delta log of {root} is gone, and the lake has {len(expected)} files: {_REBUILD}"
            )
        return
    if is_released(table):
        raise Refused(f"the Delta table of {root} was released to other programs: {_REBUILD}")
    protocol = table.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    if features - _FEATURES or versions not in {(1, 2), (1, 7)}:
        needs = ", ".join([f"versions {versions}", *sorted(features - _FEATURES)])
        raise Refused(
            f"another program changed the protocol of the Delta table of {root}: {needs}. {_REBUILD}"
        )
    if difference := difference_of(table, expected):
        raise Refused(
            f"another program rewrote the Delta table of {root}: {difference}. {_REBUILD}"
        )


def is_released(table: DeltaTable | None) -> bool:
    """Whether a table was given to other programs."""
    return table is not None and table.metadata().configuration.get(_RELEASED) == "true"


def difference_of(table: DeltaTable, expected: Collection[str]) -> str:
    """Returns how the files of a table differ from those of its lake, and who did it; empty if they do not."""
    live = live_files(table)
    gone, others = sorted({*expected} - live.keys()), sorted(live.keys() - {*expected})
    parts = []
    if gone:
        parts.append(f"{len(gone)} files of the lake are not in it, such as {gone[0]}")
    if others:
        parts.append(f"{len(others)} are no files of the lake, such as {others[0]}")
    if parts and (writer := _last_foreign(table)):
        parts.append(f"last written by {writer}")
    return ", ".join(parts)


def live_files(table: DeltaTable) -> dict[str, str]:
    """Returns the paths of all files of a table, each with what the log has for it."""
    return {unquote(path): path for path in table.get_add_actions().column("path").to_pylist()}


def _last_foreign(table: DeltaTable) -> str:
    """Returns which operation of which program changed the table last; empty if the log tells of none."""
    for entry in table.history(_HISTORY_LOOKED_AT):
        if entry.get("engineInfo") != _ENGINE:
            engine = entry.get("engineInfo") or "another program"
            return f"{engine} ({entry.get('operation', 'no operation')}, version {entry.get('version', '?')})"
    return ""


def _write(lake: Lake, table: DeltaTable | None, actions: Sequence[dict[str, Any]]) -> bool:
    """Write the next entry of the log. False: another program has written it first."""
    version = 0 if table is None else table.version() + 1
    text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
    try:
        lake.store.create(f"{_LOG}/{version:020d}.json", f"{text}\n".encode())
    except AlreadyExists:
        return False
    if version and version % CHECKPOINT_VERSIONS == 0 and (now := open_table(lake)) is not None:
        now.create_checkpoint()
    return True


def rebuild(lake: Lake) -> int:
    """Make the Delta table what the manifests say; how many files it gained and lost. For a lake that this process has.

    Damaged: files of the lake are not there, so that nothing could be read.
    """
    files = lake.now.files
    if missing := [path for path in files if not lake.store.has(path)]:
        raise Damaged(
            f"{len(missing)} files of {lake.root} are gone, such as {missing[0]}: `penstock archive verify` lists them"
        )
    while True:
        table, now = open_table(lake), int(time.time() * 1000)
        live = {} if table is None else live_files(table)
        folders = next(([*file.folders] for file in files.values()), [])
        others, lost = sorted(live.keys() - files.keys()), sorted(files.keys() - live.keys())
        actions = [
            _info("RESTORE", now),
            {
                "txn": {
                    "appId": lake.identity.lake,
                    "version": lake.now.commits - 1,
                    "lastUpdated": now,
                }
            },
            {"protocol": _PROTOCOL},
            _schema_of(lake, table, folders),
            *(_remove(live[path], now) for path in others),
            *(_added(files[path], now, is_new=False) for path in lost),
        ]
        if _write(lake, table, actions):
            return len(others) + len(lost)


def release(lake: Lake) -> None:
    """Give the Delta table to other programs: they may write it, this one does so no more. NotFound: there is none."""
    while True:
        table = open_table(lake)
        if table is None:
            raise NotFound("Delta table", lake.store.url)
        require_own(lake, table, lake.now.files.keys())
        folders = [*table.metadata().partition_columns]
        own = _schema_of(lake, table, folders)
        own["metaData"]["configuration"] = {_RELEASED: "true"}
        open_to_all = {**_PROTOCOL, "writerFeatures": []}
        now = int(time.time() * 1000)
        if _write(lake, table, [_info("SET TBLPROPERTIES", now), {"protocol": open_to_all}, own]):
            return


def delta_problem(lake: LakeReader, table: DeltaTable | None, history: Sequence[Manifest]) -> str:
    """Returns how a Delta table, that was read before these manifests, differs from them; empty if it does not.

    The last commit may be on its way into it.
    """
    done = -1 if table is None else table.transaction_version(lake.identity.lake)
    commits = -1 if done is None else done
    state = LakeState()
    for manifest in history[: commits + 1]:
        state.apply(manifest, "")
    if late := [manifest.commit for manifest in history[commits + 1 : -1] if manifest.files]:
        return f"the Delta table lacks commit {late[0]} and what follows. {_REBUILD}"
    if table is None:
        return f"the Delta log is gone. {_REBUILD}" if state.files else ""
    if is_released(table):
        return ""
    difference = difference_of(table, state.files.keys())
    return f"the Delta table is not the lake: {difference}. {_REBUILD}" if difference else ""


def open_table(lake: LakeReader) -> DeltaTable | None:
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
    """Returns the entries of a new table, or of one that lacks columns of the lake or our feature; otherwise none.

    A commit without files may have brought them, which is not in the Delta log.
    """
    folders = list(manifest.files[0].folders)
    if table is not None and not manifest.columns:
        known = {one.name for one in table.schema().fields}
        is_own = bool(table.protocol().writer_features)
        if is_own and known.issuperset(one.name for one in lake.now.columns):
            return []
    protocol = None if table is None else table.protocol()
    is_first = protocol is None or not protocol.writer_features
    return [*([{"protocol": _PROTOCOL}] if is_first else []), _schema_of(lake, table, folders)]


def _schema_of(lake: Lake, table: DeltaTable | None, folders: Sequence[str]) -> dict[str, Any]:
    """Returns the entry that says what columns a table has."""
    columns = [_field(one) for one in lake.now.columns]
    columns += [_field(column) for column in folder_columns(lake.now.columns, folders)]
    schema = {"type": "struct", "fields": columns}
    own = {
        "id": lake.identity.lake if table is None else str(table.metadata().id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": [*folders],
        "configuration": {},
        "createdTime": int(time.time() * 1000),
    }
    return {"metaData": own}


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
        _info(operation, now),
        {"txn": {"appId": lake.identity.lake, "version": manifest.commit, "lastUpdated": now}},
        *(_removed(one, now, folders) for one in manifest.replaced),
        *(_added(one, now, is_new=not manifest.is_merge) for one in manifest.files),
    ]


def _folders_of(manifest: Manifest) -> dict[str, dict[str, str]]:
    """Returns the columns that are folders, by the folder of a path: a merge stays within one."""
    return {one.path.rpartition("/")[0]: one.folders for one in manifest.files}


def _info(operation: str, now: int) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": now, "operation": operation, "engineInfo": _ENGINE}}


def _removed(path: str, now: int, folders: dict[str, dict[str, str]]) -> dict[str, Any]:
    known = {
        "extendedFileMetadata": False,
        "partitionValues": _values(folders[path.rpartition("/")[0]]),
    }
    found = _remove(quote(path, "/="), now)
    return {"remove": {**found["remove"], **known}}


def _remove(path: str, now: int) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": now, "dataChange": False}}


def _values(folders: Mapping[str, str]) -> dict[str, str | None]:
    return {name: None if value == NO_VALUE else value for name, value in folders.items()}


def _added(file: LakeFile, now: int, *, is_new: bool) -> dict[str, Any]:
    statistics = {
        "numRecords": file.rows,
        "minValues": {name: found[0] for name, found in file.ranges.items()},
        "maxValues": {name: found[1] for name, found in file.ranges.items()},
    }
    return {
        "add": {
            "path": quote(file.path, "/="),
            "partitionValues": _values(file.folders),
            "size": file.size,
            "modificationTime": now,
            "dataChange": is_new,
            "stats": json.dumps(statistics, separators=(",", ":")),
        }
    }
