"""The base of all errors, and the five families that tell a caller what to do."""

from copy import copy
from typing import Any, ClassVar, Self


class PenstockError(Exception):
    """Base of the tree; never raised itself."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.fields = fields

    def fresh(self) -> Self:
        """An equal error without traceback, cause and context: to be kept as a value, and for each raise of a kept one.

        A traceback holds the frames that an error went through, with the command and its buffers among their locals.
        One of those frames that holds the error in turn is a cycle, and its command stays until the collector comes.
        """
        return copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """For `copy`, and for pools of processes: made from its text, which the constructors of its class write."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[PenstockError], texts: tuple[object, ...]) -> PenstockError:
    return kind.__new__(kind, *texts)


class Refused(PenstockError):
    """The caller's request is wrong."""

    code = "INVALID_ARGUMENT"


class Unavailable(PenstockError):
    """The world is not ready; the same request may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class Damaged(PenstockError):
    """Stored bytes are not what was written."""

    code = "DAMAGED"


class Internal(PenstockError):
    """A bug of ours."""

    code = "INTERNAL"

    def __init__(self) -> None:
        super().__init__("the broker failed to carry out the request; its log says why")


class Fatal(PenstockError):
    """Nothing this process says about durability can be trusted any more: it must exit."""

    code = "FATAL"
