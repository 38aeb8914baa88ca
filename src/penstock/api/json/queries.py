"""Files of messages as JSON."""

import msgspec

from ..queries import SealedFile
from .messages import Int64, Strict
from .times import Span


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
