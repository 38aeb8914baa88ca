"""Prints the results of all commands, as a table, JSON or YAML; and the options for that."""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from msgspec import Struct

Row = Mapping[str, Any]
_GAP = "  "
_WORD_ENDS = re.compile(r"_|(?=[A-Z])")
# Longer values are cut in a table; JSON shows all of them.
_CELL_CHARACTERS_MAX = 80


class Form(Enum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Prints rows and records. JSON is one object a line, so that programs can read a stream of any length."""

    def __init__(self, form: Form) -> None:
        self.form = form

    @property
    def is_table(self) -> bool:
        return self.form is Form.TABLE

    def rows(
        self, rows: "Iterable[Row | Struct]", columns: Sequence[str], *, empty: str = ""
    ) -> None:
        """Print a table of some columns; JSON and YAML have every field. `empty` is printed if there are no rows."""
        if not self.is_table:
            for row in rows:
                self.item(row)
            return
        found = [
            [shortened(cell(row.get(name))) for name in columns] for row in map(fields_of, rows)
        ]
        if found:
            print_table([_WORD_ENDS.sub(" ", name) for name in columns], found)
        elif empty:
            click.echo(empty, err=True)

    def record(self, record: "Row | Struct") -> None:
        """Print one record, as a line for each field."""
        if not self.is_table:
            self.item(record, is_alone=True)
            return
        for name, value in fields_of(record).items():
            click.echo(f"{name.replace('_', ' ')}: {cell(value)}")

    def outcome(self, sentence: str, record: "Row | Struct") -> None:
        """Print what was done, as a sentence or as a record."""
        if self.is_table:
            click.echo(sentence)
        else:
            self.item(record, is_alone=True)

    def item(self, record: "Row | Struct", *, is_alone: bool = False) -> None:
        """Print one record of many at once. In YAML each is a list of one item, so that all together are a list."""
        if self.form is Form.JSON:
            import json

            sys.stdout.write(json.dumps(fields_of(record)) + "\n")
            return
        import yaml

        found = dict(fields_of(record))
        shown = found if is_alone else [found]
        sys.stdout.write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True))


def say_more(limit: int, option: str = "--limit") -> None:
    """Tell on stderr that a list ends at its limit, so that those who count its lines do not take it for the whole."""
    click.echo(f"the first {limit:,}, and there are more: {option}", err=True)


def fields_of(record: "Row | Struct") -> Row:
    """Returns a shape of `api.json` as the object that HTTP answers, and any other record as it is."""
    if isinstance(record, Mapping):
        return record
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(record)
    return found


def cell(value: object) -> str:
    """Returns a value as text on one line."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Mapping):
        return one_line(", ".join(f"{name}={one}" for name, one in value.items()))
    if isinstance(value, list | tuple):
        return one_line(", ".join(map(str, value)))
    return one_line(str(value))


def shortened(text: str) -> str:
    if len(text) <= _CELL_CHARACTERS_MAX:
        return text
    return text[: _CELL_CHARACTERS_MAX - 3] + "..."


def one_line(text: str) -> str:
    """Returns text without control characters, which could move the cursor."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def print_table(titles: Sequence[str], found: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(titles, *found, strict=True)]
    is_number = [all(is_figure(text) for text in column) for column in zip(*found, strict=True)]
    for line in [[title.upper() for title in titles], *found]:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        ]
        click.echo(_GAP.join(cells).rstrip())


def is_figure(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").lstrip("-").isdecimal()


_OUTPUT = click.option(
    "--output",
    "-o",
    "written",
    type=click.Choice([one.value for one in Form]),
    help="How to show it: table (default), json (one object a line) or yaml.",
)
_JSON = click.option("--json", "is_json", is_flag=True, help="Short for --output json.")


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --output and --json; the command gets `output`."""

    @_OUTPUT
    @_JSON
    @functools.wraps(command)
    def run(*args: Any, written: str | None, is_json: bool, **more: Any) -> None:
        if is_json and written not in {None, Form.JSON.value}:
            raise click.UsageError(f"--json and --output {written} contradict each other")
        form = Form.JSON if is_json else Form(written or Form.TABLE.value)
        command(*args, output=Output(form), **more)

    return run


def text_of(content: bytes | None) -> str | dict[str, str] | None:
    """Returns bytes as text if they are UTF-8, otherwise as base64 that says so."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(content).decode()}


def one_line_of(content: bytes | None) -> str:
    """Returns bytes as one printable line."""
    return "(null)" if content is None else one_line(content.decode(errors="backslashreplace"))
