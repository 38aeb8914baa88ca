"""What the outside world is doing at this moment: the part of an event that the code under test cannot know."""

from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """Wall time as the node sees it, and true time, which never steps and outlives every restart."""

    wall_ns: int
    true_ns: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Who asked for what. Values are those that a producer may have stored by this call."""

    moment: Moment
    what: str = "nothing"
    values: frozenset[bytes] = frozenset()
    leaving: str = ""
    rejecting: bool = False
    # Where somebody commits or resets a group to; -1 if nobody does.
    moving_to: int = -1
