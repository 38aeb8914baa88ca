"""A lake: a directory of Parquet files, of which only those count that a manifest names.

    lake/topic=orders/date=2026-01-31/p00000-00000000000000000000-00000007.parquet
    lake/_penstock/lake.json        what this lake is, written once
    lake/_penstock/commits/         a manifest for each commit, numbered without a gap
    lake/_penstock/staging/         files of commits that are not decided; orphans are removed at the next start
    lake/_penstock/lock             one writer at a time

A commit is decided by one step: its manifest, complete and synced, gets its name by `link`, which fails if the name is
taken. Everything before it (files in staging) may be repeated or lost, and everything after it (moving the files to
their paths, adding them to Delta) is finished when the lake is opened next. Spark ignores folders that begin with `_`,
so a reader without the manifests sees committed files only.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

import msgspec

from ...errors import AlreadyExists, Damaged, DamagedFile, FileMissing, Refused
from ...runtime.lock import DirectoryLock
from .manifest import (
    FORMAT,
    LakeFile,
    Manifest,
    Span,
    StreamBatch,
    decode_manifest,
    encode_manifest,
    ends,
    require_chain,
    span_problem,
)

FOLDER = "_penstock"
COMMITS = f"{FOLDER}/commits"
STAGING = f"{FOLDER}/staging"
_IDENTITY = f"{FOLDER}/lake.json"


class TableFormat(Enum):
    """How readers find the files: by listing the directory, or through a Delta log."""

    PARQUET = "parquet"
    DELTA = "delta"


class Split(Enum):
    """How finely the files are divided by the time of their messages."""

    NONE = "none"
    DAY = "day"
    HOUR = "hour"


class LakeColumns(msgspec.Struct, frozen=True):
    """The schema by which the values of a lake are columns too, `data` and `data_error`: a version of a subject."""

    subject: str
    schema_id: int


class LakeIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a lake is. Table, split and columns cannot be changed later: the files would not fit."""

    format: int
    lake: str
    table: TableFormat
    split: Split
    columns: LakeColumns | None = None


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes) -> None:
    """Give a whole, durable file its name in one step. AlreadyExists if the name is taken."""
    draft = path.with_name(f".{path.name}.{token_hex(6)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise AlreadyExists("file", path) from None
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def require_local(written: str) -> Path:
    """Returns the directory of a lake. Refused: it is a URL, and a commit needs links and renames."""
    if "://" in written:
        raise Refused(f"a lake is a directory, on this machine or mounted, not {written[:100]!r}")
    return Path(written).absolute()


class LakeReader:
    """The manifests of a lake, read only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            data = (root / _IDENTITY).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileMissing(str(root / _IDENTITY)) from None
        try:
            self.identity = msgspec.json.decode(data, type=LakeIdentity)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedFile(str(root / _IDENTITY), str(error)[:100]) from None

    def manifests(self) -> list[Manifest]:
        """Returns all commits. Damaged: one is missing or is not what was written."""
        folder = self.root / COMMITS
        names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        found = [
            decode_manifest((folder / name).read_bytes(), f"{COMMITS}/{name}") for name in names
        ]
        require_chain(self.identity.lake, found)
        return [manifest for manifest, _ in found]

    def path_of(self, file: LakeFile) -> Path:
        """Returns where a file is: its path, or staging if the writer died before it moved it."""
        final = self.root / file.path
        if final.exists():
            return final
        staged = self.root / STAGING / file.staged
        return staged if staged.exists() else final

    def paths(self) -> list[str]:
        """Returns the paths of all files that the manifests name."""
        return [str(self.path_of(one)) for found in self.manifests() for one in found.files]


class Lake(LakeReader):
    """A lake with its lock, for the one writer. Opening it finishes the last commit of a writer that died."""

    def __init__(
        self,
        root: Path,
        *,
        table: TableFormat | None = None,
        split: Split | None = None,
        columns: LakeColumns | None = None,
        publish: Callable[["Lake", Manifest], None] | None = None,
    ) -> None:
        """`table`, `split` and `columns` are for a new lake. AlreadyOpen: it has a writer.

        Refused: an old one has others. It keeps the version of its subject, whatever the latest is by now.
        """
        for folder in (COMMITS, STAGING):
            (root / folder).mkdir(parents=True, exist_ok=True)
        directory = os.open(root / FOLDER, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock = DirectoryLock(str(root / FOLDER), directory)
        finally:
            os.close(directory)
        try:
            _identify(root, table, split, columns)
            super().__init__(root)
            self._publish_more = publish
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        drafts = (self.root / COMMITS).glob(".*")
        for draft in drafts:
            draft.unlink()
        self.commits = self.manifests()
        last = sorted((self.root / COMMITS).iterdir())[-1:]
        self._last_checksum = decode_manifest(last[0].read_bytes(), last[0].name)[1] if last else 0
        self.ends = ends(self.commits)
        self._streams = {one.stream for one in self.commits if one.stream is not None}
        if self.commits:
            # A commit is published before the next one is decided, so only the last can be unfinished.
            self.publish(self.commits[-1])
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
        self._lock.close()

    @property
    def next_commit(self) -> int:
        return len(self.commits)

    def has(self, stream: StreamBatch) -> bool:
        """Whether a micro-batch is committed."""
        return stream in self._streams

    def commit(
        self, spans: Sequence[Span], files: Sequence[LakeFile], stream: StreamBatch | None = None
    ) -> Manifest:
        """Decide a commit and publish it. Returns its manifest. Refused: a span does not continue the lake."""
        if problems := [text for one in spans if (text := span_problem(self.ends, one))]:
            raise Refused(f"this does not continue the lake: {'; '.join(problems)}")
        assert stream is None or stream not in self._streams, "a batch is asked about first"
        manifest = Manifest(
            format=FORMAT,
            lake=self.identity.lake,
            commit=self.next_commit,
            previous=self._last_checksum,
            made_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            spans=list(spans),
            files=list(files),
            stream=stream,
        )
        # Tasks have synced the contents of the files; their names are synced here, for all at once.
        self._sync({(self.root / STAGING / one.staged).parent for one in files})
        self.decide(manifest)
        self.publish(manifest)
        return manifest

    def decide(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the commit."""
        data, number = encode_manifest(manifest)
        write_new(self.root / COMMITS / f"{manifest.commit:020d}.json", data)
        self._last_checksum = number
        self.commits.append(manifest)
        self.ends |= ends([manifest])
        if manifest.stream is not None:
            self._streams.add(manifest.stream)

    def publish(self, manifest: Manifest) -> None:
        """Move the files of a commit to their paths. A repetition changes nothing."""
        folders = {self._move(one) for one in manifest.files}
        self._sync(folders)
        if self._publish_more is not None:
            self._publish_more(self, manifest)

    def _sync(self, folders: Iterable[Path]) -> None:
        for folder in _with_parents(folders, self.root):
            sync_folder(folder)

    def _move(self, file: LakeFile) -> Path:
        final = self.root / file.path
        staged = self.root / STAGING / file.staged
        if not final.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                staged.rename(final)
            except FileNotFoundError:
                raise DamagedFile(file.path, "a commit names it, and it is nowhere") from None
        return final.parent

    def remove_orphans(self) -> int:
        """Empty the staging area, which committed files have left. Returns how many files there were."""
        staging, count = self.root / STAGING, 0
        for folder in staging.iterdir():
            count += sum(1 for one in folder.rglob("*") if one.is_file())
            # A task whose driver has died may still be writing there.
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
        return count


def _identify(
    root: Path, table: TableFormat | None, split: Split | None, columns: LakeColumns | None
) -> None:
    path = root / _IDENTITY
    if not path.exists():
        if any((root / COMMITS).glob("*.json")):
            raise Damaged(f"{path} is missing, but there are commits")
        identity = LakeIdentity(
            format=FORMAT,
            lake=token_hex(8),
            table=table or TableFormat.PARQUET,
            split=split or Split.DAY,
            columns=columns,
        )
        write_new(path, msgspec.json.encode(identity))
        for folder in (root, root.parent):
            sync_folder(folder)
        return
    known = LakeReader(root).identity
    for name, asked in (("table", table), ("split", split)):
        found = getattr(known, name)
        if asked is not None and asked is not found:
            raise Refused(f"{root} has {name} {found.value}, not {asked.value}; use another lake")
    subject = "" if known.columns is None else known.columns.subject
    if columns is not None and columns.subject != subject:
        what = f"columns of {subject}" if subject else "no columns of a schema"
        raise Refused(f"{root} has {what}, not of {columns.subject}; use another lake")


def _with_parents(folders: Iterable[Path], root: Path) -> list[Path]:
    """Returns the folders and those above them, up to the root, the deepest first."""
    found = {root}
    for folder in folders:
        found.update(one for one in (folder, *folder.parents) if one.is_relative_to(root))
    return sorted(found, key=lambda one: -len(one.parts))
