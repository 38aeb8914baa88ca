"""Dead letters of the past and of now, counted by fingerprint: the lake has what the broker removed long ago.

A fingerprint is the reason, the group and the error without what differs from one message to the next: numbers,
identifiers, quoted texts. Letters that are in the lake and in the broker count once, by their offset.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...api.dead_letters import DEAD_LETTER_SUFFIX, split_headers
from ...api.units import time_text
from ...errors import NotFound
from ...model import Provenance
from .lake import LakeReader
from .lake_log import LogRows, require_archive
from .manifest import LakeFile
from .partitions import kept_fetches, query_topic

if TYPE_CHECKING:
    from ...client import Client

_PATTERN_CHARACTERS_MAX = 200
_FINGERPRINT_CHARACTERS = 12
# In this order: a uuid has numbers in it, a path may have a uuid.
_VARIABLE = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "<text>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}\b"), "<hex>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)


def error_pattern(error: str) -> str:
    """Returns the first line of an error without what differs from one message to the next."""
    text = error.partition("\n")[0].strip()
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return text[:_PATTERN_CHARACTERS_MAX]


@dataclass(slots=True)
class LetterCount:
    """Dead letters of one fingerprint."""

    fingerprint: str
    reason: str
    group: str
    error: str
    lake: int = 0
    live: int = 0
    first_ns: int = 0
    last_ns: int = 0
    topics: set[str] = field(default_factory=set)
    # One of them, the last that was seen: PARTITION/OFFSET in the topic of dead letters.
    example: str = ""

    @property
    def count(self) -> int:
        return self.lake + self.live

    def to_record(self) -> dict[str, object]:
        """Returns it as plain values."""
        return {
            "fingerprint": self.fingerprint,
            "count": self.count,
            "in_lake": self.lake,
            "live_only": self.live,
            "first": time_text(self.first_ns),
            "last": time_text(self.last_ns),
            "reason": self.reason,
            "group": self.group,
            "error": self.error,
            "topics": sorted(self.topics),
            "example": self.example,
        }


class LetterHistory:
    """Counts dead letters by fingerprint."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], LetterCount] = {}

    def add(self, died: Provenance, place: str, *, is_live: bool) -> None:
        """Count one dead letter."""
        key = (died.dlq_reason, died.group, error_pattern(died.last_error))
        one = self._counts.get(key)
        if one is None:
            digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
            one = LetterCount(digest[:_FINGERPRINT_CHARACTERS], *key, first_ns=died.dlq_timestamp)
            self._counts[key] = one
        one.live += is_live
        one.lake += not is_live
        one.first_ns = min(one.first_ns, died.dlq_timestamp)
        one.last_ns = max(one.last_ns, died.dlq_timestamp)
        one.topics.add(died.original_topic)
        one.example = place

    def counts(self) -> list[LetterCount]:
        """Returns the counts, the most frequent first."""
        return sorted(self._counts.values(), key=lambda one: (-one.count, one.fingerprint))


def letter_history(
    topic: str, files: LakeReader | None, client: "Client | None"
) -> list[LetterCount]:
    """Returns the dead letters of a topic, of a lake and of the broker. NotFound: neither has had any."""
    name = topic if topic.endswith(DEAD_LETTER_SUFFIX) else topic + DEAD_LETTER_SUFFIX
    found, is_known = LetterHistory(), False
    logs: dict[int, tuple[int, int]] = {}
    if files is not None:
        state = files.state()
        require_archive(state, files.root)
        logs = {
            one.partition: (one.log, one.end) for one in state.ends.values() if one.topic == name
        }
        is_known = bool(logs)
        for died, place in _of_lake(
            files, (one for one in state.files.values() if one.topic == name)
        ):
            found.add(died, place, is_live=False)
    if client is not None:
        with suppress(NotFound):
            is_known = _add_live(client, name, logs, found) or is_known
    if not is_known:
        raise NotFound("topic of dead letters", f"{name} in the lake or the broker")
    return found.counts()


def _of_lake(files: LakeReader, own: Iterable[LakeFile]) -> Iterator[tuple[Provenance, str]]:
    """Yields the dead letters of a lake, also of topics that were deleted since."""
    for file in own:
        for rows in LogRows(files, [file], ("offset", "headers")).windows():
            offsets = rows.column("offset").to_pylist()
            for offset, headers in zip(offsets, rows.column("headers").to_pylist(), strict=True):
                pairs = tuple((one["key"], one["value"]) for one in headers)
                _, died = split_headers(pairs)
                if died is not None:
                    yield died, f"{file.partition}/{offset}"


def _add_live(
    client: "Client", name: str, logs: dict[int, tuple[int, int]], found: LetterHistory
) -> bool:
    """Count the dead letters of the broker that are not in the lake yet. NotFound: it has no such topic."""
    for one in query_topic(client, name):
        log, end = logs.get(one.name.number, (0, 0))
        start = max(one.earliest, end if log == one.log else 0)
        if start >= one.latest:
            continue
        for fetched in kept_fetches(client, one.name, start):
            for message in fetched:
                if message.dead_letter is not None:
                    place = f"{one.name.number}/{message.offset}"
                    found.add(message.dead_letter, place, is_live=True)
    return True
