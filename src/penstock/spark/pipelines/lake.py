"""A lake: a directory or a bucket of Parquet files, of which only those count that a manifest names.

    lake/topic=orders/date=2026-01-31/p00000-00000000000000000000-00000007.parquet
    lake/_penstock/lake.json        what this lake is, written once
    lake/_penstock/commits/         a manifest for each commit, numbered without a gap
    lake/_penstock/checkpoints/     the state after some commit, so that opening does not read all manifests
    lake/_penstock/staging/         files of commits that are not decided; orphans are removed at the next start
    lake/_penstock/replaced/        files that were merged into others, until `archive vacuum` removes them
    lake/_penstock/lock             one writer at a time

A commit is decided by one step: its manifest, complete and synced, gets its name by `create`, which fails if the name
is taken. Everything before it (files in staging) may be repeated or lost, and everything after it (moving the files to
their paths, adding them to Delta) is finished when the lake is opened next. Spark ignores folders that begin with `_`,
so a reader without the manifests sees committed files only. A bucket has no renames and no locks: files are written
where they stay, under names that no other attempt has, and `create` alone decides between two writers.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from ...errors import AlreadyExists, Damaged, DamagedFile, FileMissing, PenstockError, Refused
from ...model import TopicPartition
from ...runtime.lock import DirectoryLock
from .manifest import (
    FORMAT,
    LakeFile,
    Manifest,
    Span,
    StreamBatch,
    decode_manifest,
    encode_manifest,
    require_next,
    seal,
    unseal,
)
from .schema import Column, merged
from .state import Checkpoint, LakeState
from .store import DirectoryStore, LakeStore, store_of, sync_folder

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "_penstock"
COMMITS = f"{FOLDER}/commits"
CHECKPOINTS = f"{FOLDER}/checkpoints"
STAGING = f"{FOLDER}/staging"
REPLACED = f"{FOLDER}/replaced"
_IDENTITY = f"{FOLDER}/lake.json"
# So many commits are read at most when a lake is opened, each a small file.
CHECKPOINT_COMMITS = 100
_CHECKPOINTS_KEPT = 2


class TableFormat(Enum):
    """How readers find the files: by listing the directory, or through a Delta log."""

    PARQUET = "parquet"
    DELTA = "delta"


class Split(Enum):
    """How finely the files are divided by the time of their messages."""

    NONE = "none"
    DAY = "day"
    HOUR = "hour"


class LakeColumns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schema by which the values of a lake are columns too, `data` and `data_error`: a version of a subject.

    `partition_by`: the field of `data` that divides the files, too; empty if none does.
    """

    subject: str
    schema_id: int
    partition_by: str = ""


class LakeIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a lake is. Table, split and columns cannot be changed later: the files would not fit."""

    format: int
    lake: str
    table: TableFormat
    split: Split
    columns: LakeColumns | None = None


def commit_path(number: int) -> str:
    """Returns where the manifest of a commit is."""
    return f"{COMMITS}/{number:020d}.json"


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exists(root: Path | str) -> bool:
    """Whether there is a lake."""
    return store_of(root).has(_IDENTITY)


class LakeReader:
    """The manifests of a lake, read only."""

    def __init__(self, root: Path | str) -> None:
        """FileMissing: there is no lake. Unavailable: its store does not answer."""
        self.root = root
        self.store: LakeStore = store_of(root)
        try:
            data = self.store.read(_IDENTITY)
        except FileMissing:
            raise FileMissing(f"{self.store.url} is no lake: {_IDENTITY}") from None
        where = self.store.location(_IDENTITY)
        try:
            self.identity = msgspec.json.decode(data, type=LakeIdentity)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedFile(where, str(error)[:100]) from None
        if self.identity.format != FORMAT:
            found = self.identity.format
            raise DamagedFile(where, f"format {found}, this version reads {FORMAT}")

    def manifests(self) -> list[Manifest]:
        """Returns all commits. Damaged: one is missing or is not what was written."""
        return [manifest for manifest, _ in self.history()]

    def history(self) -> list[tuple[Manifest, str]]:
        """Returns all commits with their hashes. Damaged: one is missing or is not what was written."""
        found, head = [], ""
        for number, manifest, own in self._read_after(0):
            require_next(self.identity.lake, number, head, manifest)
            found.append((manifest, own))
            head = own
        return found

    def _read_after(self, commits: int) -> Iterator[tuple[int, Manifest, str]]:
        """Yields the manifests after some commits, each with the number that it has to have."""
        after = f"{commits - 1:020d}.json" if commits else ""
        for number, name in enumerate(self.store.names(COMMITS, after), commits):
            path = f"{COMMITS}/{name}"
            yield number, *decode_manifest(self.store.read(path), path)

    def state(self, as_of: str | None = None) -> LakeState:
        """Returns what the lake holds now, or after a commit: its number, or the last one up to a time.

        Damaged: a manifest is missing or is not what was written. NotFound, Refused: there is no such commit.
        """
        if as_of is not None:
            from .as_of import state_as_of

            return state_as_of(self, as_of)
        return self._replayed(self.checkpoint() or LakeState())

    def _replayed(self, state: LakeState) -> LakeState:
        for number, manifest, own in self._read_after(state.commits):
            require_next(self.identity.lake, number, state.head, manifest)
            state.apply(manifest, own)
        return state

    def checkpoint(self) -> LakeState | None:
        """Returns the state of the last checkpoint; None if there is none that fits its manifest."""
        for name in reversed(self.store.names(CHECKPOINTS)):
            path = f"{CHECKPOINTS}/{name}"
            try:
                found, _ = unseal(self.store.read(path), path, Checkpoint)
                last = commit_path(found.commits - 1)
                _, own = decode_manifest(self.store.read(last), last)
            except (FileMissing, DamagedFile):
                # Manifests decide. A checkpoint that is not whole is only slower.
                continue
            if found.lake == self.identity.lake and found.head == own:
                return LakeState.from_checkpoint(found)
        return None

    def place_of(self, file: LakeFile) -> str:
        """Returns where a file is in the store: its path, staging if the writer died, or beside the replaced ones."""
        if not self.store.stages or self.store.has(file.path):
            return file.path
        for path in (f"{STAGING}/{file.staged}", f"{REPLACED}/{file.path}"):
            if self.store.has(path):
                return path
        return file.path

    def path_of(self, file: LakeFile) -> str:
        """Returns the path or the address of a file."""
        return self.store.location(self.place_of(file))

    def batches(
        self, file: LakeFile, columns: Sequence[str] | None = None
    ) -> Iterator["pa.RecordBatch"]:
        """Yields the rows of a file, some columns of them or all. FileMissing; Unavailable: the store went away."""
        import pyarrow.parquet as pq

        path = self.place_of(file)
        with self.store.translated(path), self.store.open_read(path) as opened:
            yield from pq.ParquetFile(opened).iter_batches(
                columns=None if columns is None else list(columns)
            )

    def paths(self) -> list[str]:
        """Returns the paths of all files that are in the lake now."""
        return [self.path_of(one) for one in self.state().files.values()]


class Lake(LakeReader):
    """A lake with its lock, for the one writer. Opening it finishes the last commit of a writer that died."""

    def __init__(
        self,
        root: Path | str,
        *,
        table: TableFormat | None = None,
        split: Split | None = None,
        columns: LakeColumns | None = None,
        publish: Callable[["Lake", Manifest], None] | None = None,
    ) -> None:
        """`table`, `split` and `columns` are for a new lake. AlreadyOpen: it has a writer.

        Refused: an old one has others. It keeps the version of its subject, whatever the latest is by now.
        """
        self._lock = _locked(store_of(root))
        # The last commit, if its publication failed and this writer goes on.
        self._unpublished: Manifest | None = None
        self._last: Manifest | None = None
        try:
            _identify(root, table, split, columns)
            super().__init__(root)
            self._publish_more = publish
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if isinstance(self.store, DirectoryStore):
            for draft in (self.store.root / COMMITS).glob(".*"):
                draft.unlink()
        self.now = self.state()
        if self.now.commits:
            # A commit is published before the next one is decided, so only the last can be unfinished.
            path = commit_path(self.now.commits - 1)
            self._last = decode_manifest(self.store.read(path), path)[0]
            self.publish(self._last)
        self.remove_orphans()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def ends(self) -> dict[TopicPartition, Span]:
        """The last span of each partition."""
        return self.now.ends

    @property
    def next_commit(self) -> int:
        return self.now.commits

    def has(self, stream: StreamBatch) -> bool:
        """Whether a micro-batch is committed: Spark numbers them, and commits one after the other."""
        last = self.now.streams.get(stream.query)
        return last is not None and last.batch >= stream.batch

    def commit(
        self,
        spans: Sequence[Span],
        files: Sequence[LakeFile],
        stream: StreamBatch | None = None,
        *,
        columns: Sequence[Column] = (),
    ) -> Manifest:
        """Decide a commit and publish it. Returns its manifest.

        `columns` are those of its files. Refused: a span does not continue the lake, or a column has another type.
        """
        if problems := [text for one in spans if (text := self.now.span_problem(one))]:
            raise Refused(f"this does not continue the lake: {'; '.join(problems)}")
        assert stream is None or not self.has(stream), "a batch is asked about first"
        after = merged(self.now.columns, columns) if columns else self.now.columns
        manifest = self._manifest(
            spans=list(spans),
            files=list(files),
            stream=stream,
            columns=after if after != self.now.columns else [],
        )
        return self._carry_out(manifest)

    def replace(self, paths: Sequence[str], files: Sequence[LakeFile]) -> Manifest:
        """Decide a commit that has `files` in the place of others, with the same rows. Returns its manifest."""
        before = sum(self.now.files[one].rows for one in paths)
        assert before == sum(one.rows for one in files), "a merge keeps every row"
        manifest = self._manifest(spans=[], files=list(files), replaced=list(paths))
        return self._carry_out(manifest)

    def _manifest(self, **content: object) -> Manifest:
        return Manifest(
            format=FORMAT,
            lake=self.identity.lake,
            commit=self.next_commit,
            previous=self.now.head,
            made_at=now_text(),
            **content,  # type: ignore[arg-type]  # Both callers are above.
        )

    def finish(self) -> None:
        """Publish the last commit, if that failed when it was decided."""
        if self._unpublished is not None:
            self.publish(self._unpublished)

    def _carry_out(self, manifest: Manifest) -> Manifest:
        self.finish()
        if self._publish_more is not None and self._last is not None:
            # It is published. That is seen again, so that a table that another program rewrote stops this commit.
            self._publish_more(self, self._last)
        # Tasks have synced the contents of the files; their names are synced here, for all at once.
        self._sync(f"{STAGING}/{one.staged}" for one in manifest.files)
        self.decide(manifest)
        self.publish(manifest)
        if self.now.commits % CHECKPOINT_COMMITS == 0:
            self.write_checkpoint()
        return manifest

    def decide(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the commit. Refused: another writer was faster.

        Damaged: the manifest could not be read again, so it is not written: it would be the end of the lake.
        """
        data, own = encode_manifest(manifest)
        if decode_manifest(data, commit_path(manifest.commit))[0] != manifest:
            raise Damaged(f"commit {manifest.commit} of {self.root} would not be read as it is")
        try:
            self.store.create(commit_path(manifest.commit), data)
        except AlreadyExists:
            raise Refused(
                f"{self.root} has another writer, which made commit {manifest.commit} first; nothing of this one is in "
                "the lake: run it again"
            ) from None
        self.now.apply(manifest, own)
        self._unpublished = self._last = manifest

    def publish(self, manifest: Manifest) -> None:
        """Move the files of a commit to their paths. A repetition changes nothing."""
        if isinstance(self.store, DirectoryStore):
            if self.identity.table is TableFormat.PARQUET:
                # First, so that a reader of the directory never sees a row twice.
                self._put_aside(manifest.replaced)
            for one in manifest.files:
                self._move(one)
            self._sync(one.path for one in manifest.files)
        if self._publish_more is not None:
            self._publish_more(self, manifest)
        self._unpublished = None

    def _sync(self, paths: Iterable[str]) -> None:
        """Make the names of files durable, up to the root of the lake."""
        if not isinstance(self.store, DirectoryStore):
            return
        root = self.store.root
        found = {root}
        for path in paths:
            folder = (root / path).parent
            found.update(one for one in (folder, *folder.parents) if one.is_relative_to(root))
        for folder in sorted(found, key=lambda one: -len(one.parts)):
            sync_folder(folder)

    def _move(self, file: LakeFile) -> None:
        assert isinstance(self.store, DirectoryStore), "a bucket has no renames"
        root = self.store.root
        final = root / file.path
        if not final.exists() and file.path in self.now.files:
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                (root / STAGING / file.staged).rename(final)
            except FileNotFoundError:
                raise DamagedFile(file.path, "a commit names it, and it is nowhere") from None

    def _put_aside(self, paths: Iterable[str]) -> None:
        """Move replaced files out of the folders that readers list; those that vacuum has removed are fine."""
        assert isinstance(self.store, DirectoryStore), "a bucket has no renames"
        root = self.store.root
        for path in paths:
            aside = root / REPLACED / path
            if (root / path).exists():
                aside.parent.mkdir(parents=True, exist_ok=True)
                (root / path).rename(aside)
        self._sync(f"{REPLACED}/{path}" for path in paths)

    def write_checkpoint(self) -> None:
        """Store the state, for the next opening. A checkpoint decides nothing, so one that fails is left out."""
        data, _ = seal(self.now.to_checkpoint(self.identity.lake))
        with suppress(PenstockError, OSError):
            self.store.create(f"{CHECKPOINTS}/{self.now.commits:020d}.json", data)
            for name in self.store.names(CHECKPOINTS)[:-_CHECKPOINTS_KEPT]:
                self.store.remove(f"{CHECKPOINTS}/{name}")

    def remove_orphans(self) -> int:
        """Empty the staging area, which committed files have left. Returns how many files there were."""
        if not isinstance(self.store, DirectoryStore):
            return 0
        staging, count = self.store.root / STAGING, 0
        for folder in staging.iterdir():
            count += sum(1 for one in folder.rglob("*") if one.is_file())
            # A task whose driver has died may still be writing there.
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
        return count


