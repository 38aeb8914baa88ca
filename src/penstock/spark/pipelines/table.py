"""The rows of a query: as text, as a file, as a plot."""

from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ...errors import Refused
from .model import PlotKind, PlotSink

_CELL_CHARACTERS_MAX = 60
_LABELS_MAX = 30
_SIZE_INCHES = (9.0, 5.0)
_JSON = msgspec.json.Encoder(decimal_format="string", enc_hook=str).encode


def cell(one: Any) -> str:
    """Returns a value as text on one line, shortened."""
    if one is None:
        return ""
    if isinstance(one, bytes):
        text = text_of(one)
    elif isinstance(one, datetime):
        text = one.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    elif isinstance(one, float):
        text = f"{one:.6g}" if abs(one) < 100 else f"{one:,.2f}"
    elif isinstance(one, Decimal):
        text = f"{one:,}"
    else:
        text = str(one)
    text = " ".join(text.split())
    return text if len(text) <= _CELL_CHARACTERS_MAX else f"{text[:_CELL_CHARACTERS_MAX]}..."


def text_of(one: bytes) -> str:
    """Returns bytes as text, or as base64 that says so if they are not UTF-8."""
    try:
        return one.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(one).decode()}"


def plain(table: pa.Table) -> str:
    """Returns a table as text: columns under their names, numbers to the right."""
    names = table.schema.names
    cells = [[cell(one) for one in column.to_pylist()] for column in table.columns]
    widths = [
        max(len(name), *(len(one) for one in column), 0)
        for name, column in zip(names, cells, strict=True)
    ]
    are_numbers = [_is_number(one.type) for one in table.schema]

    def line(words: Sequence[str]) -> str:
        padded = (
            word.rjust(width) if is_number else word.ljust(width)
            for word, width, is_number in zip(words, widths, are_numbers, strict=True)
        )
        return "  ".join(padded).rstrip()

    rows = zip(*cells, strict=True)
    return "\n".join(
        [line(names), line(["-" * one for one in widths]), *(line(row) for row in rows)]
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def json_lines(table: pa.Table) -> str:
    """Returns a JSON object a line, with whole values; bytes as text or base64."""
    return "\n".join(json_of(row) for row in table.to_pylist())


def json_of(one: Any) -> str:
    """Returns a value as JSON on one line; bytes as text or base64."""
    return _JSON(_with_text(one)).decode()


def _with_text(one: Any) -> Any:
    """Returns a value with text in the place of bytes, in its parts, too."""
    if isinstance(one, bytes):
        return text_of(one)
    if isinstance(one, dict):
        return {name: _with_text(part) for name, part in one.items()}
    if isinstance(one, list | tuple):
        return [_with_text(part) for part in one]
    return one


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table in the format of the file's ending: .csv, .json (lines) or .parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    elif path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(_flat(table), path)
    else:
        path.write_text("".join(f"{json_of(row)}\n" for row in table.to_pylist()))


def _flat(table: pa.Table) -> pa.Table:
    """Returns the table with bytes as text and nested columns as JSON: CSV has neither."""
    columns = []
    for column in table.columns:
        is_nested = pa.types.is_nested(column.type)
        if is_nested or pa.types.is_binary(column.type):
            text = json_of if is_nested else text_of
            cells = [None if one is None else text(one) for one in column.to_pylist()]
            columns.append(pa.array(cells, pa.string()))
        else:
            columns.append(column)
    return pa.table(columns, names=table.schema.names)


def draw(table: pa.Table, sink: PlotSink) -> None:
    """Draw one column against another. Refused: a column is missing, holds no numbers, or there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Refused("a plot needs matplotlib: pip install 'penstock[bench]'") from None
    x, y = _column(table, sink.x, 0), _column(table, sink.y, 1)
    if not _is_number(table.schema.field(y).type):
        raise Refused(f"plot: column {y} holds no numbers")
    labels = [cell(one) for one in table.column(x).to_pylist()]
    heights = [float(one or 0) for one in table.column(y).to_pylist()]
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    if sink.kind is PlotKind.BAR:
        axes.bar(labels, heights)
    else:
        axes.plot(labels, heights, marker="o")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, axis="y", alpha=0.3)
    if len(labels) > _LABELS_MAX:
        axes.set_xticks(range(0, len(labels), -(-len(labels) // _LABELS_MAX)))
    axes.tick_params(axis="x", rotation=45 if len(labels) > 8 else 0)
    Path(sink.plot).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(sink.plot)


def _column(table: pa.Table, name: str, place: int) -> str:
    names: list[str] = table.schema.names
    if not name and len(names) > place:
        return names[place]
    if name not in names:
        raise Refused(f"plot: there is no column {name!r}; there are {', '.join(names)}")
    return name
