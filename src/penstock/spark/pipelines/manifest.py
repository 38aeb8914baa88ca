"""The manifest of a commit: its files, the offsets that they hold, and hashes of everything.

A manifest is one JSON file, `_penstock/commits/00000000000000000007.json`, written once and never changed:

    {"sha256": hash of the bytes of the body, "body": {"format": 2, "lake": ID, "commit": 7, "previous": ..., ...}}

`previous` is the hash of the manifest before, so the hash of the last one (the head) stands for all of them and for
every file. Offsets are half-open: `start` is the first, `end` the one after the last. Every offset in between is in a
file, or in a gap. A commit with `replaced` merges files: it has the same rows in other files, and no spans.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from ...errors import Damaged, DamagedFile
from ...model import TopicPartition
from .schema import Column

FORMAT = 2
# A topic that is compacted by key may have a gap beside each message; the number of all is kept in any case.
GAPS_LISTED_MAX = 1000

# Hive's name for the folder of rows that have no value in the column of a folder.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

T = TypeVar("T")


class Gap(msgspec.Struct, frozen=True):
    """Offsets that the broker no longer had when they were read, and why: expired, compacted, damaged."""

    start: int
    end: int
    reason: str


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file. `staged` is where it was written, `path` where it goes once the commit is decided.

    `log` tells the partition from any other of that name. `keys` and `values` are CRC32Cs of all keys and values, one
    after the other, as they were read from the broker. `ranges` has the least and the greatest value of some columns.
    """

    path: str
    staged: str
    rows: int
    size: int
    sha256: str
    topic: str = ""
    partition: int = 0
    log: int = 0
    first: int = 0
    last: int = 0
    keys: int = 0
    values: int = 0
    # Values of the columns that are folders, by name; Delta wants them.
    folders: dict[str, str] = {}
    ranges: dict[str, list[int | float | str]] = {}

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of one partition in a commit. `log` tells the partition from any other of that name."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    log: int
    gap_offsets: int = 0
    gaps: list[Gap] = []

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class StreamBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A micro-batch of a Spark stream: which checkpoint it belongs to, and its number there.

    `held` is the fingerprint of its rows, by which a repeat is compared; empty if it is not known.
    """

    query: str
    batch: int
    held: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One commit. `columns` are those of the lake from this commit on, if it changes them."""

    format: int
    lake: str
    commit: int
    previous: str
    made_at: str
    spans: list[Span]
    files: list[LakeFile]
    stream: StreamBatch | None = None
    # Paths of files that are not in the lake any more: `files` have their rows.
    replaced: list[str] = []
    columns: list[Column] = []

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def is_merge(self) -> bool:
        return bool(self.replaced)


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    body: msgspec.Raw


def seal(body: object) -> tuple[bytes, str]:
    """Returns the bytes of a sealed JSON file, and its hash."""
    data = msgspec.json.encode(body)
    own = hashlib.sha256(data).hexdigest()
    return msgspec.json.encode(_Sealed(own, msgspec.Raw(data))), own


def unseal(data: bytes, path: str, kind: type[T]) -> tuple[T, str]:
    """Returns what a sealed file holds, and its hash. DamagedFile: it is not what was written."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if hashlib.sha256(bytes(sealed.body)).hexdigest() != sealed.sha256:
            raise DamagedFile(path, "its hash does not fit")
        found = msgspec.json.decode(sealed.body, type=_Format).format
        if found != FORMAT:
            raise DamagedFile(path, f"format {found}, this version reads {FORMAT}")
        return msgspec.json.decode(sealed.body, type=kind), sealed.sha256
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"not written by this version: {str(error)[:100]}") from None


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode_manifest(manifest: Manifest) -> tuple[bytes, str]:
    """Returns the bytes of a manifest's file, and its hash."""
    return seal(manifest)


def decode_manifest(data: bytes, path: str) -> tuple[Manifest, str]:
    """Returns the manifest of a file, and its hash. DamagedFile: it is not what was written."""
    return unseal(data, path, Manifest)


def require_next(lake: str, number: int, head: str, manifest: Manifest) -> None:
    """Damaged: a manifest is not the commit of a lake that follows the one with the hash `head`."""
    if manifest.lake != lake:
        raise Damaged(f"commit {number} belongs to lake {manifest.lake}, not to {lake}")
    if manifest.commit != number:
        raise Damaged(f"commit {number} is missing, the next is {manifest.commit}")
    if manifest.previous != head:
        raise Damaged(f"commit {number} does not follow the commit before: one was replaced")


def folder_path(folders: Mapping[str, str]) -> str:
    """Returns where files of some folders are, below the lake. Values are written as Hive and Spark read them."""
    return "/".join(f"{name}={''.join(map(_escaped, value))}" for name, value in folders.items())


def _escaped(character: str) -> str:
    is_plain = character.isalnum() or character in "-_." or not character.isascii()
    return character if is_plain else f"%{ord(character):02X}"


def require_inside(file: LakeFile) -> None:
    """Damaged: a file is not below the lake. Who changes a lake must not reach what is beside it."""
    for path in (file.path, file.staged):
        if path.startswith("/") or ".." in path.split("/"):
            raise Damaged(f"{path[:200]} is not a path below the lake")


def ends(manifests: Iterable[Manifest]) -> dict[TopicPartition, Span]:
    """Returns the last span of each partition: the next commit goes on at its `end`."""
    found: dict[TopicPartition, Span] = {}
    for manifest in manifests:
        for span in manifest.spans:
            found[span.name] = span
    return found
