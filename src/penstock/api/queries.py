"""What engines such as Spark ask for: the ends of many partitions, files of messages, where a query first began."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, TypeVar

import msgspec

from ..errors import DamagedBatch, NotFound, ShareFull
from .bounds import DISTINCT, NAMES_MAX, Within, items
from .command import Command, Errors
from .forms import Form, Http, MomentNs, Named
from .principals import Action

HOLD_MS_MAX = 3_600_000
ASKED_CHARACTERS_MAX = 64 << 10
_START = "/queries/{query}/start"

R = TypeVar("R")


class PartitionEnds(msgspec.Struct, frozen=True, omit_defaults=True):
    """First offset kept, next offset to be written, and the first offset of the time that was asked for."""

    earliest: int
    latest: int
    at: int | None = None


class TopicEnds(msgspec.Struct, frozen=True):
    """Partitions by number. A topic that is deleted and made again has another `id`."""

    id: int
    partitions: dict[str, PartitionEnds]


class EndsReply(msgspec.Struct, frozen=True):
    """`missing` are the topics that are not there."""

    topics: dict[str, TopicEnds]
    missing: list[str]


class ListEnds(Command[EndsReply], frozen=True):
    """Ends of all partitions of some topics; with a time also the first offset that was stored at it or later.

    PartitionFaulty: a reader that plans by this would take it for a partition that there never was.
    """

    action = Action.SEE_TOPICS
    is_query = True
    is_walk = True
    http = Http("GET", "/offsets", "Ends of all partitions of some topics", is_of_topics=True)
    tag = "read"
    errors = (DamagedBatch,)
    names: Annotated[
        Sequence[str], items(NAMES_MAX, least=1), DISTINCT, Form.NAMES, Named("topics")
    ]
    at_ns: MomentNs | None = None

    def topics(self) -> Iterable[str]:
        return self.names


class SealedFile(msgspec.Struct, frozen=True):
    """A sealed segment: whole batches from offset `start` up to `end`, in the first `size_bytes` of a file."""

    path: str
    start: int
    end: int
    size_bytes: int


class HeldFiles(msgspec.Struct, frozen=True):
    """Paths are below the data directory; heads are checked with `seed`."""

    seed: int
    files: list[SealedFile]


class HoldFiles(Command[HeldFiles], frozen=True):
    """The files of a range of offsets; what is in them stays for so long. A restart forgets that.

    NotFound, OffsetOutOfRange.
    """

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    offset: int
    end: int
    hold_ms: Annotated[int, Within(0, HOLD_MS_MAX)]

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class QueryStart(msgspec.Struct, frozen=True):
    """Where a query first began: offsets by "topic/partition", ids by topic, and in its own words what it asked for."""

    query: str
    offsets: Annotated[Mapping[str, int], items(NAMES_MAX)]
    ids: Annotated[Mapping[str, int], items(NAMES_MAX)]
    asked: Annotated[str, items(ASKED_CHARACTERS_MAX)]

    def topics(self) -> set[str]:
        """The topics that the query reads."""
        return {place.rpartition("/")[0] for place in self.offsets} | self.ids.keys()


class _OfQuery(Command[R], frozen=True):
    tag = "read"
    errors: ClassVar[Errors] = (NotFound,)
    query: str


class KeepQueryStart(_OfQuery[QueryStart], frozen=True):
    """Keep where a query first began. The reply is what is kept already if it asked for the same, else this start.

    Forbidden: what is kept under the name is of topics that the principal does not reach. ShareFull.
    """

    action = Action.COMMIT
    is_structural = True
    http = Http(
        "POST", _START, "Keep where a query first began; the first answer stays", is_of_topics=True
    )
    errors = (ShareFull,)
    offsets: Annotated[Mapping[str, int], items(NAMES_MAX)]
    ids: Annotated[Mapping[str, int], items(NAMES_MAX)]
    asked: Annotated[str, items(ASKED_CHARACTERS_MAX)]

    @property
    def start(self) -> QueryStart:
        """What is to be kept."""
        return QueryStart(self.query, self.offsets, self.ids, self.asked)

    def topics(self) -> Iterable[str]:
        return self.start.topics()


class SeeQueryStart(_OfQuery[QueryStart], frozen=True):
    """Where a query first began. NotFound; Forbidden: in topics that the principal does not reach."""

    action = Action.SEE_GROUPS
    is_query = True
    http = Http("GET", _START, "Where a query first began", is_of_topics=True)


class ForgetQueryStart(_OfQuery[None], frozen=True):
    """A query has done its first batch, or is wanted no more. NotFound; Forbidden, as for seeing it."""

    action = Action.COMMIT
    is_structural = True
    http = Http("DELETE", _START, "Forget where a query first began", 204, is_of_topics=True)
