"""Where the files of a lake are: a directory, or a bucket of an object store.

A path is relative to the lake, with `/`. A commit is decided by `create`, which fails if the name is taken: of two
writers one wins. Everything else may be repeated.
"""

import hashlib
import io
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ...errors import AlreadyExists, FileMissing, Refused

if TYPE_CHECKING:
    import pyarrow as pa

S3_SCHEME = "s3://"


class StoredFile(NamedTuple):
    """A file of a store: its path, its size, and when it was changed last."""

    path: str
    size: int
    changed_at: datetime


class HashingFile(io.RawIOBase):
    """A new file that knows its size and SHA-256 when it is closed, from the bytes as they are written."""

    def __init__(self, target: Any, *, is_synced: bool) -> None:
        self._target, self._is_synced = target, is_synced
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        self._hash.update(data)
        count = memoryview(data).nbytes
        self.size += count
        return count

    def tell(self) -> int:
        return self.size

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if not self.closed:
            if self._is_synced:
                self._target.flush()
                os.fsync(self._target.fileno())
            self._target.close()
        super().close()


@runtime_checkable
class LakeStore(Protocol):
    """The files of one lake. `stages`: files are written aside first, because a reader lists the folders.

    Unavailable: the store does not answer.
    """

    url: str
    stages: bool

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file. FileMissing."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Give a whole, durable file its name in one step. AlreadyExists if the name is taken."""
        ...

    def names(self, folder: str, after: str = "") -> list[str]:
        """Returns the names of the files in a folder that come after one, sorted; without drafts."""
        ...

    def files(self) -> Iterable[StoredFile]:
        """Yields all files of the lake, those of Penstock itself and of Delta left out."""
        ...

    def has(self, path: str) -> bool: ...

    def remove(self, path: str) -> None:
        """Remove a file. One that is gone already is fine."""
        ...

    def open_read(self, path: str) -> "pa.NativeFile":
        """Returns a file to read from anywhere, inside of `translated`. FileMissing."""
        ...

    def translated(self, path: str) -> AbstractContextManager[None]:
        """Raises what fails while an open file is read as an error of ours that names the file."""
        ...

    def open_write(self, path: str) -> HashingFile:
        """Returns a new file. It is durable when it is closed; its name is when `sync` returns."""
        ...

    def location(self, path: str) -> str:
        """Returns the path or address by which other programs find a file."""
        ...


# Folders that belong to a table format or to Penstock; a reader of the directory leaves them out.
OWN_FOLDERS = ("_penstock/", "_delta_log/")


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


class DirectoryStore:
    """A lake in a directory, on this machine or mounted."""

    stages = True

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, str(root)

    def read(self, path: str) -> bytes:
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileMissing(str(self.root / path)) from None

    def create(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        write_new(self.root / path, data)

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            found = [one.name for one in (self.root / folder).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(one for one in found if one > after and not one.startswith("."))

    def files(self) -> Iterable[StoredFile]:
        for path in sorted(self.root.rglob("*.parquet")):
            inside = path.relative_to(self.root).as_posix()
            if not inside.startswith(OWN_FOLDERS):
                found = path.stat()
                changed_at = datetime.fromtimestamp(found.st_mtime, UTC)
                yield StoredFile(inside, found.st_size, changed_at)

    def has(self, path: str) -> bool:
        return (self.root / path).exists()

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def open_read(self, path: str) -> "pa.NativeFile":
        import pyarrow as pa

        try:
            return pa.OSFile(str(self.root / path), "rb")
        except FileNotFoundError:
            raise FileMissing(str(self.root / path)) from None

    def translated(self, path: str) -> AbstractContextManager[None]:
        """Changes nothing: errors of a directory are those of the system."""
        return nullcontext()

    def open_write(self, path: str) -> HashingFile:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        return HashingFile((self.root / path).open("wb"), is_synced=True)

    def location(self, path: str) -> str:
        return str(self.root / path)


def store_of(written: str | Path) -> LakeStore:
    """Returns the store of a lake by its directory or address. Refused: it is another kind of address."""
    text = str(written)
    if text.startswith(S3_SCHEME):
        from .s3_store import S3Store

        return S3Store(text)
    return DirectoryStore(Path(lake_address(text)))


def lake_address(written: str) -> str:
    """Returns the absolute path of a directory, or the address of a bucket as it is. Refused: neither."""
    if written.startswith(S3_SCHEME):
        from .s3_store import checked_address

        return checked_address(written)
    if "://" in written:
        scheme = written.partition("://")[0]
        raise Refused(f"a lake is a directory or s3://bucket/path, not {scheme[:20]}://...")
    return str(Path(written).absolute())
