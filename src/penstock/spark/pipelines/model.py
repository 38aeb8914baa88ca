"""A pipeline: sources, transforms and sinks, with one class for each kind in its YAML.

The parser recognises a class by its first field (`topic:`, `lake:`, `sql:` ...). `from` in YAML is `inputs` here,
because `from` is a keyword of Python.
"""

from dataclasses import dataclass, field
from enum import Enum

from ..fingerprint import Then
from .lake import Split, TableFormat

TABLE_ENDINGS = (".csv", ".json", ".parquet")
PLOT_ENDINGS = (".png", ".svg", ".pdf")


class PipelineKind(Enum):
    """What a pipeline does. It follows from the sinks."""

    ARCHIVE = "archive"
    STREAM = "stream"
    LOAD = "load"
    SQL = "sql"


class TopicStart(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class FileFormat(Enum):
    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


class Compression(Enum):
    NONE = "none"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class OnDamage(Enum):
    FAIL = "fail"
    SKIP = "skip"


class PlotKind(Enum):
    BAR = "bar"
    LINE = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Messages of a topic; for an archive also of all whose names match a pattern with * and ?."""

    topic: str
    start: TopicStart = TopicStart.EARLIEST


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSource:
    """The files that the manifests of a lake name, now or after an earlier commit: its number, or a time."""

    lake: str
    as_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource:
    """Files by a pattern with * and ?. CSV has a line of names; JSON is one object a line."""

    files: str
    format: FileFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTransform:
    """A query over sources and earlier transforms, by their names."""

    sql: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTransform:
    """`module:function`, called with a DataFrame for each of `from`, in their order; returns a DataFrame."""

    python: str
    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """A lake. `group` publishes the progress in the broker; `hold_retention` has the topics wait for it.

    `subject`: the values of a new lake are typed columns, too, by the latest version of this subject. `partition_by`:
    a field of them divides the files, too. `rejects_topic`, `rejects_files`: where values go that could not be read.
    """

    lake: str
    inputs: tuple[str, ...]
    table: TableFormat | None = None
    split: Split | None = None
    compression: Compression = Compression.ZSTD
    group: str = ""
    hold_retention: bool = False
    on_damage: OnDamage = OnDamage.FAIL
    # Of a stream: a micro-batch that the lake has with other rows, and one below the last.
    on_repeat: Then = Then.REFUSE
    if_older: Then = Then.REFUSE
    subject: str = ""
    partition_by: str = ""
    rejects_topic: str = ""
    rejects_files: str = ""
    max_messages_per_commit: int = 2_000_000
    max_messages_per_file: int = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """A topic. `key` and `value` are columns; without `value` it is the whole row as a JSON object."""

    topic: str
    inputs: tuple[str, ...]
    key: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """A table: printed with `-`, or a file (.csv, .json, .parquet)."""

    table: str
    inputs: tuple[str, ...]
    limit: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotSink:
    """A picture (.png, .svg, .pdf) of one column against another: the first two, if they are not named."""

    plot: str
    inputs: tuple[str, ...]
    x: str = ""
    y: str = ""
    kind: PlotKind = PlotKind.BAR
    limit: int = 1000


Source = TopicSource | LakeSource | FilesSource
Transform = SqlTransform | PythonTransform
Sink = LakeSink | TopicSink | TableSink | PlotSink

SOURCES: tuple[type[Source], ...] = (TopicSource, LakeSource, FilesSource)
TRANSFORMS: tuple[type[Transform], ...] = (SqlTransform, PythonTransform)
SINKS: tuple[type[Sink], ...] = (LakeSink, TopicSink, TableSink, PlotSink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline. `checkpoint` is the folder with the progress of a stream or a load; an archive needs none."""

    name: str
    sources: dict[str, Source]
    sinks: tuple[Sink, ...]
    transforms: tuple[Transform, ...] = ()
    server: str = "penstock://127.0.0.1:9092"
    key_file: str | None = None
    ca_file: str | None = None
    checkpoint: str = ""
    interval_ms: int = 10_000
    # Settings of Spark itself.
    spark: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> PipelineKind:
        first = self.sinks[0]
        if isinstance(first, TopicSink):
            return PipelineKind.LOAD
        if not isinstance(first, LakeSink):
            return PipelineKind.SQL
        named = [self.sources.get(one) for one in first.inputs]
        is_direct = all(isinstance(one, TopicSource) for one in named)
        return PipelineKind.ARCHIVE if is_direct else PipelineKind.STREAM

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic that the pipeline reads or writes, once."""
        read = [one.topic for one in self.sources.values() if isinstance(one, TopicSource)]
        written = [one.topic for one in self.sinks if isinstance(one, TopicSink)]
        return tuple(dict.fromkeys((*read, *written)))

    @property
    def target(self) -> str:
        """The lake, topic, table or plot of the first sink."""
        first = self.sinks[0]
        return next(str(getattr(first, name)) for name in first.__slots__)
