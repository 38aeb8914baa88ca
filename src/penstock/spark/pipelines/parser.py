"""Parses the YAML of a pipeline, and collects everything that is wrong with it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from ...api.units import Bare, duration_ms
from ...errors import InvalidName, InvalidSettings, Refused
from ...model import check_name
from .model import (
    PLOT_ENDINGS,
    SINKS,
    SOURCES,
    TABLE_ENDINGS,
    TRANSFORMS,
    FilesSource,
    LakeSink,
    Pipeline,
    PlotSink,
    PythonTransform,
    Sink,
    Source,
    TableSink,
    TopicSink,
    TopicSource,
    Transform,
)
from .partitions import check_topic_or_pattern, is_pattern
from .store import S3_SCHEME, lake_address

T = TypeVar("T")
_FILE_BYTES_MAX = 1 << 20
# Aliases of aliases make a small file enormous.
_ALIASES_MAX = 100
_ALIAS = re.compile(r"(?:^|[\s,:\[{])\*[\w-]")
_YAML_NAME = {"inputs": "from", "interval_ms": "interval"}
_FIELD_NAME = {written: name for name, written in _YAML_NAME.items()}
_INTERVAL_MS_MAX = 24 * 3600 * 1000


def read_pipeline(text: str, *, path: Path, server: str | None = None) -> Pipeline:
    """Returns a pipeline. InvalidSettings lists every problem. `server` wins over the one in the file."""
    parser = _PipelineParser(path)
    content = parser.parse(text)
    if content is not None:
        made = parser.pipeline(content, server)
        if made is not None and not parser.problems:
            return made
    raise InvalidSettings(parser.problems)


class _PipelineParser:
    """Parses one file into a pipeline, and collects its problems."""

    def __init__(self, path: Path) -> None:
        self.path, self.problems = path, list[str]()

    def problem(self, text: str) -> None:
        self.problems.append(f"{self.path.name}: {text}")

    def parse(self, text: str) -> dict[str, Any] | None:
        import yaml

        if len(text) > _FILE_BYTES_MAX or len(_ALIAS.findall(text)) > _ALIASES_MAX:
            self.problem("too large to describe a pipeline")
            return None
        try:
            for name in _twice(yaml.compose(text, Loader=yaml.SafeLoader)):
                self.problem(f"{name} stands there twice")
            content = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            self.problem(" ".join(str(error).split())[:300])
            return None
        if not isinstance(content, dict):
            self.problem("keys were expected, such as `sources:`")
            return None
        return {str(key): value for key, value in content.items()}

    def pipeline(self, content: Mapping[str, Any], server: str | None) -> Pipeline | None:
        plain = {key: one for key, one in content.items() if key not in _PARTS}
        known = [name for name in _names(Pipeline) if name not in _PARTS]
        values = self._values(Pipeline, plain, "", [*known, *_PARTS])
        sources = self._sources(content.get("sources"))
        written = content.get("transforms")
        transforms = self._many("transforms", [] if written is None else written, TRANSFORMS)
        sinks = self._many("sinks", content.get("sinks"), SINKS)
        if "name" not in content:
            self.problem("name is missing")
        elif "name" in values:
            self._check_name("name", values["name"], "pipeline")
        if content.get("sinks") == []:
            self.problem("sinks has none in it")
        _Links(self, sources, transforms, sinks, _declared(content)).check()
        if self.problems:
            return None
        if server is not None:
            values["server"] = server
        values["checkpoint"] = str(
            self._absolute(values.get("checkpoint") or f".penstock/{values['name']}")
        )
        for name in ("key_file", "ca_file"):
            if values.get(name):
                values[name] = str(self._absolute(values[name]))
        return Pipeline(
            **values,
            sources=sources,
            transforms=tuple(transforms.values()),
            sinks=tuple(sinks.values()),
        )

    def _absolute(self, written: str) -> Path:
        """Returns a path of the file, relative to the folder of the file."""
        return self.path.absolute().parent / written

    def _sources(self, found: Any) -> dict[str, Source]:
        if not isinstance(found, dict) or not found:
            self.problem(
                "sources must hold names with what they are, such as `orders: {topic: orders}`"
            )
            return {}
        made: dict[str, Source] = {}
        for name, one in found.items():
            where = f"sources.{name}"
            self.check_view(where, str(name))
            source = self._one_of(SOURCES, one, where)
            if source is not None:
                made[str(name)] = source
        return made

    def _many(self, part: str, found: Any, kinds: tuple[type[T], ...]) -> dict[int, T]:
        """Returns the valid items by their number in the list."""
        if not isinstance(found, list):
            self.problem(f"{part} must be a list" if found is not None else f"{part} is missing")
            return {}
        made = {
            number: self._one_of(kinds, one, f"{part}[{number}]")
            for number, one in enumerate(found)
        }
        return {number: one for number, one in made.items() if one is not None}

    def _one_of(self, kinds: tuple[type[T], ...], found: Any, where: str) -> T | None:
        """Returns an item; its class is the one whose first field is given. None: it has a problem."""
        marks = {_names(kind)[0]: kind for kind in kinds}
        if not isinstance(found, dict):
            self.problem(f"{where} must hold one of {', '.join(marks)}, got {found!r:.60}")
            return None
        given = {str(key): one for key, one in found.items()}
        chosen = [mark for mark in marks if mark in given]
        if len(chosen) > 1 and marks[chosen[0]] is LakeSink and "table" in chosen:
            chosen = ["lake"]  # A lake has a `table` too.
        if len(chosen) != 1:
            near = [
                f"{key} (did you mean {match[0]}?)"
                for key in given
                if key not in marks and (match := get_close_matches(key, marks, n=1, cutoff=0.6))
            ]
            advice = f", got {', '.join(near)}" if near and not chosen else ""
            self.problem(f"{where} must hold one of {', '.join(marks)}{advice}")
            return None
        kind = marks[chosen[0]]
        before = len(self.problems)
        values = self._values(kind, given, where)
        for one in fields(kind):  # type: ignore[arg-type]  # All kinds are dataclasses.
            written = _YAML_NAME.get(one.name, one.name)
            is_required = one.default is MISSING and one.default_factory is MISSING
            if is_required and one.name not in values and written not in given:
                self.problem(f"{where}.{written} is missing")
        return kind(**values) if len(self.problems) == before else None

    def _values(
        self, kind: type, given: Mapping[str, Any], where: str, known: Iterable[str] | None = None
    ) -> dict[str, Any]:
        hints = get_type_hints(kind)
        names = list(known or _names(kind))
        values: dict[str, Any] = {}
        for key, one in given.items():
            full = f"{where}.{key}" if where else key
            if key not in names:
                near = get_close_matches(key, names, n=1, cutoff=0.5)
                advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
                self.problem(f"there is no key {full[:100]}; {advice}")
                continue
            name = _FIELD_NAME.get(key, key)
            try:
                values[name] = self._value(name, one, hints[name])
            except (msgspec.ValidationError, Refused) as error:
                self.problem(f"{full}: {error}")
        return values

    def _value(self, name: str, found: Any, hint: Any) -> Any:
        if name == "interval_ms":
            return _interval_ms(found)
        if name == "inputs" and isinstance(found, str):
            found = [found]
        if name == "as_of" and isinstance(found, int | date) and not isinstance(found, bool):
            # YAML has numbers and times of its own.
            found = found.isoformat() if isinstance(found, date) else str(found)
        made = msgspec.convert(found, hint)
        if name.startswith("max_") and made < 1:
            raise Refused(f"must be at least 1, got {made}")
        if name == "limit" and not 1 <= made <= 1_000_000:
            raise Refused(f"must be in 1..1000000, got {made}")
        if name == "topic":
            return check_topic_or_pattern(made)
        if name == "group" and made:
            check_name(made, name)
        if name == "rejects_topic":
            return check_name(made, "topic")
        if name == "rejects_files":
            return str(self._absolute(made))
        if name == "lake" and made.startswith(S3_SCHEME):
            return lake_address(made)
        if name in {"lake", "files"} or (name in {"table", "plot"} and isinstance(made, str)):
            lake_address(made)
            return made if made == "-" else str(self._absolute(made))
        return made

    def _check_name(self, where: str, name: str, kind: str) -> None:
        try:
            check_name(name, kind)
        except InvalidName as error:
            self.problem(f"{where}: {error}")

    def check_view(self, where: str, name: str) -> None:
        """A problem, unless SQL can use the name without quotes."""
        if not (name.isascii() and name.isidentifier()):
            self.problem(f"{where}: a name is made of letters, digits and _, got {name!r:.60}")


_PARTS = ("sources", "transforms", "sinks")


def _names(kind: type) -> list[str]:
    """Returns the fields of a class as they are written in YAML."""
    return [_YAML_NAME.get(one.name, one.name) for one in fields(kind)]


def _interval_ms(found: Any) -> int:
    interval = duration_ms(found, "an interval", bare=Bare.MILLISECONDS)
    if not 100 <= interval <= _INTERVAL_MS_MAX:
        raise Refused(f"must be in 100ms..24h, got {found!r:.40}")
    return interval


def _twice(node: Any, path: str = "", depth: int = 4) -> list[str]:
    """Returns keys that a mapping holds more than once; YAML would silently take the last."""
    import yaml

    if depth == 0:
        return []
    if isinstance(node, yaml.SequenceNode):
        parts = [(f"{path}[{number}]", one) for number, one in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        parts = [(f"{path}.{key.value}".removeprefix("."), one) for key, one in node.value]
    else:
        return []
    names = [name for name, _ in parts]
    found = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    for name, one in parts:
        found += _twice(one, name, depth - 1)
    return found


def _declared(content: Mapping[str, Any]) -> set[str]:
    """Returns all names of sources and transforms, also of those with problems: references to them are fine."""
    sources, transforms = content.get("sources"), content.get("transforms")
    found = set(map(str, sources)) if isinstance(sources, dict) else set()
    for one in transforms if isinstance(transforms, list) else []:
        if isinstance(one, dict):
            found.add(str(one.get("name")))
    return found


class _Links:
    """Checks that everything that is named exists, and fits together."""

    def __init__(
        self,
        parser: _PipelineParser,
        sources: Mapping[str, Source],
        transforms: Mapping[int, Transform],
        sinks: Mapping[int, Sink],
        declared: set[str],
    ) -> None:
        self.parser, self.sources, self.declared = parser, sources, declared
        self.transforms, self.sinks = transforms, sinks

    def check(self) -> None:
        known = list(self.sources)
        for number, one in self.transforms.items():
            where = f"transforms[{number}]"
            self.parser.check_view(f"{where}.name", one.name)
            if one.name in known:
                self.parser.problem(f"{where}.name: {one.name} is there already")
            if isinstance(one, PythonTransform):
                self._inputs(where, one.inputs, known)
                self._python(where, one.python)
            known.append(one.name)
        for number, sink in self.sinks.items():
            self._inputs(f"sinks[{number}]", sink.inputs, known)
            self._sink(f"sinks[{number}]", sink)
        self._together()

    def _inputs(self, where: str, inputs: tuple[str, ...], known: list[str]) -> None:
        if not inputs:
            self.parser.problem(f"{where}.from names nothing")
        # A name that is declared but not valid has a problem of its own; one that is valid comes later.
        valid = {*self.sources, *(one.name for one in self.transforms.values())}
        for name in inputs:
            if name not in known and (name not in self.declared or name in valid):
                near = get_close_matches(name, known, n=1, cutoff=0.5)
                advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                self.parser.problem(f"{where}.from: there is no {name[:60]}; {advice}")

    def _python(self, where: str, written: str) -> None:
        module, colon, function = written.partition(":")
        parts = [*module.split("."), function]
        if not colon or not all(part.isidentifier() for part in parts):
            self.parser.problem(
                f"{where}.python must look like module:function, got {written!r:.60}"
            )

    def _sink(self, where: str, sink: Sink) -> None:
        if isinstance(sink, PlotSink) and not sink.plot.endswith(PLOT_ENDINGS):
            self.parser.problem(f"{where}.plot must end with {', '.join(PLOT_ENDINGS)}")
        if (
            isinstance(sink, TableSink)
            and sink.table != "-"
            and not sink.table.endswith(TABLE_ENDINGS)
        ):
            self.parser.problem(f"{where}.table must be - or end with {', '.join(TABLE_ENDINGS)}")
        for name in sink.inputs:
            source = self.sources.get(name)
            is_wide = isinstance(source, TopicSource) and is_pattern(source.topic)
            if is_wide and not isinstance(sink, LakeSink):
                self.parser.problem(f"{where}.from: {name} has a pattern, which only a lake takes")
        if isinstance(sink, TopicSink):
            named = [self.sources.get(one) for one in sink.inputs]
            if not all(isinstance(one, FilesSource) for one in named):
                self.parser.problem(f"{where}: a topic is loaded from sources that are files")
        elif isinstance(sink, LakeSink):
            self._lake(where, sink)

    def _lake(self, where: str, sink: LakeSink) -> None:
        named = [self.sources.get(one) for one in sink.inputs]
        topics = [one.topic for one in named if isinstance(one, TopicSource)]
        if sink.subject and (len(named) > 1 or not topics):
            self.parser.problem(f"{where}.subject: values are typed for a lake of one topic")
        elif len(named) > len(topics) and len(named) > 1:
            self.parser.problem(f"{where}.from: a lake takes topics, or one transform")
        for name in ("partition_by", "rejects_topic", "rejects_files"):
            if getattr(sink, name) and not sink.subject:
                self.parser.problem(f"{where}.{name} is for typed values: give subject, too")
        if sink.rejects_topic in topics:
            self.parser.problem(f"{where}.rejects_topic: the lake is filled from that topic")

    def _together(self) -> None:
        """A pipeline has one lake or topic, or several sinks that print or draw."""
        kinds = {type(one) for one in self.sinks.values()}
        if len(self.sinks) > 1 and not kinds <= {TableSink, PlotSink}:
            self.parser.problem("sinks: a lake or a topic is the only sink of its pipeline")
        has_topic = any(isinstance(one, TopicSource) for one in self.sources.values())
        if LakeSink in kinds and self.sources and not has_topic:
            self.parser.problem("sources: a lake is filled from topics")


def summary_of(pipeline: Pipeline) -> dict[str, Any]:
    """Returns a few fields of a pipeline, for lists."""
    return {
        "name": pipeline.name,
        "kind": pipeline.kind.value,
        "topics": list(pipeline.topics),
        "target": pipeline.target,
        "server": pipeline.server,
    }
