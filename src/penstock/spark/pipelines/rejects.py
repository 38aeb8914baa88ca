"""Passes on the rows of a typed lake whose values could not be read, to a topic or into files, each once.

That is a part of the publication of a commit, which a crash leaves to the next opening of the lake. So the topic has at
most one named commit for each commit of the lake, and the folder one file.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...client import Outgoing
from ...client.stagings import CommitKey
from ...errors import FileMissing, SequenceCommitted
from ..typed import DATA_ERROR
from .lake import Lake, commit_path
from .manifest import Manifest, decode_manifest
from .remote import Remote
from .rows import SCHEMA
from .store import sync_folder

_LOG = logging.getLogger("penstock.spark")
_WRITER = "penstock-archive"
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "schema_id")
_ROWS = pa.schema([*map(SCHEMA.field, _COLUMNS), pa.field(DATA_ERROR, pa.string())])


class Rejects:
    """Where rows of one lake go: to a topic, into a folder, or both."""

    def __init__(self, remote: Remote, topic: str, folder: str) -> None:
        self._remote, self._topic, self._folder = remote, topic, folder
        self._done = -1

    def publish(self, lake: Lake, manifest: Manifest) -> None:
        """Pass on the rows of a commit, unless that was done. Unavailable; Refused: the topic does not take them."""
        if manifest.commit <= self._done:
            return
        archived = manifest
        # `archive compact` passes nothing on, and may have come when the commit before it had not been published.
        while archived.is_merge:
            path = commit_path(archived.commit - 1)
            archived = decode_manifest(lake.store.read(path), path)[0]
        if self._folder:
            self._write_file(lake, archived)
        if self._topic:
            self._publish(lake, archived)
        self._done = manifest.commit

    def _write_file(self, lake: Lake, manifest: Manifest) -> None:
        # Lakes may share the folder.
        path = Path(self._folder) / f"{lake.identity.lake}-{manifest.commit:020d}.parquet"
        batches = _rejected(lake, manifest)
        if path.exists() or (first := next(batches, None)) is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}")
        with draft.open("wb") as file:
            with pq.ParquetWriter(file, _ROWS) as writer:
                for batch in (first, *batches):
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync_folder(path.parent)

    def _publish(self, lake: Lake, manifest: Manifest) -> None:
        batches = _rejected(lake, manifest)
        if (first := next(batches, None)) is None:
            return
        key = CommitKey(f"rejects.{lake.identity.lake}", manifest.commit, _WRITER)
        with self._remote.connect() as client:
            try:
                with client.staging(*key, attempt="rejects") as staging:
                    for batch in (first, *batches):
                        sent = [
                            _outgoing(manifest.files[0].topic, row) for row in batch.to_pylist()
                        ]
                        staging.publish_many(self._topic, sent)
                client.commit_stagings(*key, [staging.handle])
            except SequenceCommitted:
                return
        count = staging.handle.messages
        _LOG.warning("%d values of commit %d went to %s", count, manifest.commit, self._topic)


def _rejected(lake: Lake, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a commit whose values could not be read."""
    for file in manifest.files:
        try:
            errors = lake.batches(file, (DATA_ERROR,))
            if all(batch.column(0).null_count == batch.num_rows for batch in errors):
                continue
            for batch in lake.batches(file, _ROWS.names):
                found = batch.filter(pc.is_valid(batch.column(DATA_ERROR)))
                if found.num_rows:
                    yield found.cast(_ROWS)
        except FileMissing:
            _LOG.warning("%s was merged and removed: its values were not looked at", file.path)


def _outgoing(topic: str, row: dict[str, Any]) -> Outgoing:
    place = f"{topic}/{row['partition']}/{row['offset']}"
    own = [("penstock-rejected-from", place), ("penstock-rejected-error", row[DATA_ERROR])]
    headers = [(one["key"], one["value"]) for one in row["headers"]]
    return Outgoing(row["value"], key=row["key"], headers=[*headers, *own])
