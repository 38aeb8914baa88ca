"""The options of the source: the driver parses them once into one value, and refuses unknown or wrong ones by name.

They are named as in Spark's Kafka source where that has the same option.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from ..api.units import datetime_ns, duration_s
from ..errors import Refused
from ..model import check_name
from .columns import DEFAULT_COLUMNS, check_columns
from .option_reader import (
    BrokerOptions,
    Option,
    OptionReader,
    UsedBy,
    known_options,
)

EARLIEST, LATEST = -2, -1
"""In JSON these two stand for the ends of a partition, as in Kafka."""

_NS_PER_MS = 1_000_000
# Any later time is after the last message, too.
_NS_MAX = (1 << 63) - 1


OPTIONS = (
    Option(
        "url",
        UsedBy.BOTH,
        "",
        "address of the broker; none: that of PENSTOCK_SERVER, the current context, or this machine",
    ),
    Option(
        "apiKeyFile", UsedBy.BOTH, "", "file with the API key, on the driver and on every executor"
    ),
    Option("caFile", UsedBy.BOTH, "", "certificates to trust with TLS, instead of the system's"),
    Option("subscribe", UsedBy.BOTH, "", "topics, separated by commas"),
    Option("subscribePattern", UsedBy.BOTH, "", "regular expression that whole topic names match"),
    Option("assign", UsedBy.BOTH, "", 'partitions as JSON: `{"orders": [0, 2]}`'),
    Option(
        "startingOffsets",
        UsedBy.BOTH,
        "earliest for a batch, latest for a stream",
        'earliest, latest, or JSON: `{"orders": {"0": 23, "1": -2}}`; -2 is earliest, -1 latest',
    ),
    Option("startingTimestamp", UsedBy.BOTH, "", "begin with what was stored from this time on"),
    Option(
        "startingOffsetsByTimestamp",
        UsedBy.BOTH,
        "",
        'a time for each partition, in milliseconds: `{"orders": {"0": 1769860800000}}`',
    ),
    Option(
        "endingOffsets", UsedBy.BATCH, "latest", "the same for the end, which is not read itself"
    ),
    Option("endingTimestamp", UsedBy.BATCH, "", "end before what was stored from this time on"),
    Option("maxOffsetsPerTrigger", UsedBy.STREAM, "", "at most so many messages in a micro-batch"),
    Option(
        "minOffsetsPerTrigger",
        UsedBy.STREAM,
        "",
        "wait for so many messages before a micro-batch, but no longer than maxTriggerDelay",
    ),
    Option("maxTriggerDelay", UsedBy.STREAM, "15m", "how long minOffsetsPerTrigger may wait"),
    Option("minPartitions", UsedBy.BOTH, "", "split into at least so many tasks"),
    Option("includeHeaders", UsedBy.BOTH, "false", "add the column `headers`"),
    Option(
        "columns",
        UsedBy.BOTH,
        "all but headers and dead_letter",
        "only these columns, separated by commas",
    ),
    Option(
        "schema",
        UsedBy.BOTH,
        "",
        "registry: add the columns `data`, typed by a schema of the broker's registry, and `data_error`",
    ),
    Option("schemaSubject", UsedBy.BOTH, "TOPIC-value", "the subject of that schema"),
    Option("schemaVersion", UsedBy.BOTH, "latest", "its version"),
    Option(
        "failOnDataLoss",
        UsedBy.BOTH,
        "true",
        "fail if messages are gone that were not read; or go on",
    ),
    Option(
        "group", UsedBy.STREAM, "", "publish progress as this group, so that its lag is visible"
    ),
    Option(
        "queryName",
        UsedBy.STREAM,
        "the group",
        "keep the first starting place in the broker under this name, until a first batch is done",
    ),
    Option(
        "reportProgress",
        UsedBy.STREAM,
        "true",
        "tell the broker rows, lag and what was skipped, as the pipeline queryName, if there is that name",
    ),
    Option("mode", UsedBy.BOTH, "network", "network, or files: read the broker's files directly"),
    Option("dataDir", UsedBy.BOTH, "the broker's own", "where executors see the data directory"),
    Option(
        "retries",
        UsedBy.BOTH,
        "9",
        "tries after the first when the broker is away; 9 take about 20 s",
    ),
)
# Spark adds these to the options.
_NOT_OURS = frozenset({"path", "paths"})
# Spark gives the source of a table in a catalogue this one, and none of those that the table was made with.
_OF_A_TABLE = "provider"


class Topics(NamedTuple):
    """The topics to read: by name, by pattern or by partition. One of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def fixed_names(self) -> tuple[str, ...] | None:
        """Returns the topics if they were named, or None for a pattern."""
        if self.pattern is not None:
            return None
        return self.names or tuple(name for name, _ in self.partitions)

    def matches(self, name: str) -> bool:
        return self.pattern is None or re.fullmatch(self.pattern, name) is not None

    def takes(self, topic: str, partition: int) -> bool:
        """Whether the query reads this partition of a topic that it reads."""
        assigned = dict(self.partitions).get(topic)
        return assigned is None or partition in assigned

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        parts = [f"{name}/{one}" for name, numbers in self.partitions for one in numbers]
        return ", ".join(parts or self.names)


