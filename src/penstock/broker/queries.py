"""Where queries first began. An engine that reads a topic asks for "latest" once; asked again after a crash, the answer
would be another one, and what lies between would never be read. So the first answer is kept here under the query's name
until its first batch is done."""

import re
from collections.abc import Iterable

import msgspec

from ..api.principals import NO_KEY
from ..api.queries import QueryStart
from ..errors import NotFound, Refused
from ..kernel import OwnerCounts
from ..model import check_name

PARTITIONS_MAX = 10_000
_ASKED_CHARACTERS_MAX = 1000
_PARTITION = re.compile(r"[0-9]{1,9}")
_NUMBER_BYTES = 9  # Of the longest, as they are stored.
_NUMBER_MAX = (1 << 63) - 1


class QueryStarted(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=17):
    """A query began: `offsets` by "topic/partition", `ids` of the topics, `asked` in its own words.

    The owner is the id of the key that said so; empty: it was said without keys, or before this was kept.
    """

    name: str
    asked: str
    offsets: dict[str, int]
    ids: dict[str, int]
    owner: str = NO_KEY

    @property
    def size_bytes(self) -> int:
        """What it takes, as far as a client decides."""
        keys = sum(map(len, self.offsets)) + sum(map(len, self.ids))
        numbers = _NUMBER_BYTES * (len(self.offsets) + len(self.ids))
        return len(self.name) + len(self.asked.encode()) + keys + numbers


class QueryForgotten(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=18):
    """The first batch of a query is done, or the query is not wanted any more."""

    name: str


QueryRecord = QueryStarted | QueryForgotten


class Queries:
    """The machine. `apply` changes it; the other methods decide."""

    def __init__(self) -> None:
        self.by_name: dict[str, QueryStarted] = {}
        self.counts, self.bytes = OwnerCounts(), OwnerCounts()

    def apply(self, record: QueryRecord) -> None:
        before = self.by_name.pop(record.name, None)
        if before is not None:
            self.counts.remove(before.owner)
            self.bytes.remove(before.owner, before.size_bytes)
        if isinstance(record, QueryStarted):
            self.by_name[record.name] = record
            self.counts.add(record.owner)
            self.bytes.add(record.owner, record.size_bytes)

    def snapshot(self) -> Iterable[QueryRecord]:
        yield from self.by_name.values()

    def find(self, name: str) -> QueryStarted:
        found = self.by_name.get(name)
        if found is None:
            raise NotFound("query", name)
        return found

    def keep(self, start: QueryStart, *, owner: str) -> QueryStarted:
        """What is kept already if the query asked for the same, else what it found now. Refused: it is no start."""
        asked, offsets, ids = start.asked, start.offsets, start.ids
        known = self.by_name.get(check_name(start.query, "query"))
        if known is not None and known.asked == asked:
            return known
        if len(asked) > _ASKED_CHARACTERS_MAX:
            raise Refused(f"asked may have {_ASKED_CHARACTERS_MAX} characters, got {len(asked)}")
        if not 1 <= len(offsets) <= PARTITIONS_MAX:
            raise Refused(f"offsets must be of 1..{PARTITIONS_MAX} partitions, got {len(offsets)}")
        if len(ids) > len(offsets):
            raise Refused(
                f"ids must be of the topics of offsets, got {len(ids)} for {len(offsets)}"
            )
        for topic in start.topics():
            check_name(topic, "topic")
        for place, offset in offsets.items():
            _require_number(f"offset {offset} of {place[:100]}", offset)
            if not _PARTITION.fullmatch(place.rpartition("/")[2]):
                raise Refused(f"offsets are by TOPIC/PARTITION, got {place[:100]}")
        for topic, topic_id in ids.items():
            _require_number(f"id {topic_id} of {topic[:100]}", topic_id)
        return QueryStarted(start.query, asked, dict(offsets), dict(ids), owner)


def _require_number(what: str, number: int) -> None:
    if not 0 <= number <= _NUMBER_MAX:
        raise Refused(f"{what} is not in 0..{_NUMBER_MAX}")
