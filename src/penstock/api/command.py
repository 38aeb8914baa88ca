"""What every command has. A command is a value: any protocol makes it, `Node.execute` alone carries it out."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, Self, TypeVar

import msgspec

from ..errors import PenstockError
from .bounds import PACKED_BYTES_MAX, Names
from .forms import Http
from .principals import Action

R = TypeVar("R")
Errors = Sequence[type[PenstockError]]

EVERY_TOPIC = ("",)
"""What `Command.topics` returns for all topics: a principal with prefixes does not reach it."""


class Command(msgspec.Struct, Generic[R], frozen=True):
    """Something that a client can ask of a broker. `R` is its reply."""

    # The right that it takes.
    action: ClassVar[Action]
    # Its route, the section of the docs that has it, and the errors that it has beside those of all.
    http: ClassVar[Http | None] = None
    tag: ClassVar[str] = ""
    errors: ClassVar[Errors] = ()
    # Changes nothing, so its reply waits for nothing.
    is_query: ClassVar[bool] = False
    # A restart remembers nothing of what it changes, so its reply waits for nothing either.
    is_volatile: ClassVar[bool] = False
    # Looks at many entries, such as partitions or groups: its handler is a generator, and a driver carries it out slice
    # by slice, with other commands in between.
    is_walk: ClassVar[bool] = False
    # Is carried out as a walk if it `is_large`, by a second handler.
    may_be_large: ClassVar[bool] = False
    # Each of its items is carried out and answered by itself: a driver carries it out in `pieces`, with other commands
    # in between, and joins their replies, which are lists.
    is_divisible: ClassVar[bool] = False
    # Reads so much, or may wait for the disk, that an event loop has a thread carry it out. The driver holds its lock
    # meanwhile, or for a slice, if it is a walk.
    is_long: ClassVar[bool] = False
    # Opens, removes or syncs files itself: it runs while no sync is under way, and not in the thread of an event loop.
    is_structural: ClassVar[bool] = False
    # Takes several syncs: a driver gives it again, until its reply `is_complete`. The node goes on meanwhile.
    takes_steps: ClassVar[bool] = False

    # Its line in the audit log, if it has one, with attributes of the `command` and of its `reply`.
    audit_line: ClassVar[str] = ""
    # The line is there before it is carried out, without its reply, and goes if it is refused.
    is_audited_first: ClassVar[bool] = False

    # A server's settings say what it leaves open.
    is_completed: ClassVar[bool] = False
    # What metrics count of it: messages that are "published" or "delivered", or that are "answered".
    counted: ClassVar[str] = ""
    # The field with the prefixes that it is asked of: a principal with prefixes asks for its own, if it is empty.
    scope_field: ClassVar[str] = ""

    # Bytes of its msgpack. None: it carries contents, which have limits of their own, and may fill a frame.
    packed_bytes_max: ClassVar[int | None] = PACKED_BYTES_MAX

    # Carried out twice it does no more than once: a client whose reply was lost asks for it again.
    is_repeatable: ClassVar[bool] = True

    # Its reply waits for the disk, whatever the fsync policy says and however little the client would wait for.
    is_durable: ClassVar[bool] = False

    def topics(self) -> Iterable[str]:
        """The topics that it names: a principal with prefixes has to reach each of them."""
        return ()

    def is_large(self) -> bool:
        """Whether it has so many items that it takes more than a few milliseconds."""
        return False

    def may_be_repeated(self) -> bool:
        """Whether it `is_repeatable`, or what is in it makes it so, such as idempotency keys."""
        return self.is_repeatable

    def pieces(self) -> Sequence[Self]:
        """The command in parts that each take about a millisecond; itself alone if it does."""
        return (self,)

    def is_audited(self) -> bool:
        """Whether the audit log has a line of it: not of one that changes nothing this time."""
        return bool(self.audit_line)

    def audit_text(self, reply: R | None = None) -> str:
        """What the audit log says of it, once there is a reply or before, as `is_audited_first` has it."""
        return self.audit_line.format(command=self, reply=reply)

    def end_of(self) -> int | str:
        """What comes to its end with a command that takes steps: a producer's transaction, by its id, or a name's."""
        return ""


class ScopedCommand(Command[R], frozen=True, kw_only=True):
    """Something that is asked of one topic, or of all whose names begin with one of some prefixes; or of all."""

    scope_field: ClassVar[str] = "prefixes"
    topic: str | None = None
    prefixes: Names = ()

    def topics(self) -> Iterable[str]:
        # A principal reaches all topics of a prefix if it reaches one that is named as the prefix.
        return (self.topic,) if self.topic is not None else self.prefixes or EVERY_TOPIC

    @property
    def covers_all(self) -> bool:
        """Whether it is asked of every topic that there is, or may be."""
        return self.topic is None and not self.prefixes

    def covers_one_of(self, topics: Iterable[str]) -> bool:
        """Whether it is asked of every topic, or of one of these: of a member that reads them, say."""
        return self.covers_all or any(map(self.covers, topics))

    def covers(self, topic: str) -> bool:
        """Whether a topic is one of those that it is asked of."""
        return (
            topic == self.topic if self.topic is not None else topic.startswith(self.prefixes or "")
        )
