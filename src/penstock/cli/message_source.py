"""What `penstock produce` reads: words of the command line, lines, and JSON lines; each becomes a message."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..errors import Refused

if TYPE_CHECKING:
    from ..client import Outgoing

# Fields of a message that HTTP or `consume --json` has shown; they have no meaning for a new one.
_IGNORED = (
    "topic",
    "offset",
    "timestamp",
    "timestamp_ns",
    "attempts",
    "delivery_count",
    "last_error",
    "expires_at",
    "delay_id",
    "receipt_handle",
    "dead_letter",
)


@dataclass(slots=True)
class MessageSource:
    """Where messages come from. `read_bytes` and `position` say how far it was read."""

    values: tuple[str, ...]
    files: tuple[Path, ...]
    is_whole: bool = False
    read_bytes: int = 0
    _where: str = ""
    _number: int = 0

    @classmethod
    def of(
        cls, values: tuple[str, ...], files: tuple[Path, ...], *, is_whole: bool
    ) -> "MessageSource":
        """Returns the source. Without values and files it is stdin. UsageError: stdin is a terminal."""
        if not values and not files:
            if sys.stdin.isatty():
                raise click.UsageError("nothing to publish: give values, --file, or - for stdin")
            values = ("-",)
        return cls(values, files, is_whole)

    @property
    def total_bytes(self) -> int | None:
        """How much there is to read, or None if that is not known."""
        if self.values:
            return None
        return sum(file.stat().st_size for file in self.files)

    @property
    def position(self) -> str:
        """Where the last line was read, for errors."""
        return f"{self._where} {self._number}"

    def lines(self) -> Iterator[bytes]:
        """Yields all values and lines."""
        for number, value in enumerate(self.values, 1):
            if value == "-":
                yield from self._lines_of(sys.stdin.buffer, "line")
            else:
                self._where, self._number = "value", number
                yield value.encode(errors="surrogateescape")
        for path in self.files:
            with path.open("rb") as file:
                yield from self._lines_of(file, f"{path}, line")

    def _lines_of(self, file: IO[bytes], where: str) -> Iterator[bytes]:
        self._where, self._number = where, 0
        if self.is_whole:
            content = file.read()
            self.read_bytes += len(content)
            yield content
            return
        for line in file:
            self.read_bytes += len(line)
            self._number += 1
            yield line.removesuffix(b"\n")

    def messages(self, options: dict[str, Any]) -> Iterator["Outgoing"]:
        """Yields JSON lines as messages. `options` are the defaults of their fields. Refused: a line is wrong."""
        from ..client import Outgoing

        for line in self.lines():
            if line.strip():
                yield Outgoing(**{**options, **_fields_of(self.position, line)})


def _fields_of(where: str, line: bytes) -> dict[str, Any]:
    import msgspec

    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
        fields = {name: one for name, one in found.items() if name not in _IGNORED}
        if "offset" in found:
            # Of a stored message: repeated by a copy, it would have the server drop the copy.
            fields.pop("idempotency_key", None)
        return _checked(fields)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise Refused(f"{where}: {error}") from None


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    from ..client import Outgoing

    known = Outgoing.__struct_fields__
    for name in fields:
        if name not in known:
            raise ValueError(f"there is no field {name[:40]!r}; known: {', '.join(known)}")
    if "value" not in fields:
        raise ValueError("a message needs a value, or null")
    for name in ("value", "key", "idempotency_key", "delay_key"):
        if name in fields:
            fields[name] = _bytes_of(name, fields[name])
    if "headers" in fields:
        fields["headers"] = _headers_of(fields["headers"])
    return fields


def _headers_of(written: Any) -> list[tuple[str, bytes | None]]:
    items = written.items() if isinstance(written, dict) else written
    if not isinstance(written, dict | list) or not all(len(one) == 2 for one in items):
        raise ValueError("headers are an object, or a list of pairs")
    return [(str(name), _bytes_of("a header", one)) for name, one in items]


def _bytes_of(name: str, written: Any) -> bytes | None:
    if written is None:
        return None
    if isinstance(written, str):
        return written.encode()
    if isinstance(written, dict) and list(written) == ["base64"]:
        from base64 import b64decode

        return b64decode(str(written["base64"]), validate=True)
    raise ValueError(f'{name} is text, null or {{"base64": "..."}}, not {type(written).__name__}')
