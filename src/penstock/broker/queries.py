"""Where queries first began. An engine that reads a topic asks for "latest" once; asked again after a crash, the answer
would be another one, and what lies between would never be read. So the first answer is kept here under the query's name
until its first batch is done."""

from collections.abc import Iterable, Mapping

import msgspec

from ..errors import NotFound, Refused
from ..model import check_name

# Queries that died before their first batch and never came back; the oldest goes.
QUERIES_MAX = 1000
PARTITIONS_MAX = 10_000
_ASKED_CHARACTERS_MAX = 1000


class QueryStarted(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=17):
    """A query began: `offsets` by "topic/partition", `ids` of the topics, `asked` in its own words."""

    name: str
    asked: str
    offsets: dict[str, int]
    ids: dict[str, int]


class QueryForgotten(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=18):
    """The first batch of a query is done, or the query is not wanted any more."""

    name: str


QueryRecord = QueryStarted | QueryForgotten


class Queries:
    """The machine. `apply` changes it; the other methods decide."""

    def __init__(self) -> None:
        self.by_name: dict[str, QueryStarted] = {}

    def apply(self, record: QueryRecord) -> None:
        match record:
            case QueryStarted():
                self.by_name.pop(record.name, None)
                self.by_name[record.name] = record
                if len(self.by_name) > QUERIES_MAX:
                    del self.by_name[next(iter(self.by_name))]
            case QueryForgotten():
                self.by_name.pop(record.name, None)

    def snapshot(self) -> Iterable[QueryRecord]:
        yield from self.by_name.values()

    def find(self, name: str) -> QueryStarted:
        found = self.by_name.get(name)
        if found is None:
            raise NotFound("query", name)
        return found

    def keep(
        self, name: str, asked: str, offsets: Mapping[str, int], ids: Mapping[str, int]
    ) -> QueryStarted:
        """What is kept already if the query asked for the same, else what it found now."""
        known = self.by_name.get(check_name(name, "query"))
        if known is not None and known.asked == asked:
            return known
        if len(asked) > _ASKED_CHARACTERS_MAX:
            raise Refused(f"asked may have {_ASKED_CHARACTERS_MAX} characters, got {len(asked)}")
        if not 1 <= len(offsets) <= PARTITIONS_MAX:
            raise Refused(f"offsets must be of 1..{PARTITIONS_MAX} partitions, got {len(offsets)}")
        if bad := [key for key, offset in offsets.items() if offset < 0]:
            raise Refused(f"offset {offsets[bad[0]]} of {bad[0][:100]} is below 0")
        return QueryStarted(name, asked, dict(offsets), dict(ids))
