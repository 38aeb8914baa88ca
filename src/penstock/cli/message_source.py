"""What `penstock produce` reads: words of the command line, lines, and JSON lines; each becomes a message."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time_ns as now_ns
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


def _time_left(expires_at: str) -> str:
    """Returns how long a stored message may still live; at least a moment, so that one that is over stays so."""
    from ..api.units import time_ns

    left_ns = time_ns(expires_at, "expires_at") - now_ns()
    return f"{max(1, left_ns // 1_000_000)}ms"


def _fields_of(where: str, line: bytes) -> dict[str, Any]:
    """Returns what the line says of a message, null included. Refused: HTTP would not take it.

    It means what it means there: a span without a unit counts milliseconds, where the client's counts seconds.
    """
    import msgspec

    from ..api.json.messages import MessageIn, bytes_of
    from ..api.json.times import span_ms, time_ns
    from ..api.units import priority_of

    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
        fields = {name: one for name, one in found.items() if name not in _IGNORED}
        if "offset" in found:
            # Of a stored message. With its idempotency key the server would drop the copy, and the topic of the copy
            # may have other partitions.
            fields.pop("idempotency_key", None)
            fields.pop("partition", None)
            if isinstance(found.get("expires_at"), str):
                fields.setdefault("ttl", _time_left(found["expires_at"]))
        if "value" not in fields:
            raise Refused("a message needs a value, or null")
        item = msgspec.convert(fields, MessageIn)
        for name in ("value", "key", "idempotency_key", "delay_key"):
            if name in fields:
                fields[name] = bytes_of(getattr(item, name))
        if "headers" in fields:
            headers = item.headers or []
            pairs = headers.items() if isinstance(headers, dict) else headers
            fields["headers"] = [(name, bytes_of(one)) for name, one in pairs]
        if item.deliver_at_too is not None:
            fields["deliver_at"] = fields.pop("deliverAt")
        for name in ("ttl", "delay"):
            if fields.get(name) is not None:
                fields[name] = f"{span_ms(name, fields[name])}ms"
        # Looked at here, where the line is known; what is sent is looked at again.
        if fields.get("priority") is not None:
            priority_of(fields["priority"])
        if fields.get("deliver_at") is not None:
            time_ns("deliver_at", fields["deliver_at"])
    except (msgspec.MsgspecError, UnicodeError, Refused) as error:
        raise Refused(f"{where}: {error}") from None
    return fields
