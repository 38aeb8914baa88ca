"""How commands look to people: a form says what the value of a field means, and each border knows how it writes that.

    next_due_ns: MomentNs | None

is text in UTC in JSON, under the name `next_due`. `Http` is the route of a command.
"""

from enum import Enum
from typing import Annotated, NamedTuple

from ..model import Headers
from .bounds import HEADERS_MAX, items


class Form(Enum):
    """What a value means beyond its type."""

    MOMENT = "nanoseconds since 1970"
    SPAN = "milliseconds"
    CONTENT = "a key or a value of a message"
    HEADERS = "headers of a message"
    PRIORITY = "the priority of a message"
    NAMES = "names, separated by commas"
    CURSOR = "the number of the last item of a page"


class Named(NamedTuple):
    """The name of a field for people, where it has another one in Python."""

    name: str


MomentNs = Annotated[int, Form.MOMENT]
SpanMs = Annotated[int, Form.SPAN]
ContentBytes = Annotated[bytes, Form.CONTENT]
MessageHeaders = Annotated[Headers, items(HEADERS_MAX), Form.HEADERS]
PriorityNumber = Annotated[int, Form.PRIORITY]


class Http(NamedTuple):
    """The route of a command. Fields that the path does not name are in the body, or in the query where there is none.

    `{key}` in a path is the field of this name, `{schedule=key}` the field `key` under another one. A reply that is a
    list, or a number, is under the name `items`. With `cursor`, a field of its items, a list is a page: the next one
    goes on `after` that of the last item. `answer` names fields of the reply and of the command, if the answer has not
    those of the reply. `is_of_topics`: a key with prefixes may be refused, though the path names no topic.
    """

    method: str
    path: str
    summary: str
    status: int = 200
    items: str = ""
    cursor: str = ""
    answer: tuple[str, ...] = ()
    is_of_topics: bool = False
