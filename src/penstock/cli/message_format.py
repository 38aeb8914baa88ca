"""The format string of `penstock consume --format`, with the letters of kcat."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..client import Received
    from ..model import Message

Part = Callable[[int, "Message | Received"], bytes]
"""Returns the bytes that a part of the format stands for, in a message of this partition."""

LETTERS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "K": "length of the key",
    "s": "value",
    "S": "length of the value",
    "T": "timestamp in ms",
    "h": "headers, as a=1,b=2",
    "%": "a %",
}
MEANINGS = ", ".join(f"%{letter} {meaning}" for letter, meaning in LETTERS.items())

_PIECES = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_MS_NS = 1_000_000


def format_parts(written: str, topic: str) -> list[Part]:
    """Returns the parts of a format, in order. UsageError: a letter that has no meaning."""
    return [part_of(found, topic) for found in _PIECES.finditer(written)]


def part_of(found: re.Match[str], topic: str) -> Part:
    letter, escape = found[1], found[2]
    if letter is not None:
        if letter not in LETTERS:
            raise click.UsageError(f"--format: %{letter} has no meaning; there are {MEANINGS}")
        return field_of(letter, topic)
    if escape is None:
        return constant(found[0].encode())
    if escape[:1] == "x" and len(escape) == 3:
        return constant(bytes.fromhex(escape[1:]))
    if escape not in _ESCAPES:
        raise click.UsageError(f"--format: \\{escape} is not \\n, \\t, \\r, \\0, \\\\ or \\xNN")
    return constant(_ESCAPES[escape])


def constant(content: bytes) -> Part:
    return lambda _partition, _message: content


def field_of(letter: str, topic: str) -> Part:
    """Returns what a letter stands for. A value or key that is null is empty, and its length -1."""
    fields: dict[str, Part] = {
        "t": constant(topic.encode()),
        "p": lambda partition, _: b"%d" % partition,
        "o": lambda _, message: b"%d" % message.offset,
        "k": lambda _, message: message.key or b"",
        "K": lambda _, message: length_of(message.key),
        "s": lambda _, message: message.value or b"",
        "S": lambda _, message: length_of(message.value),
        "T": lambda _, message: b"%d" % (message.timestamp // _MS_NS),
        "h": lambda _, message: b",".join(
            name.encode() + b"=" + (value or b"") for name, value in message.headers
        ),
        "%": constant(b"%"),
    }
    return fields[letter]


def length_of(content: bytes | None) -> bytes:
    return b"%d" % (-1 if content is None else len(content))
