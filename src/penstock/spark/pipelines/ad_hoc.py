"""Pipelines without YAML, for `penstock archive`, `load` and `sql`."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from ...errors import Refused
from ...model import check_name
from .lake import Split, TableFormat
from .model import (
    PLOT_ENDINGS,
    TABLE_ENDINGS,
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
    TableSink,
    TopicSink,
    TopicSource,
    TopicStart,
)
from .partitions import check_topic_or_pattern, is_pattern
from .store import S3_SCHEME, lake_address

Server = Mapping[str, str | None]
_RESULT = "result"
# Far from the limit of a name.
_DIRECTORY_CHARACTERS_MAX = 160
# Few lakes report to one broker, so 32 bits of the path tell them apart.
_PATH_HASH_CHARACTERS = 8


def archive_pipeline(
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
    subject: str = "",
    partition_by: str = "",
) -> Pipeline:
    names = list(dict.fromkeys(check_topic_or_pattern(one) for one in topics))
    if subject and (len(names) > 1 or is_pattern(names[0])):
        raise Refused("values are typed for a lake of one topic: --subject goes with one")
    if partition_by and not subject:
        raise Refused(
            "files are divided by a field of typed values: --partition-by goes with --subject"
        )
    if group:
        check_name(group, "group")
    if name:
        check_name(name, "pipeline")
    root = lake_address(lake)
    sink = LakeSink(
        lake=root,
        inputs=tuple(names),
        table=TableFormat(table) if table else None,
        split=Split(split) if split else None,
        group=group,
        hold_retention=hold_retention,
        on_damage=OnDamage.SKIP if skip_damage else OnDamage.FAIL,
        subject=subject,
        partition_by=partition_by,
    )
    sources: dict[str, Source] = {
        one: TopicSource(topic=one, start=TopicStart(start)) for one in names
    }
    return _pipeline(name or lake_name(root), sources, [sink], server=server)


def load_pipeline(
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
    folder = str(Path(checkpoint).absolute()) if checkpoint else ""
    return _pipeline(f"load.{topic}", sources, [sink], server=server, checkpoint=folder)


def sql_pipeline(
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

    if table != "-" and not table.endswith(TABLE_ENDINGS):
        raise Refused(f"{table}: a table is - or ends with {', '.join(TABLE_ENDINGS)}")
    if plot and not plot.endswith(PLOT_ENDINGS):
        raise Refused(f"{plot}: a plot ends with {', '.join(PLOT_ENDINGS)}")
    sinks: list[Sink] = [TableSink(table=table, inputs=(_RESULT,), limit=limit)]
    if plot:
        sinks.append(
            PlotSink(plot=plot, inputs=(_RESULT,), x=x, y=y, kind=PlotKind(kind), limit=limit)
        )
    transform = SqlTransform(sql=query, name=_RESULT)
    return _pipeline("sql", sources, sinks, server=server, transforms=(transform,))


def named_source(written: str, kind: str, as_of: str = "") -> tuple[str, Source]:
    """Returns the view and the source of `NAME` or `VIEW=NAME`; a lake as of a commit.

    Refused: a view has letters, digits and _ only.
    """
    view, equals, name = written.partition("=")
    name = name if equals else view
    if not equals:
        view = Path(name).name if kind == "lake" else name
        view = "".join(one if one.isalnum() else "_" for one in view)
    if not view.isidentifier() or not view.isascii():
        raise Refused(f"{view!r} cannot be the name of a view: letters, digits and _")
    if kind == "lake":
        return view, LakeSource(lake=lake_address(name), as_of=as_of or None)
    return view, TopicSource(topic=check_name(name, "topic"))


def lake_name(root: str, kind: str = "archive") -> str:
    """Returns the name of the archive, or another job, of a lake: its directory or bucket, and a hash of its path.

    It is also the group that retention waits for. Two lakes with one name would share that group, and messages that the
    slower one has not read would expire.
    """
    plain = "".join(
        one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in Path(root).name
    )
    place = root if root.startswith(S3_SCHEME) else Path(root).resolve()
    path_hash = sha256(os.fsencode(place)).hexdigest()[:_PATH_HASH_CHARACTERS]
    return f"{kind}.{plain[:_DIRECTORY_CHARACTERS_MAX]}.{path_hash}"


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
