"""Pipelines that need no YAML: what `penstock archive`, `load` and `sql` run."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from ...errors import Refused
from ...model import check_name
from .lake import Split, Table, require_local
from .model import (
    FileFormat,
    FilesSource,
    LakeSink,
    LakeSource,
    OnDamage,
    Pipeline,
    PlotSink,
    Sink,
    Source,
    SqlTransform,
    Start,
    TableSink,
    TopicSink,
    TopicSource,
)

Server = Mapping[str, str | None]
_RESULT = "result"
# Enough to know it again, and far from the limit of a name.
_DIRECTORY_CHARACTERS_MAX = 160
# Lakes that report to one broker are few: 32 bits of the path tell them apart.
_PLACE_CHARACTERS = 8


def archive_of(
    topics: Sequence[str],
    lake: str,
    *,
    server: Server,
    start: str = "earliest",
    table: str | None = None,
    split: str | None = None,
    name: str = "",
    group: str = "",
    hold_retention: bool = False,
    skip_damage: bool = False,
) -> Pipeline:
    names = list(dict.fromkeys(check_name(one, "topic") for one in topics))
    if group:
        check_name(group, "group")
    if name:
        check_name(name, "pipeline")
    root = require_local(lake)
    sink = LakeSink(
        lake=str(root),
        inputs=tuple(names),
        table=Table(table) if table else None,
        split=Split(split) if split else None,
        group=group,
        hold_retention=hold_retention,
        on_damage=OnDamage.SKIP if skip_damage else OnDamage.FAIL,
    )
    sources: dict[str, Source] = {one: TopicSource(topic=one, start=Start(start)) for one in names}
    return _pipeline(name or lake_name(root), sources, [sink], server=server)


def load_of(
    files: str,
    topic: str,
    *,
    server: Server,
    checkpoint: str,
    kind: str = "",
    key: str = "",
    value: str = "",
) -> Pipeline:
    found = kind or Path(files).suffix.removeprefix(".")
    if found not in {one.value for one in FileFormat}:
        known = ", ".join(one.value for one in FileFormat)
        raise Refused(f"{files}: the format is one of {known}; say which with --format")
    check_name(topic, "topic")
    sources: dict[str, Source] = {
        "files": FilesSource(files=str(Path(files).absolute()), format=FileFormat(found))
    }
    sink = TopicSink(topic=topic, inputs=("files",), key=key, value=value)
    place = str(Path(checkpoint).absolute()) if checkpoint else ""
    return _pipeline(f"load.{topic}", sources, [sink], server=server, checkpoint=place)


def sql_of(
    query: str,
    sources: Mapping[str, Source],
    *,
    server: Server,
    limit: int = 1000,
    table: str = "-",
    plot: str = "",
    x: str = "",
    y: str = "",
    kind: str = "bar",
) -> Pipeline:
    from .model import PlotKind

    sinks: list[Sink] = [TableSink(table=table, inputs=(_RESULT,), limit=limit)]
    if plot:
        sinks.append(
            PlotSink(plot=plot, inputs=(_RESULT,), x=x, y=y, kind=PlotKind(kind), limit=limit)
        )
    transform = SqlTransform(sql=query, name=_RESULT)
    return _pipeline("sql", sources, sinks, server=server, transforms=(transform,))


def source_of(written: str, kind: str) -> tuple[str, Source]:
    """`NAME`, or `VIEW=NAME`, as a source: the name of a view has no dots and dashes."""
    view, equals, name = written.partition("=")
    name = name if equals else view
    if not equals:
        view = Path(name).name if kind == "lake" else name
        view = "".join(one if one.isalnum() else "_" for one in view)
    if not view.isidentifier() or not view.isascii():
        raise Refused(f"{view!r} cannot be the name of a view: letters, digits and _")
    if kind == "lake":
        return view, LakeSource(lake=str(require_local(name)))
    return view, TopicSource(topic=check_name(name, "topic"))


def lake_name(root: Path) -> str:
    """What the broker calls the archive of a lake: the name of its directory, and whose directory that is.

    It is also the group that retention waits for. With one name two lakes would share that group, and of the slower one
    messages would expire that it has not seen.
    """
    plain = "".join(
        one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in root.name
    )
    place = sha256(os.fsencode(root.resolve())).hexdigest()
    return f"archive.{plain[:_DIRECTORY_CHARACTERS_MAX]}.{place[:_PLACE_CHARACTERS]}"


def _pipeline(
    name: str,
    sources: Mapping[str, Source],
    sinks: Sequence[Sink],
    *,
    server: Server,
    checkpoint: str = "",
    transforms: tuple[SqlTransform, ...] = (),
) -> Pipeline:
    return Pipeline(
        name=name,
        sources=dict(sources),
        sinks=tuple(sinks),
        transforms=transforms,
        server=server["server"] or "",
        key_file=server.get("key_file"),
        ca_file=server.get("ca_file"),
        checkpoint=checkpoint or str(Path(f".penstock/{name}").absolute()),
    )
