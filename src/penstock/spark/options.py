"""The options of the source: the driver parses them once into one value, and refuses unknown or wrong ones by name.

They are named as in Spark's Kafka source where that has the same option.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ..client import Client, ClientSettings, RetryPolicy
from ..errors import Refused
from ..model import check_name
from .columns import DEFAULT_COLUMNS, check_columns

DEFAULT_URL = "penstock://127.0.0.1:9092"
EARLIEST, LATEST = -2, -1
"""In JSON these two stand for the ends of a partition, as in Kafka."""

_NS_PER_MS = 1_000_000
_BACKOFF_MS = 200
_BACKOFF_MS_MAX = 5000
_KEY_BYTES_MAX = 4096


class UsedBy(Enum):
    """The kinds of query that take an option."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


class Option(NamedTuple):
    """One option, and what the guide says of it."""

    name: str
    used_by: UsedBy
    default: str
    says: str


OPTIONS = (
    Option("url", UsedBy.BOTH, DEFAULT_URL, "address of the broker"),
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
        "endingOffsets", UsedBy.BATCH, "latest", "the same for the end, which is not read itself"
    ),
    Option("endingTimestamp", UsedBy.BATCH, "", "end before what was stored from this time on"),
    Option("maxOffsetsPerTrigger", UsedBy.STREAM, "", "at most so many messages in a micro-batch"),
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
    Option("pushFilters", UsedBy.BATCH, "false", "use filters on partition, offset and timestamp"),
    Option("mode", UsedBy.BOTH, "network", "network, or files: read the broker's files directly"),
    Option("dataDir", UsedBy.BOTH, "the broker's own", "where executors see the data directory"),
    Option(
        "retries",
        UsedBy.BOTH,
        "9",
        "tries after the first when the broker is away; 9 take about 20 s",
    ),
)
_BY_NAME = {one.name.lower(): one for one in OPTIONS}
# Spark adds these to the options.
_NOT_OURS = frozenset({"path", "paths"})


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
        return ", ".join(self.fixed_names() or ())


class OffsetSpec(NamedTuple):
    """A start or an end of a query: earliest or latest, offsets by topic and partition, or a time."""

    end: int | None = None
    offsets: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    time_ns: int | None = None


FROM_EARLIEST, FROM_LATEST = OffsetSpec(EARLIEST), OffsetSpec(LATEST)


class Mode(Enum):
    NETWORK = "network"
    FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of a query. Spark sends them to the executors: the name of the key's file, never the key."""

    topics: Topics
    start: OffsetSpec
    end: OffsetSpec = FROM_LATEST
    url: str = DEFAULT_URL
    api_key_file: str | None = None
    ca_file: str | None = None
    rows_a_trigger: int | None = None
    tasks_min: int | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    # The subject of values and a version of it; and, once the driver has asked the broker, the id of its schema.
    subject: str | None = None
    version: int = LATEST
    schema_id: int | None = None
    is_loss_fatal: bool = True
    group: str | None = None
    query: str | None = None
    is_filtered: bool = False
    mode: Mode = Mode.NETWORK
    data_dir: str | None = None
    retries: int = 9

    def connect(self) -> Client:
        """Returns a client, which the caller closes. Refused: the file with the key cannot be read."""
        policy = RetryPolicy(
            retries=self.retries, backoff_ms=_BACKOFF_MS, backoff_ms_max=_BACKOFF_MS_MAX
        )
        settings = ClientSettings(retry=policy, ca_file=self.ca_file)
        key, file = None, self.api_key_file
        if file is not None:
            try:
                with Path(file).open(encoding="utf-8") as opened:
                    key = opened.read(_KEY_BYTES_MAX).strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise Refused(f"apiKeyFile {file}: {reason}") from None
        return Client(self.url, key=key, settings=settings)


def parse_options(given: Mapping[str, str], used_by: UsedBy | None) -> SourceOptions:
    """Returns the options of `spark.read` or `spark.readStream`, or of either, where Spark does not say which.

    Refused names the option and says what it takes.
    """
    asked = _OptionReader(_known(given, used_by))
    is_stream = used_by is UsedBy.STREAM
    group, topics = asked.named("group"), _topics(asked)
    return SourceOptions(
        topics=topics,
        subject=_subject(asked, topics),
        version=_version(asked),
        start=_place(asked, "starting", FROM_LATEST if is_stream else FROM_EARLIEST),
        end=_place(asked, "ending", FROM_LATEST),
        url=asked.text("url") or DEFAULT_URL,
        api_key_file=asked.text("apiKeyFile"),
        ca_file=asked.text("caFile"),
        rows_a_trigger=asked.number("maxOffsetsPerTrigger"),
        tasks_min=asked.number("minPartitions"),
        columns=_columns(asked),
        is_loss_fatal=asked.flag("failOnDataLoss", default=True),
        group=group,
        query=asked.named("queryName") or group,
        is_filtered=asked.flag("pushFilters"),
        mode=asked.one_of("mode", Mode, Mode.NETWORK),
        data_dir=asked.text("dataDir"),
        retries=_retries(asked),
    )


def _subject(asked: "_OptionReader", topics: Topics) -> str | None:
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


def _version(asked: "_OptionReader") -> int:
    if (asked.text("schemaVersion") or "latest").lower() == "latest":
        return LATEST
    return asked.number("schemaVersion") or LATEST