def _locked(store: LakeStore) -> DirectoryLock | None:
    """Returns the lock of a lake in a directory, which is made if it is not there. AlreadyOpen: it has a writer."""
    if not isinstance(store, DirectoryStore):
        return None
    for folder in (COMMITS, CHECKPOINTS, STAGING):
        (store.root / folder).mkdir(parents=True, exist_ok=True)
    directory = os.open(store.root / FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return DirectoryLock(str(store.root / FOLDER), directory)
    finally:
        os.close(directory)


def _identify(
    root: Path | str, table: TableFormat | None, split: Split | None, columns: LakeColumns | None
) -> None:
    store = store_of(root)
    try:
        known = LakeReader(root).identity
    except FileMissing:
        if store.names(COMMITS):
            raise Damaged(
                f"{store.location(_IDENTITY)} is missing, but there are commits"
            ) from None
        identity = LakeIdentity(
            format=FORMAT,
            lake=token_hex(8),
            table=table or TableFormat.PARQUET,
            split=split or Split.DAY,
            columns=columns,
        )
        store.create(_IDENTITY, msgspec.json.encode(identity))
        if isinstance(store, DirectoryStore):
            for folder in (store.root, store.root.parent):
                sync_folder(folder)
        return
    for name, asked in (("table", table), ("split", split)):
        found = getattr(known, name)
        if asked is not None and asked is not found:
            raise Refused(f"{root} has {name} {found.value}, not {asked.value}; use another lake")
    subject = "" if known.columns is None else known.columns.subject
    if columns is not None and columns.subject != subject:
        what = f"columns of {subject}" if subject else "no columns of a schema"
        raise Refused(f"{root} has {what}, not of {columns.subject}; use another lake")
    divided_by = "" if known.columns is None else known.columns.partition_by
    if columns is not None and columns.partition_by not in {"", divided_by}:
        raise Refused(
            f"{root} is divided by {divided_by or 'no field'}, not by {columns.partition_by}; use another lake"
        )
