"""A lake: a directory of Parquet files that believes only its manifests.

    lake/topic=orders/date=2026-01-31/p00000-00000000000000000000-00000007.parquet
    lake/_penstock/lake.json        what this lake is, written once
    lake/_penstock/commits/         a manifest for each commit, numbered without a gap
    lake/_penstock/staging/         files of commits that are not decided; orphans are removed at the next start
    lake/_penstock/lock             one writer at a time

A commit is decided by one step: its manifest, complete and synced, gets its name by `link`, which fails if the name is
taken. Everything before it (files in staging) may be repeated or forgotten, and everything after it (moving the files
to their places, adding them to Delta) is finished by whoever opens the lake next. Folders that begin with `_` are not
seen by Spark, so that somebody who reads the directory without the manifests sees committed files only.
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
    Manifest,
    Place,
    Span,
    Stored,
    StreamBatch,
    ends,
    require_chain,
    seal,
    span_problem,
    unseal,
)

FOLDER = "_penstock"
COMMITS = f"{FOLDER}/commits"
STAGING = f"{FOLDER}/staging"
_IDENTITY = f"{FOLDER}/lake.json"


class Table(Enum):
    """How others find the files: by looking into the directory, or through a Delta log."""

    PARQUET = "parquet"
    DELTA = "delta"


class Split(Enum):
    """How finely the files are divided by the time of their messages."""

    NONE = "none"
    DAY = "day"
    HOUR = "hour"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a lake is. Neither can be changed later: files that are there would be of the other kind."""

    format: int
    lake: str
    table: Table
    split: Split


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
    """The directory of a lake. Refused if it is a URL: links and renames are what commits are made of."""
    if "://" in written:
        raise Refused(f"a lake is a directory, on this machine or mounted, not {written[:100]!r}")
    return Path(written).absolute()


class LakeFiles:
    """The manifests of a lake, for whoever only reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            data = (root / _IDENTITY).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileMissing(str(root / _IDENTITY)) from None
        try:
            self.identity = msgspec.json.decode(data, type=Identity)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedFile(str(root / _IDENTITY), str(error)[:100]) from None

    def manifests(self) -> list[Manifest]:
        """All commits. Damaged if one is missing or is not what was written."""
        folder = self.root / COMMITS
        names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        found = [unseal((folder / name).read_bytes(), f"{COMMITS}/{name}") for name in names]
        require_chain(self.identity.lake, found)
        return [manifest for manifest, _ in found]

    def path_of(self, file: Stored) -> Path:
        """Where a file is: in its place, or still in staging if the writer died before it moved it."""
        final = self.root / file.path
        if final.exists():
            return final
        staged = self.root / STAGING / file.staged
        return staged if staged.exists() else final

    def paths(self) -> list[str]:
        """All files that the manifests name."""
        return [str(self.path_of(one)) for found in self.manifests() for one in found.files]


class Lake(LakeFiles):
    """A lake with the right to write. Opening it finishes what a writer that died had decided."""

    def __init__(
        self,
        root: Path,
        *,
        table: Table | None = None,
        split: Split | None = None,
        publish: Callable[["Lake", Manifest], None] | None = None,
    ) -> None:
        """`table` and `split` are for a new lake; an old one must not be contradicted. Refused, AlreadyOpen."""
        for folder in (COMMITS, STAGING):
            (root / folder).mkdir(parents=True, exist_ok=True)
        directory = os.open(root / FOLDER, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock = DirectoryLock(str(root / FOLDER), directory)
        finally:
            os.close(directory)
        try:
            _identify(root, table, split)
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
        self._last_checksum = unseal(last[0].read_bytes(), last[0].name)[1] if last else 0
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
        """Whether a micro-batch is committed: then it must not be written again."""
        return stream in self._streams

    def commit(
        self, spans: Sequence[Span], files: Sequence[Stored], stream: StreamBatch | None = None
    ) -> Manifest:
        """Decide a commit and publish it. When this returns, every message of the spans is in the lake, once."""
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
        # Tasks have synced what is in the files; that they have names is synced here, for all at once.
        self._sync({(self.root / STAGING / one.staged).parent for one in files})
        self.decide(manifest)
        self.publish(manifest)
        return manifest

    def decide(self, manifest: Manifest) -> None:
        """The one step that counts."""
        data, number = seal(manifest)
        write_new(self.root / COMMITS / f"{manifest.commit:020d}.json", data)
        self._last_checksum = number
        self.commits.append(manifest)
        self.ends |= ends([manifest])
        if manifest.stream is not None:
            self._streams.add(manifest.stream)

    def publish(self, manifest: Manifest) -> None:
        """Move the files of a commit to their places. Doing it again changes nothing."""
        folders = {self._move(one) for one in manifest.files}
        self._sync(folders)
        if self._publish_more is not None:
            self._publish_more(self, manifest)

    def _sync(self, folders: Iterable[Path]) -> None:
        for folder in _with_parents(folders, self.root):
            sync_folder(folder)

    def _move(self, file: Stored) -> Path:
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
        """Empty the staging area: what is decided has left it. Returns how many files there were."""
        staging, count = self.root / STAGING, 0
        for folder in staging.iterdir():
            count += sum(1 for one in folder.rglob("*") if one.is_file())
            # Somebody's task that does not know yet that its driver is gone may still be writing there.
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
        return count


def _identify(root: Path, table: Table | None, split: Split | None) -> None:
    path = root / _IDENTITY
    if not path.exists():
        if any((root / COMMITS).glob("*.json")):
            raise Damaged(f"{path} is missing, but there are commits")
        identity = Identity(
            format=FORMAT,
            lake=token_hex(8),
            table=table or Table.PARQUET,
            split=split or Split.DAY,
        )
        write_new(path, msgspec.json.encode(identity))
        for folder in (root, root.parent):
            sync_folder(folder)
        return
    known = LakeFiles(root).identity
    for name, asked in (("table", table), ("split", split)):
        found = getattr(known, name)
        if asked is not None and asked is not found:
            raise Refused(f"{root} has {name} {found.value}, not {asked.value}; use another lake")


def _with_parents(folders: Iterable[Path], root: Path) -> list[Path]:
    """Folders and those above them, up to the root, the deepest first."""
    found = {root}
    for folder in folders:
        found.update(one for one in (folder, *folder.parents) if one.is_relative_to(root))
    return sorted(found, key=lambda one: -len(one.parts))


def next_offsets(files: LakeFiles) -> dict[Place, int]:
    """Where the archive of each partition goes on."""
    return {place: span.end for place, span in ends(files.manifests()).items()}
