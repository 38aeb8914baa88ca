"""Routes as data: the application dispatches by them, the OpenAPI document and the tests are made from them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import unquote

from ...api.principals import Action
from ...errors import MethodNotAllowed, NotFound, PenstockError, Refused
from ...model import check_name
from .requests import Request
from .responses import Answer, Response

Call = Callable[[Request], Awaitable[Answer]]
_PREFIX = "v1"
_OF_PAGES = ("text/html", "text/javascript")
_PATHS_KEPT = 4096


class TopicIn(Enum):
    """Where a route names the topic that it touches, which decides where the caller's right to it is checked."""

    NOWHERE = "nowhere"
    PATH = "path"
    # The call asks by itself, as soon as it has read the name.
    REST = "query, body or receipts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    call: Call
    action: Action
    summary: str
    tag: str
    query: type | None = None
    body: Any = None
    # Other kinds of bodies, by content type, with what they are.
    other_bodies: Mapping[str, str] = field(default_factory=dict)
    answer: Any = None
    status: int = 200
    other_answers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[type[PenstockError]] = ()
    topic_in: TopicIn = TopicIn.NOWHERE
    # Health is for all clients, with a key or without.
    is_open: bool = False
    # Other paths to it.
    also: Sequence[str] = ()
    # How it says no, if not as all others do.
    refusal: Callable[[PenstockError, Request], Response] | None = None
    # Its body is one batch, and has the limit of batches.
    is_batch: bool = False

    def __post_init__(self) -> None:
        has_topic = "{topic}" in self.path
        assert has_topic == (self.topic_in is TopicIn.PATH), (
            f"{self.path}: topic_in is PATH just if the path has {{topic}}"
        )

    @property
    def refuses_queries(self) -> bool:
        """It has none, and says so. Pages take any, and so do routes that follow the rules of another server."""
        is_page = any(one.startswith(_OF_PAGES) for one in self.other_answers)
        return self.query is None and self.refusal is None and not is_page


class _Step:
    """What may follow at one place of a path."""

    __slots__ = ("by_word", "names", "parameter", "routes")

    def __init__(self) -> None:
        self.by_word: dict[str, _Step] = {}
        self.parameter: _Step | None = None
        self.routes: dict[str, Route] = {}
        self.names: tuple[str, ...] = ()


class Router:
    """Finds the route of a request in as many look-ups as its path has words."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._root = _Step()
        # Clients ask for the same few paths again and again.
        self._known: dict[tuple[str, str], tuple[Route, Mapping[str, str]]] = {}
        for route in routes:
            for path in (route.path, *route.also):
                self._add(route, path)

    def _add(self, route: Route, path: str) -> None:
        step, names = self._root, []
        for word in path.split("/")[1:]:
            if word.startswith("{"):
                names.append(word[1:-1])
                step.parameter = step.parameter or _Step()
                step = step.parameter
            else:
                step = step.by_word.setdefault(word, _Step())
        assert route.method not in step.routes, f"{route.method} {path} is there twice"
        assert not step.routes or step.names == tuple(names), f"{path}: other names"
        step.routes[route.method], step.names = route, tuple(names)

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route and the words of its path, which is as it was sent. NotFound, MethodNotAllowed, InvalidName."""
        known = self._known.get((method, path))
        if known is not None:
            return known
        if len(self._known) >= _PATHS_KEPT:
            self._known.clear()
        found = self._known[method, path] = self._search(method, path)
        return found

    def _search(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        # Word by word: a subject of a schema may have a slash in its name.
        words = [unquote(word) for word in path.split("/")[1:]]
        if words and words[0] == _PREFIX:
            del words[0]
        step, values = self._root, []
        for word in words:
            following = step.by_word.get(word)
            if following is None:
                following = step.parameter
                values.append(word)
            if following is None:
                raise NotFound("route", path[:100])
            step = following
        if not step.routes:
            raise NotFound("route", path[:100])
        route = step.routes.get(method)
        if route is None:
            raise MethodNotAllowed(method, allow=sorted(step.routes))
        if not values:
            return route, {}
        return route, _checked(dict(zip(step.names, values, strict=True)))


_NAMES = {
    "topic": "topic",
    "group": "group",
    "key_id": "key",
    "pipeline": "pipeline",
    "query": "query",
    "commit": "commit",
    "schedule": "schedule",
}
NUMBERS = frozenset({"partition", "offset", "producer_id"})


def _checked(params: dict[str, str]) -> dict[str, str]:
    for name, value in params.items():
        if name in _NAMES:
            check_name(value, _NAMES[name])
        elif name in NUMBERS and not (value.isascii() and value.isdecimal() and len(value) <= 18):
            raise Refused(f"{name} must be a number, got {value[:40]!r}", field=name)
    return params
