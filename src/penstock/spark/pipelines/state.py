"""What a lake holds after its commits: the files that count, and where each partition goes on.

It follows from the manifests. A checkpoint is the state after one of them, so that a lake of many commits is opened
without reading them all; it decides nothing, and `archive verify` compares it with the manifests.
"""

import msgspec

from ...errors import Damaged
from ...model import TopicPartition
from .manifest import FORMAT, LakeFile, Manifest, Span, StreamBatch, require_inside
from .schema import Column


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lake after `commits` commits, of which the last has the hash `head`."""

    format: int
    lake: str
    commits: int
    head: str
    ends: list[Span]
    logs: list[tuple[str, int, list[int]]]
    files: list[LakeFile]
    streams: dict[str, int]
    columns: list[Column]
    held: dict[str, str] = {}


class LakeState:
    """The state of a lake after some of its commits. Only `apply` changes it."""

    def __init__(self) -> None:
        self.commits = 0
        self.head = ""
        # The last span of each partition: the next one goes on at its end.
        self.ends: dict[TopicPartition, Span] = {}
        # All logs that a partition of one name has had, the current one last.
        self.logs: dict[TopicPartition, list[int]] = {}
        # The files that count, by path, in the order of their commits.
        self.files: dict[str, LakeFile] = {}
        # The last micro-batch of each checkpoint of Spark.
        self.streams: dict[str, StreamBatch] = {}
        self.columns: list[Column] = []

    def apply(self, manifest: Manifest, sha256: str) -> None:
        """Add a commit. Damaged: it replaces a file that is not there, or has one outside of the lake."""
        for path in manifest.replaced:
            if self.files.pop(path, None) is None:
                raise Damaged(f"commit {manifest.commit} replaces {path}, which is not in the lake")
        for file in manifest.files:
            require_inside(file)
            self.files[file.path] = file
        for span in manifest.spans:
            known = self.logs.setdefault(span.name, [])
            if span.log not in known:
                known.append(span.log)
            # The gaps are in the manifest; here they would only grow.
            self.ends[span.name] = msgspec.structs.replace(span, gaps=[])
        if manifest.stream is not None:
            self.streams[manifest.stream.query] = manifest.stream
        self.columns = manifest.columns or self.columns
        self.commits, self.head = manifest.commit + 1, sha256

    def span_problem(self, span: Span) -> str | None:
        """Returns why a span cannot follow what the lake has, or None if it can."""
        last = self.ends.get(span.name)
        if last is None:
            return None
        if last.log == span.log:
            if last.end != span.start:
                return f"{span.name} is archived up to {last.end}, not up to {span.start}"
        elif span.log in self.logs[span.name]:
            return f"{span.name} is a log that another one has followed: two brokers share the lake"
        elif span.start != 0:
            return f"{span.name} is another log, which begins at 0, not at {span.start}"
        return None

    def to_checkpoint(self, lake: str) -> Checkpoint:
        """Returns the state as it is stored."""
        return Checkpoint(
            format=FORMAT,
            lake=lake,
            commits=self.commits,
            head=self.head,
            ends=list(self.ends.values()),
            logs=[(name.topic, name.number, found) for name, found in self.logs.items()],
            files=list(self.files.values()),
            streams={query: last.batch for query, last in self.streams.items()},
            columns=self.columns,
            held={query: last.held for query, last in self.streams.items()},
        )

    @classmethod
    def from_checkpoint(cls, found: Checkpoint) -> "LakeState":
        """Returns the state that a checkpoint holds."""
        state = cls()
        state.commits, state.head = found.commits, found.head
        state.ends = {one.name: one for one in found.ends}
        state.logs = {TopicPartition(topic, number): logs for topic, number, logs in found.logs}
        for one in found.files:
            require_inside(one)
        state.files = {one.path: one for one in found.files}
        state.streams = {
            query: StreamBatch(query, batch, found.held.get(query, ""))
            for query, batch in found.streams.items()
        }
        state.columns = found.columns
        return state
