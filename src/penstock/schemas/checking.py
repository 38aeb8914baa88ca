"""What all checks of schemas share: how much they may do, and how they deal with schemas that contain themselves."""

from collections.abc import Callable, Hashable

import msgspec

from ..errors import InvalidSchema

TEXT_BYTES_MAX = 256 * 1024
"""Of one schema. With everything that it refers to it may be four times as much."""
CLOSURE_BYTES_MAX = 4 * TEXT_BYTES_MAX
CLOSURE_COUNT_MAX = 1000

# Deeper than hand-written schemas ever are, and shallow enough for a recursive reader.
_DEPTH_MAX = 64
# About a second; the largest honest schemas take half as many.
_STEPS_MAX = 60_000
_CHECK_DEPTH_MAX = 64
FAULTS_MAX = 20

Fault = tuple[str, str]
"""Where a document does not fit a schema, as a JSON pointer (empty for all of it), and why."""
Faults = list[str]
"""Why one schema cannot read what another one writes, each with its path; empty if it can."""


def read_json(text: str) -> object:
    """JSON as Python values. InvalidSchema if it is none, too large, or nested too deeply."""
    require_size(text)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidSchema(f"the JSON cannot be read: {error}") from None
    require_depth(found)
    return found


def require_size(text: str) -> None:
    """InvalidSchema for a schema over the limit."""
    if len(text) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"it has {len(text)} characters, the limit is {TEXT_BYTES_MAX}")


def require_depth(value: object) -> None:
    """InvalidSchema for JSON that is nested too deeply to be read by recursion."""
    level = [value]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        level = below
        if not level:
            return
    raise InvalidSchema(f"it is nested more than {_DEPTH_MAX} levels deep")


class PairCheck:
    """Checks pairs of schemas, each one once, though a schema may contain itself.

    A pair that is met again while it is under way is taken to be compatible. If it turns out not to be, everything is
    looked at once more, now that it is known; what was found incompatible stays so.
    """

    def __init__(self) -> None:
        self._incompatible: dict[Hashable, Faults] = {}
        self._seen: set[Hashable] = set()
        self._trusted: set[Hashable] = set()
        self._steps = 0
        self._depth = 0

    def run(self, check: Callable[[], Faults]) -> Faults:
        """What `check`, which calls `pair` for every pair that it meets, finds. InvalidSchema: too complex."""
        while True:
            self._seen.clear()
            self._trusted.clear()
            try:
                found = check()
            except RecursionError:
                raise InvalidSchema("its types are nested too deeply") from None
            if not self._trusted & self._incompatible.keys():
                return found[:FAULTS_MAX]

    def pair(self, key: Hashable, check: Callable[[], Faults]) -> Faults:
        """Faults of one pair, named by `key`."""
        known = self._incompatible.get(key)
        if known is not None:
            return known
        if key in self._seen:
            self._trusted.add(key)
            return []
        self._seen.add(key)
        self.step()
        self._depth += 1
        if self._depth > _CHECK_DEPTH_MAX:
            raise InvalidSchema(f"its types are nested more than {_CHECK_DEPTH_MAX} levels deep")
        found = check()
        self._depth -= 1
        if found:
            self._incompatible[key] = found = found[:FAULTS_MAX]
        return found

    def step(self, count: int = 1) -> None:
        """Count some work. InvalidSchema when it is too much."""
        self._steps += count
        if self._steps > _STEPS_MAX:
            raise InvalidSchema("it is too complex to be compared with another one")