def asks_registry(given: Mapping[str, str]) -> bool:
    """Whether the columns depend on a schema of the broker."""
    return _OptionReader(_known(given, None)).text("schema") is not None


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns only the columns: Spark asks for them before it says whether it plans a batch or a stream."""
    return _columns(_OptionReader(_known(given, None)))


def _columns(asked: "_OptionReader") -> tuple[str, ...]:
    return check_columns(_words(asked.text("columns")), has_headers=asked.flag("includeHeaders"))


def _known(given: Mapping[str, str], used_by: UsedBy | None) -> dict[str, str]:
    """Returns the options by their proper names; capitals do not matter. Refused: unknown, or not for this query."""
    found = {}
    for name, value in given.items():
        option = _BY_NAME.get(name.lower())
        if option is None:
            if name.lower() in _NOT_OURS:
                raise Refused(
                    f"there is nothing to load from {value!r}: name topics in 'subscribe'"
                )
            raise Refused(_unknown(name))
        if used_by is not None and option.used_by not in {UsedBy.BOTH, used_by}:
            raise Refused(f"option {option.name} is for a {option.used_by.value} only")
        found[option.name] = str(value)
    return found


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.5)
    meant = f"; did you mean {_BY_NAME[near[0]].name}?" if near else ""
    known = ", ".join(one.name for one in OPTIONS)
    return (
        f"unknown option {name!r}{meant} There are: {known}"
        if meant
        else (f"unknown option {name!r}. There are: {known}")
    )


class _OptionReader:
    """Parses the text of options. Every method refuses a wrong value with the name of the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str | None:
        return self.given.get(name, "").strip() or None

    def named(self, name: str) -> str | None:
        found = self.text(name)
        return None if found is None else check_name(found, name)

    def number(self, name: str, *, least: int = 1) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if not found.isascii() or not found.isdecimal() or len(found) > 18 or int(found) < least:
            raise Refused(f"option {name} must be a number of at least {least}, got {found[:40]!r}")
        return int(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        found = (self.text(name) or str(default)).lower()
        if found not in {"true", "false"}:
            raise Refused(f"option {name} must be true or false, got {found[:40]!r}")
        return found == "true"

    def one_of(self, name: str, kind: type[Mode], default: Mode) -> Mode:
        found = self.text(name)
        known = {one.value: one for one in kind}
        if found is not None and found.lower() not in known:
            raise Refused(f"option {name} must be one of {', '.join(known)}, got {found[:40]!r}")
        return default if found is None else known[found.lower()]

    def json(self, name: str) -> dict[str, Any] | None:
        """Returns a JSON object, or None for a plain word or no value."""
        found = self.text(name)
        if found is None or not found.startswith("{"):
            return None
        try:
            return dict(json.loads(found))
        except ValueError as error:
            raise Refused(f"option {name} is not JSON: {error}") from None


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _retries(asked: _OptionReader) -> int:
    retries = asked.number("retries", least=0)
    return 9 if retries is None else min(retries, 1000)


def _topics(asked: _OptionReader) -> Topics:
    names = ("subscribe", "subscribePattern", "assign")
    found = [name for name in names if asked.text(name) is not None]
    if len(found) != 1:
        given = f"{' and '.join(found)} were given" if found else "none was given"
        raise Refused(f"give one of subscribe, subscribePattern and assign; {given}")
    readers: dict[str, Callable[[_OptionReader], Topics]] = {
        "subscribe": _subscribed,
        "subscribePattern": _matched,
        "assign": _assigned,
    }
    return readers[found[0]](asked)


def _subscribed(asked: _OptionReader) -> Topics:
    names = _words(asked.text("subscribe"))
    return Topics(names=tuple(dict.fromkeys(check_name(name, "topic") for name in names)))


def _matched(asked: _OptionReader) -> Topics:
    pattern = asked.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise Refused(f"option subscribePattern is not a regular expression: {error}") from None
    return Topics(pattern=pattern)


def _assigned(asked: _OptionReader) -> Topics:
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


def _place(asked: _OptionReader, which: str, default: OffsetSpec) -> OffsetSpec:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    word, time = asked.text(by_offset), asked.text(by_time)
    if word is not None and time is not None:
        raise Refused(f"give one of {by_offset} and {by_time}")
    if time is not None:
        return OffsetSpec(time_ns=time_ns(by_time, time))
    if word is None:
        return default
    named = {"latest": FROM_LATEST} | ({"earliest": FROM_EARLIEST} if which == "starting" else {})
    if word.lower() in named:
        return named[word.lower()]
    offsets = asked.json(by_offset)
    if offsets is None:
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
    found = []
    for partition, offset in given.items():
        if not partition.isdecimal() or not isinstance(offset, int) or offset < least:
            raise Refused(
                f"option {option}: partition {partition!r} of {topic} has offset {offset!r}"
            )
        found.append((int(partition), offset))
    return topic, tuple(sorted(found))


def time_ns(option: str, text: str) -> int:
    """Returns nanoseconds since 1970, from milliseconds since 1970 or RFC 3339. Refused: it is neither."""
    if text.isascii() and text.isdecimal() and len(text) <= 13:
        return int(text) * _NS_PER_MS
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise Refused(
            f"option {option} must be milliseconds since 1970, or like 2026-01-31T12:00:00Z, got {text[:40]!r}"
        )
    return int(when.timestamp() * 1_000_000) * 1000
