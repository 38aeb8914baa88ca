"""What engines such as Spark ask for, as JSON."""

import msgspec

from ..queries import SealedFile
from .messages import Int64, Strict
from .times import Span


class EndsQuery(Strict):
    """Topics, separated by commas; with a time also the first offset that was stored at it or later."""

    topics: str
    at: str | None = None


class FilesIn(Strict):
    """A range of offsets, and for how long what is in it may not go."""

    offset: Int64
    end: Int64
    hold: Span = "10m"


class FilesOut(msgspec.Struct):
    """Paths are below `data_dir`; heads are checked with `seed`. What is not in a file yet has to be fetched.

    Keys that only read are not told the directory.
    """

    data_dir: str | None
    seed: int
    files: list[SealedFile]


class StartIn(Strict):
    """Offsets by "topic/partition", ids by topic, and in the query's own words what it asked for."""

    offsets: dict[str, Int64]
    ids: dict[str, Int64]
    asked: str