PartitionNumbers = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""A number for each partition, by topic."""


class OffsetSpec(NamedTuple):
    """A start or an end of a query: earliest or latest, offsets by partition, a time, or times by partition."""

    end: int | None = None
    offsets: PartitionNumbers = ()
    time_ns: int | None = None
    times_ns: PartitionNumbers = ()


FROM_EARLIEST, FROM_LATEST = OffsetSpec(EARLIEST), OffsetSpec(LATEST)


class Mode(Enum):
    NETWORK = "network"
    FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(BrokerOptions):
    """All options of a query that reads."""

    topics: Topics
    start: OffsetSpec
    end: OffsetSpec = FROM_LATEST
    rows_a_trigger: int | None = None
    # Fewer rows wait for more, up to so long after the last micro-batch.
    rows_a_trigger_min: int | None = None
    trigger_delay_s: float = 900.0
    tasks_min: int | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    # The subject of values and a version of it; and, once the driver has asked the broker, the id of its schema.
    subject: str | None = None
    version: int = LATEST
    schema_id: int | None = None
    is_loss_fatal: bool = True
    group: str | None = None
    query: str | None = None
    is_reported: bool = True
    mode: Mode = Mode.NETWORK
    data_dir: str | None = None


def parse_options(given: Mapping[str, str], used_by: UsedBy | None) -> SourceOptions:
    """Returns the options of `spark.read` or `spark.readStream`, or of either, where Spark does not say which.

    Refused names the option and says what it takes.
    """
    asked = OptionReader(_known(given, used_by))
    is_stream = used_by is UsedBy.STREAM
    group, topics = asked.named("group"), _topics(asked)
    return SourceOptions(
        topics=topics,
        subject=_subject(asked, topics),
        version=_version(asked),
        start=_place(asked, "starting", FROM_LATEST if is_stream else FROM_EARLIEST),
        end=_place(asked, "ending", FROM_LATEST),
        **asked.broker(),
        rows_a_trigger=asked.number("maxOffsetsPerTrigger"),
        rows_a_trigger_min=_rows_min(asked),
        trigger_delay_s=duration_s(
            asked.text("maxTriggerDelay") or "15m", "option maxTriggerDelay"
        ),
        tasks_min=asked.number("minPartitions"),
        columns=_columns(asked),
        is_loss_fatal=asked.flag("failOnDataLoss", default=True),
        group=group,
        query=asked.named("queryName") or group,
        is_reported=asked.flag("reportProgress", default=True),
        mode=asked.one_of("mode", Mode, Mode.NETWORK),
        data_dir=asked.text("dataDir"),
    )


def _rows_min(asked: OptionReader) -> int | None:
    least, most = asked.number("minOffsetsPerTrigger"), asked.number("maxOffsetsPerTrigger")
    if least is None and asked.text("maxTriggerDelay") is not None:
        raise Refused("maxTriggerDelay needs minOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise Refused(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, {most}")
    return least


def _subject(asked: OptionReader, topics: Topics) -> str | None:
    word, named = asked.text("schema"), asked.text("schemaSubject")
    if word is None:
        if named is not None or asked.text("schemaVersion") is not None:
            raise Refused("schemaSubject and schemaVersion need schema=registry")
        return None
    if word.lower() != "registry":
        raise Refused(f"option schema must be registry, got {word[:40]!r}")
    names = topics.fixed_names() or ()
    if named is None and len(names) != 1:
        raise Refused("option schemaSubject has to be given unless one topic is read")
    return named or f"{names[0]}-value"


def _version(asked: OptionReader) -> int:
    if (asked.text("schemaVersion") or "latest").lower() == "latest":
        return LATEST
    return asked.number("schemaVersion") or LATEST


def asks_registry(given: Mapping[str, str]) -> bool:
    """Whether the columns depend on a schema of the broker."""
    return OptionReader(_known(given, None)).text("schema") is not None


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns only the columns: Spark asks for them before it says whether it plans a batch or a stream."""
    return _columns(OptionReader(_known(given, None)))


def _columns(asked: OptionReader) -> tuple[str, ...]:
    return check_columns(_words(asked.text("columns")), has_headers=asked.flag("includeHeaders"))


