"""Reads where the Kafka sources of a Spark checkpoint are, without Spark.

Spark writes `offsets/N` before micro-batch N runs, `commits/N` after it. Version 1 of `offsets/N` has a line `v1`, a
line of metadata, then a line for each source in the order of the query; in version 2 such a line begins with a name:

    v1
    {"batchWatermarkMs":0}
    {"orders":{"0":23,"1":17}}         orders:{"orders":{"0":23,"1":17}}

A source that has no offset yet has `-`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import FileMissing, Refused

NextOffsets = dict[str, dict[str, int]]
_WRITTEN_BEFORE, _WRITTEN_AFTER = "offsets", "commits"
_NO_OFFSET = "-"


class KafkaOffsets(NamedTuple):
    """The offsets that a source reads next, by topic and partition, after the last micro-batch that was committed."""

    batch: int
    source: str
    starting_offsets: NextOffsets


def kafka_offsets(checkpoint: Path, source: str | None = None) -> KafkaOffsets:
    """Returns where the Kafka source of a checkpoint is, or that of this name or number.

    FileMissing: no such directory. Refused: it is no checkpoint, has no committed micro-batch, no such source, or
    several of them and none was named.
    """
    batch = _last_committed(checkpoint)
    path = checkpoint / _WRITTEN_BEFORE / str(batch)
    sources = dict(_kafka_sources(path))
    names = ", ".join(f"{name} ({', '.join(topics)})" for name, topics in sources.items())
    if not sources:
        raise Refused(f"no source of {path} is one of Kafka")
    if source is None and len(sources) > 1:
        raise Refused(f"{path} has several sources of Kafka; choose with --source: {names}")
    chosen = next(iter(sources)) if source is None else source
    if chosen not in sources:
        raise Refused(f"{path} has no source {chosen[:80]!r} of Kafka; there are: {names}")
    return KafkaOffsets(batch, chosen, sources[chosen])


def _last_committed(checkpoint: Path) -> int:
    if not checkpoint.is_dir():
        raise FileMissing(str(checkpoint))
    before, after = checkpoint / _WRITTEN_BEFORE, checkpoint / _WRITTEN_AFTER
    if not before.is_dir():
        raise Refused(
            f"{checkpoint} is not the checkpoint of a stream: it has no directory offsets"
        )
    committed = _batches(before) & (_batches(after) if after.is_dir() else set())
    if not committed:
        raise Refused(
            f"no micro-batch of {checkpoint} is committed: begin where its query was to begin"
        )
    return max(committed)


def _batches(log: Path) -> set[int]:
    names = (entry.name for entry in log.iterdir())
    return {int(name) for name in names if name.isascii() and name.isdecimal()}


def _kafka_sources(path: Path) -> Iterator[tuple[str, NextOffsets]]:
    """Yields the sources of Kafka, each with its name, or its number in version 1. Refused: another format."""
    version, _, *lines = [*path.read_text(encoding="utf-8", errors="replace").split("\n"), ""]
    if version not in {"v1", "v2"}:
        raise Refused(f"{path} begins with {version[:40]!r}, and not with v1 or v2")
    for number, line in enumerate(lines):
        name, text = str(number), line
        if version == "v2":
            name, _, text = line.partition(":")
        if text not in {"", _NO_OFFSET} and (offsets := _kafka_offset(text)) is not None:
            yield name, offsets


def _kafka_offset(text: str) -> NextOffsets | None:
    """Returns the offset of a Kafka source, or None for that of another one."""
    try:
        topics = json.loads(text)
    except ValueError:
        return None
    is_kafka = isinstance(topics, dict) and topics and all(map(_is_by_partition, topics.values()))
    return topics if is_kafka else None


def _is_by_partition(offsets: object) -> bool:
    return isinstance(offsets, dict) and all(
        partition.isdecimal() and type(offset) is int for partition, offset in offsets.items()
    )
