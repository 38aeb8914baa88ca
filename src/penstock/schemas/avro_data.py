"""Avro's binary encoding: whether bytes are a value of a type, and if not, where they stop being one.

A type becomes a function that steps over one value and returns where the next one begins.
"""

from collections.abc import Callable
from functools import partial

from ..model import Buffer
from .avro_types import Type
from .checking import Fault

_DEPTH_MAX = 100
_LONG_BYTES_MAX = 10
_INT, _LONG = 1 << 31, 1 << 63
# Items that take no bytes, such as nulls, could be there without end: how many there may be beyond one for each byte.
_EMPTY_ITEMS_MAX = 10_000
# Records that take no bytes can hold each other twice, and again: steps beyond these for each byte.
_STEPS_A_BYTE, _STEPS_MAX = 8, 100_000


class _Misfit(Exception):
    """Why the bytes are no value of the type; `path` grows while the search returns to the root."""

    def __init__(self, reason: str) -> None:
        self.path, self.reason = "", reason


class _Bounds:
    """How many more items and fields there may be in so many bytes, and how deep records are nested."""

    __slots__ = ("depth", "items", "steps", "steps_max")

    def __init__(self, size: int) -> None:
        self.items, self.depth = size + _EMPTY_ITEMS_MAX, 0
        self.steps = self.steps_max = size * _STEPS_A_BYTE + _STEPS_MAX


Step = Callable[[bytes, int, _Bounds], int]
"""Given the bytes, where a value begins, and bounds: where it ends. Raises _Misfit, or IndexError at the end."""


class AvroWalk:
    """Steps over values of one type."""

    def __init__(self, root: Type) -> None:
        self._step = _step_of(root, {})

    def fault(self, payload: Buffer) -> Fault | None:
        """Where bytes are no value of the type, and why; None if they are one, and nothing is left of them."""
        found = bytes(payload)
        try:
            end = self._step(found, 0, _Bounds(len(found)))
        except _Misfit as misfit:
            return misfit.path, misfit.reason
        except IndexError:
            return "", "the bytes end before the value does"
        left = len(found) - end
        return ("", f"{left} bytes follow the value") if left else None


def _step_of(kind: Type, known: dict[int, Step]) -> Step:
    match kind.kind:
        case "union":
            return partial(_union, [_step_of(one, known) for one in kind.parts])
        case "array":
            return partial(_blocks, _step_of(kind.parts[0], known), False)
        case "map":
            return partial(_blocks, _step_of(kind.parts[0], known), True)
        case "fixed":
            return partial(_bytes_of, kind.size)
        case "enum":
            return partial(_enum, len(kind.symbols))
        case "record":
            if id(kind) not in known:
                fields: list[tuple[str, Step]] = []
                known[id(kind)] = partial(_record, fields)
                fields += [(one.name, _step_of(one.type, known)) for one in kind.fields]
            return known[id(kind)]
    return _PRIMITIVES[kind.kind]


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = byte & 0x7F
    for shift in range(1, _LONG_BYTES_MAX):
        byte = data[at + shift]
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            found = (number >> 1) ^ -(number & 1)
            if -_LONG <= found < _LONG:
                return found, at + shift + 1
            break
    raise _Misfit("a number of more than 64 bits")


def _null(_data: bytes, at: int, _bounds: _Bounds) -> int:
    return at


def _boolean(data: bytes, at: int, _bounds: _Bounds) -> int:
    if data[at] > 1:
        raise _Misfit("a boolean is 0 or 1")
    return at + 1


def _int(data: bytes, at: int, _bounds: _Bounds) -> int:
    number, at = read_number(data, at)
    if not -_INT <= number < _INT:
        raise _Misfit("an int has 32 bits")
    return at


def _long(data: bytes, at: int, _bounds: _Bounds) -> int:
    return read_number(data, at)[1]


def _bytes_of(size: int, data: bytes, at: int, _bounds: _Bounds) -> int:
    if not 0 <= size <= len(data) - at:
        raise _Misfit(f"{size} bytes, and {len(data) - at} are left")
    return at + size


def _bytes(data: bytes, at: int, bounds: _Bounds) -> int:
    size, at = read_number(data, at)
    return _bytes_of(size, data, at, bounds)


def _text(data: bytes, at: int, bounds: _Bounds) -> int:
    size, at = read_number(data, at)
    end = _bytes_of(size, data, at, bounds)
    try:
        data[at:end].decode()
    except UnicodeDecodeError:
        raise _Misfit("the text is not UTF-8") from None
    return end


_PRIMITIVES: dict[str, Step] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": partial(_bytes_of, 4),
    "double": partial(_bytes_of, 8),
    "bytes": _bytes,
    "string": _text,
}


def _enum(count: int, data: bytes, at: int, _bounds: _Bounds) -> int:
    number, at = read_number(data, at)
    if not 0 <= number < count:
        raise _Misfit(f"{number} is none of the {count} symbols")
    return at


def _union(branches: list[Step], data: bytes, at: int, bounds: _Bounds) -> int:
    number, at = read_number(data, at)
    if not 0 <= number < len(branches):
        raise _Misfit(f"{number} is none of the {len(branches)} branches")
    return branches[number](data, at, bounds)


def _record(fields: list[tuple[str, Step]], data: bytes, at: int, bounds: _Bounds) -> int:
    bounds.depth += 1
    if bounds.depth > _DEPTH_MAX:
        raise _Misfit(f"records are nested more than {_DEPTH_MAX} levels deep")
    bounds.steps -= 1 + len(fields)
    if bounds.steps < 0:
        raise _Misfit(f"it has more than {bounds.steps_max} fields")
    number = 0
    try:
        for number, (_, step) in enumerate(fields):  # noqa: B007  # The errors below name the field.
            at = step(data, at, bounds)
    except _Misfit as misfit:
        misfit.path = f"/{fields[number][0]}{misfit.path}"
        raise
    except IndexError:
        raise _ended(fields[number][0]) from None
    bounds.depth -= 1
    return at


def _ended(name: str) -> _Misfit:
    found = _Misfit("the bytes end before the value does")
    found.path = f"/{name}"
    return found


def _blocks(step: Step, is_map: bool, data: bytes, at: int, bounds: _Bounds) -> int:
    first = 0
    count, at = read_number(data, at)
    while count:
        if count < 0:
            # The block says how many bytes it has, for readers that skip it.
            count = -count
            _, at = read_number(data, at)
        bounds.items -= count
        if bounds.items < 0:
            raise _Misfit("it has more items than bytes")
        for index in range(first, first + count):
            name = str(index)
            if is_map:
                start = read_number(data, at)[1]
                at = _text(data, at, bounds)
                name = data[start:at].decode()
            try:
                at = step(data, at, bounds)
            except _Misfit as misfit:
                misfit.path = f"/{name}{misfit.path}"
                raise
            except IndexError:
                raise _ended(name) from None
        first += count
        count, at = read_number(data, at)
    return at
