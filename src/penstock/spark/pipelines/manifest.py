"""The manifest of a commit: its files, the offsets that they hold, and checksums of everything.

A manifest is one JSON file, `_penstock/commits/00000000000000000007.json`, written once and never changed:

    {"checksum": CRC32C of the bytes of the body, "body": {"format": 1, "lake": ID, "commit": 7, "previous": ..., ...}}

`previous` is the checksum of the manifest before, which shows that one is lost or replaced. Offsets are half-open:
`start` is the first, `end` the one after the last. Every offset in between is in a file, or in a gap.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...codec.checksum import checksum
from ...errors import Damaged, DamagedFile
from ...model import TopicPartition

FORMAT = 1
# A topic that is compacted by key may have a gap beside each message; the number of all is kept in any case.
GAPS_LISTED_MAX = 1000


class Gap(msgspec.Struct, frozen=True):
    """Offsets that the broker no longer had when they were read, and why: expired, compacted, damaged."""

    start: int
    end: int
    reason: str


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file. `staged` is where it was written, `path` where it goes once the commit is decided.

    `keys` and `values` are checksums of all keys and values, one after the other, as they were read from the broker.
    """

    path: str
    staged: str
    rows: int
    size: int
    checksum: int
    topic: str = ""
    partition: int = 0
    first: int = 0
    last: int = 0
    keys: int = 0
    values: int = 0
    # Values of the columns that are folders, by name; Delta wants them.
    folders: dict[str, str] = {}


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


class StreamBatch(msgspec.Struct, frozen=True):
    """A micro-batch of a Spark stream: which checkpoint it belongs to, and its number there."""

    query: str
    batch: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    lake: str
    commit: int
    previous: int
    made_at: str
    spans: list[Span]
    files: list[LakeFile]
    stream: StreamBatch | None = None

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


class _SealedManifest(msgspec.Struct, frozen=True):
    checksum: int
    body: msgspec.Raw


def encode_manifest(manifest: Manifest) -> tuple[bytes, int]:
    """Returns the bytes of a manifest's file, and its checksum."""
    body = msgspec.json.encode(manifest)
    number = checksum(body)
    return msgspec.json.encode(_SealedManifest(number, msgspec.Raw(body))), number


def decode_manifest(data: bytes, path: str) -> tuple[Manifest, int]:
    """Returns the manifest of a file, and its checksum. DamagedFile: it is not what was written."""
    try:
        sealed = msgspec.json.decode(data, type=_SealedManifest)
        if checksum(bytes(sealed.body)) != sealed.checksum:
            raise DamagedFile(path, "its checksum does not fit")
        manifest = msgspec.json.decode(sealed.body, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"not a manifest: {str(error)[:100]}") from None
    if manifest.format != FORMAT:
        raise DamagedFile(path, f"format {manifest.format}, this version reads {FORMAT}")
    return manifest, sealed.checksum


def require_chain(lake: str, manifests: Sequence[tuple[Manifest, int]]) -> None:
    """Damaged: these are not all commits of the lake from the first on, each after the one before."""
    before = 0
    for number, (manifest, own) in enumerate(manifests):
        if manifest.lake != lake:
            raise Damaged(f"commit {number} belongs to lake {manifest.lake}, not to {lake}")
        if manifest.commit != number:
            raise Damaged(f"commit {number} is missing, the next is {manifest.commit}")
        if manifest.previous != before:
            raise Damaged(f"commit {number} does not follow the commit before: one was replaced")
        before = own


def ends(manifests: Iterable[Manifest]) -> dict[TopicPartition, Span]:
    """Returns the last span of each partition: the next commit goes on at its `end`."""
    found: dict[TopicPartition, Span] = {}
    for manifest in manifests:
        for span in manifest.spans:
            found[span.name] = span
    return found


def span_problem(before: Mapping[TopicPartition, Span], span: Span) -> str | None:
    """Returns why a span cannot follow what a lake has, or None if it can."""
    last = before.get(span.name)
    if last is None:
        return None
    if last.log != span.log:
        return f"{span.name} is another log than the one that was archived so far"
    if last.end != span.start:
        return f"{span.name} is archived up to {last.end}, not up to {span.start}"
    return None
