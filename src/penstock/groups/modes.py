"""How a group reads a topic. Its first use decides, for good."""

from enum import IntEnum


class Mode(IntEnum):
    """Numbers are journaled. The two last ones are assigned; they differ in the order inside a partition."""

    UNDECIDED = 0
    SHARED = 1
    RELAXED = 2
    STRICT = 3

    @property
    def is_assigned(self) -> bool:
        return self in (Mode.RELAXED, Mode.STRICT)

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Mode.UNDECIDED: "undecided",
    Mode.SHARED: "shared",
    Mode.RELAXED: "assigned, order relaxed",
    Mode.STRICT: "assigned, order strict",
}