def _known(given: Mapping[str, str], used_by: UsedBy | None) -> dict[str, str]:
    for name, value in given.items():
        if name.lower() in _NOT_OURS:
            raise Refused(f"there is nothing to load from {value!r}: name topics in 'subscribe'")
        if name.lower() == _OF_A_TABLE:
            raise Refused(
                "Spark does not tell a source the options of a table: use CREATE TEMPORARY VIEW ... USING penstock, "
                "not CREATE TABLE"
            )
    return known_options(given, OPTIONS, used_by)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _topics(asked: OptionReader) -> Topics:
    names = ("subscribe", "subscribePattern", "assign")
    found = [name for name in names if asked.text(name) is not None]
    if len(found) != 1:
        given = f"{' and '.join(found)} were given" if found else "none was given"
        raise Refused(f"give one of subscribe, subscribePattern and assign; {given}")
    readers: dict[str, Callable[[OptionReader], Topics]] = {
        "subscribe": _subscribed,
        "subscribePattern": _matched,
        "assign": _assigned,
    }
    return readers[found[0]](asked)


def _subscribed(asked: OptionReader) -> Topics:
    names = _words(asked.text("subscribe"))
    if not names:
        raise Refused("option subscribe names no topic")
    return Topics(names=tuple(dict.fromkeys(check_name(name, "topic") for name in names)))


def _matched(asked: OptionReader) -> Topics:
    pattern = asked.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise Refused(f"option subscribePattern is not a regular expression: {error}") from None
    return Topics(pattern=pattern)


def _assigned(asked: OptionReader) -> Topics:
    wrong = 'option assign looks like {"orders": [0, 2]}'
    found = asked.json("assign")
    if not found:
        raise Refused(f"{wrong}, got {(asked.text('assign') or '')[:80]!r}")
    chosen = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(map(_is_natural, numbers)):
            raise Refused(f"{wrong}, got {numbers!r} for {topic[:80]}")
        chosen.append((check_name(topic, "topic"), tuple(sorted(set(numbers)))))
    return Topics(partitions=tuple(chosen))


def _is_natural(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and one >= 0


def _place(asked: OptionReader, which: str, default: OffsetSpec) -> OffsetSpec:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    by_times = f"{which}OffsetsByTimestamp"
    word, time = asked.text(by_offset), asked.text(by_time)
    given = [name for name in (by_offset, by_time, by_times) if asked.text(name) is not None]
    if len(given) > 1:
        raise Refused(f"give one of {' and '.join(given)}")
    if given == [by_times]:
        times = asked.json(by_times) or {}
        pairs = [_by_partition(by_times, *one, 0) for one in times.items()]
        if not pairs:
            raise Refused(f'option {by_times} looks like {{"orders": {{"0": 1769860800000}}}}')
        return OffsetSpec(
            times_ns=tuple(
                (topic, tuple((number, min(ms * _NS_PER_MS, _NS_MAX)) for number, ms in found))
                for topic, found in pairs
            )
        )
    if time is not None:
        return OffsetSpec(time_ns=time_ns(by_time, time))
    if word is None:
        return default
    named = {"latest": FROM_LATEST} | ({"earliest": FROM_EARLIEST} if which == "starting" else {})
    if word.lower() in named:
        return named[word.lower()]
    offsets = asked.json(by_offset)
    if not offsets:
        raise Refused(f"option {by_offset} must be {', '.join(named)} or JSON, got {word[:40]!r}")
    least = EARLIEST if which == "starting" else LATEST
    return OffsetSpec(
        offsets=tuple(_by_partition(by_offset, *one, least) for one in offsets.items())
    )


def _by_partition(
    option: str, topic: str, given: object, least: int
) -> tuple[str, tuple[tuple[int, int], ...]]:
    if not isinstance(given, dict) or not given:
        raise Refused(f'option {option} looks like {{"orders": {{"0": 23}}}}, got {given!r}')
    found, what = [], "time" if option.endswith("Timestamp") else "offset"
    for partition, offset in given.items():
        if not partition.isdecimal() or type(offset) is not int or offset < least:
            raise Refused(
                f"option {option}: partition {partition!r} of {topic} has {what} {offset!r}"
            )
        found.append((int(partition), offset))
    return topic, tuple(sorted(found))


def time_ns(option: str, text: str) -> int:
    """Returns nanoseconds since 1970, from milliseconds since 1970 or RFC 3339. Refused: it is neither."""
    if text.isascii() and text.isdecimal() and len(text) <= 13:
        return min(int(text) * _NS_PER_MS, _NS_MAX)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise Refused(
            f"option {option} must be milliseconds since 1970, or like 2026-01-31T12:00:00Z, got {text[:40]!r}"
        )
    return min(max(datetime_ns(when, f"option {option}"), 0), _NS_MAX)
