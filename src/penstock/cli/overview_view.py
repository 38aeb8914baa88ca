"""Renders an overview for a terminal."""

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .output import one_line

if TYPE_CHECKING:
    from .overview import GroupLine, Overview, Replication, StandbyLine, TopicLine

_LANE_STYLES = ("bold red", "yellow", "", "cyan", "dim")


def render(found: "Overview", *, rows_max: int | None = None) -> RenderableType:
    """Returns the tables, each with at most `rows_max` lines."""
    head = Text.assemble(
        (one_line(found.node_id), "bold"),
        f" at {found.server}, up {_span(found.uptime)}, {size(found.total_size_bytes)} on disk",
    )
    lines = [] if found.replication is None else [_replication(found.replication)]
    return Group(head, *lines, _topics(found.topics, rows_max), _groups(found.groups, rows_max))


def _replication(found: "Replication") -> Text:
    style = "" if found.in_sync >= max(found.min_isr, 2) else "bold red"
    machines = "machine" if found.in_sync == 1 else "machines"
    line = Text(f"{found.in_sync} {machines} in sync, {found.min_isr} needed", style)
    line.append(f", {found.uncommitted:,} appends not committed")
    for one in found.standbys:
        line.append(f"; standby {one.node} {standby_text(one)}")
    return line


def standby_text(found: "StandbyLine") -> str:
    state = "in sync" if found.is_in_sync else "catching up"
    return f"{state}, {size(found.lag_bytes)} and {_span(found.lag_s)} behind"


def _table(title: str, *columns: str, names: int = 1) -> Table:
    """A table whose first columns are of names: on a narrow terminal these are cut, and the figures stay."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        is_name = number < names
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=not is_name)
    return table


def _name(text: str) -> Text:
    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def _topics(lines: "list[TopicLine]", rows_max: int | None) -> Table:
    table = _table(
        "Topics", "topic", "partitions", "messages", "size", "in/s", "delayed", "waiting by lane"
    )
    for one in lines[:rows_max]:
        table.add_row(
            _name(one.name),
            str(one.partitions),
            f"{one.total_messages:,}",
            size(one.total_size_bytes),
            _rate(one.written_per_s),
            f"{one.delayed:,}",
            _lanes(one.lanes),
        )
    _and_more(table, len(lines), rows_max)
    return table


def _lanes(counts: tuple[int, ...]) -> Text:
    """Returns five numbers, the most urgent first."""
    parts = [(f"{count:,}", style) for count, style in zip(counts, _LANE_STYLES, strict=False)]
    return Text(" / ").join(Text(*part) for part in parts)


def _groups(lines: "list[GroupLine]", rows_max: int | None) -> Table:
    table = _table(
        "Groups",
        "group",
        "topics",
        "members",
        "lag",
        "oldest",
        "held",
        "retrying",
        "dead",
        "done/s",
        names=2,
    )
    for one in lines[:rows_max]:
        table.add_row(
            _name(one.group),
            _name(", ".join(one.topics)),
            f"{one.members:,}",
            Text(f"{one.lag:,}", "bold" if one.lag else "dim"),
            _span(one.lag_seconds) if one.lag else "-",
            f"{one.in_flight:,}",
            f"{one.waiting:,}",
            Text(f"{one.dead:,}", "red" if one.dead else ""),
            _rate(one.finished_per_s),
        )
    _and_more(table, len(lines), rows_max)
    return table


def _and_more(table: Table, count: int, rows_max: int | None) -> None:
    if rows_max is not None and count > rows_max:
        table.add_row(_name(f"and {count - rows_max} more"))


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f}{unit}"
    return f"{seconds:.1f}s"


def size(count: int) -> str:
    """Returns bytes in a unit that gives few digits."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
