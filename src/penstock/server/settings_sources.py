"""From a file, the environment and flags to settings, or to a list of everything that is wrong with them."""

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, replace
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple, get_type_hints

import msgspec

from ..api.units import setting_number
from ..config import TopicConfig
from ..errors import InvalidConfig, InvalidSettings, Refused
from .bounds_reference import bounds_reference
from .settings import Settings, conflicts

ENVIRONMENT_PREFIX = "PENSTOCK_"
SECTIONS: Mapping[str, type] = get_type_hints(Settings)
_FILE_BYTES_MAX = 1 << 20
# An alias that is used again and again makes a small file enormous.
_ALIASES_MAX = 100
_NUMBER_MAX = (1 << 63) - 1
# PENSTOCK_KEY_FILE and PENSTOCK_TLS__KEY_FILE have 0.8 in common.
_NEAR_VARIABLE = 0.9
# Sections with the words for settings of a topic.
_OF_TOPICS = ("storage", "consumer", "topic")


class Value(NamedTuple):
    """One value that the operator gave, and where."""

    section: str
    key: str
    found: Any
    source: str
    is_text: bool

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def read_settings(
    text: str | None = None,
    *,
    path: str = "penstock.yaml",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, str], Any] | None = None,
) -> Settings:
    """Settings, or InvalidSettings with every problem that there is."""
    problems: list[str] = []
    given: dict[tuple[str, str], Value] = {}
    wrong: set[str] = set()
    for value in (
        *_from_file(text, path, problems),
        *_from_environment(environment or {}),
        *(
            Value(section, name, found, "a flag", isinstance(found, str))
            for (section, name), found in (flags or {}).items()
        ),
    ):
        if not _take(value, given, problems):
            wrong.add(value.name)
    sections = {name: _section(name, given, wrong, problems) for name in SECTIONS}
    for names, error in conflicts(**sections):
        # What was refused already stands at its default, which says nothing of the others.
        if wrong.isdisjoint(names):
            problems.append(str(error))
    if problems:
        raise InvalidSettings(problems)
    return Settings(**sections)


def _from_file(text: str | None, path: str, problems: list[str]) -> Iterable[Value]:
    if text is None:
        return []
    content = _parse(text, path, problems)
    if content is None:
        return []
    if not isinstance(content, dict):
        problems.append(f"{path}: sections were expected, such as `broker:`")
        return []
    found: list[Value] = []
    for section, keys in content.items():
        if str(section) not in SECTIONS:
            problems.append(_unknown("section", str(section), SECTIONS, path))
            continue
        if keys is None:
            continue
        if not isinstance(keys, dict):
            problems.append(f"{path}: {section} must hold keys, got {keys!r}")
            continue
        found += [Value(str(section), str(key), value, path, False) for key, value in keys.items()]
    return found


def _parse(text: str, path: str, problems: list[str]) -> Any:
    import yaml

    if len(text) > _FILE_BYTES_MAX or text.count("*") > _ALIASES_MAX:
        problems.append(f"{path}: too large to be a configuration")
        return None
    try:
        found = _duplicates(yaml.compose(text, Loader=yaml.SafeLoader))
        problems += [f"{path}: {name} stands there twice" for name in found]
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problems.append(f"{path}: {' '.join(str(error).split())[:300]}")
        return None


def _duplicates(node: Any, prefix: str = "", depth: int = 3) -> list[str]:
    """Names of keys that a mapping holds more than once; YAML would silently take the last."""
    import yaml

    if depth == 0 or not isinstance(node, yaml.MappingNode):
        return []
    seen: set[str] = set()
    found: list[str] = []
    for key_node, value_node in node.value:
        name = f"{prefix}{key_node.value}"
        if name in seen:
            found.append(name)
        seen.add(name)
        found += _duplicates(value_node, f"{name}.", depth - 1)
    return found


def _from_environment(environment: Mapping[str, str]) -> Iterable[Value]:
    for name, text in sorted(environment.items()):
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        if rest != name and "__" in rest:
            section, _, key = rest.lower().partition("__")
            yield Value(section, key, text, name, True)


def warnings_of(environment: Mapping[str, str]) -> list[str]:
    """Variables that are no setting and look like one, such as PENSTOCK_BROKER_PORT, each with the one that is meant.

    Others are left alone: clients have some of their own, and Kubernetes makes more for a service named penstock.
    """
    variables = {
        f"{section}_{key}": f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        for section, key in _all_keys()
    }
    found = []
    for name in sorted(environment):
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        if rest == name or "__" in rest:
            continue
        near = get_close_matches(rest.lower(), list(variables), n=1, cutoff=_NEAR_VARIABLE)
        if near:
            found.append(f"{name} is no setting and is ignored; did you mean {variables[near[0]]}?")
    return found


def _take(value: Value, given: dict[tuple[str, str], Value], problems: list[str]) -> bool:
    """Take a value if it has a place and the right type; False, and a problem, if not."""
    section = SECTIONS.get(value.section)
    if section is None:
        problems.append(_unknown("section", value.section, SECTIONS, value.source))
        return False
    hints = get_type_hints(section)
    if value.key not in hints:
        known = [f"{one}.{key}" for one, key in _all_keys()]
        problems.append(_unknown("key", value.name, known, value.source))
        return False
    found = value.found
    if value.is_text and hints[value.key] == tuple[str, ...]:
        found = [one.strip() for one in found.split(",") if one.strip()]
    try:
        if hints[value.key] in (int, float):
            found = setting_number(value.key, found)
        found = msgspec.convert(found, hints[value.key], strict=not value.is_text)
    except Refused as error:
        problems.append(f"{value.source}: {value.section}.{error}")
        return False
    except msgspec.ValidationError as error:
        problems.append(f"{value.source}: {value.name}: {error}{_choices(hints[value.key])}")
        return False
    if isinstance(found, int) and abs(found) > _NUMBER_MAX:
        problems.append(f"{value.source}: {value.name} does not fit into 64 bits")
        return False
    if isinstance(found, float) and not isfinite(found):
        problems.append(f"{value.source}: {value.name} must be a finite number, got {found}")
        return False
    given[value.section, value.key] = value._replace(found=found)
    return True


def _choices(kind: Any) -> str:
    """What may be said where only a few things may."""
    is_few = isinstance(kind, type) and issubclass(kind, Enum)
    return f"; one of {', '.join(str(one.value) for one in kind)}" if is_few else ""


def _all_keys() -> list[tuple[str, str]]:
    return [(section, one.name) for section, kind in SECTIONS.items() for one in fields(kind)]


def _unknown(kind: str, name: str, known: Iterable[str], source: str) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return f"{source}: there is no {kind} {name[:100]}; {advice}"


def _section(
    name: str,
    given: Mapping[tuple[str, str], Value],
    wrong: set[str],
    problems: list[str],
) -> Any:
    """A section with what was given. A value that is refused is a problem, and the others are judged without it."""
    kind = SECTIONS[name]
    values = {key: value for (section, key), value in given.items() if section == name}
    while True:
        try:
            return kind(**{key: value.found for key, value in values.items()})
        except InvalidConfig as error:
            setting = str(error.fields["setting"])
            refused = values.pop(setting, None)
            wrong.add(f"{name}.{setting}")
            if refused is not None:
                problems.append(f"{refused.source}: {name}.{error}")
                continue
            # A default that does not go with what was given.
            problems.append(f"{name}.{error}")
            return kind()


def shown(settings: Settings) -> dict[str, dict[str, Any]]:
    """Plain values by section and key; what is secret is masked."""
    return {
        section.name: {
            one.name: _plain(one, getattr(getattr(settings, section.name), one.name))
            for one in fields(getattr(settings, section.name))
        }
        for section in fields(settings)
    }


def _plain(setting: "Field[Any]", found: Any) -> Any:
    if setting.metadata["is_secret"] and found:
        return "***"
    if isinstance(found, Enum):
        return found.value
    return list(found) if isinstance(found, tuple) else found


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """Keys that changed and that a running process cannot take over."""
    return [
        f"{section.name}.{one.name}"
        for section in fields(old)
        for one in fields(getattr(old, section.name))
        if not _is_live(section.name, one, old, new)
        and getattr(getattr(old, section.name), one.name)
        != getattr(getattr(new, section.name), one.name)
    ]


def with_live(old: Settings, new: Settings) -> Settings:
    """The old settings with what a running process can take over of the new ones."""
    sections = {}
    for section in fields(old):
        ours, theirs = getattr(old, section.name), getattr(new, section.name)
        live = {
            one.name: getattr(theirs, one.name)
            for one in fields(ours)
            if _is_live(section.name, one, old, new)
        }
        sections[section.name] = replace(ours, **live)
    return Settings(**sections)


def _is_live(section: str, setting: "Field[Any]", old: Settings, new: Settings) -> bool:
    """Whether a running process can take a setting over: a new certificate, too, but not TLS where there was none."""
    is_exchange = section == "tls" and old.tls.is_on == new.tls.is_on
    return setting.metadata["is_live"] or is_exchange


def reference() -> str:
    """docs/configuration.md, from the classes."""
    lines = [_REFERENCE_HEAD]
    for section, kind in SECTIONS.items():
        lines += [f"## {section}", "", kind.__doc__ or "", ""]
        lines += ["| key | default | meaning | SIGHUP |", "|---|---|---|---|"]
        for one in fields(kind):
            default = _written(_plain(one, one.default))
            is_live = "yes" if one.metadata["is_live"] or section == "tls" else ""
            lines.append(f"| `{one.name}` | `{default}` | {one.metadata['text']} | {is_live} |")
        lines.append("")
    return "\n".join(lines + _topic_reference() + bounds_reference())


def topic_words() -> dict[str, str]:
    """What each setting of a topic means; most have their words from the section that new topics start with."""
    starts = [one for name in _OF_TOPICS for one in fields(SECTIONS[name])]
    words = {one.name: one.metadata["text"] for one in starts} | _TOPIC_WORDS
    return {one.name: words[one.name] for one in fields(TopicConfig)}


def _topic_reference() -> list[str]:
    words = topic_words()
    lines = [_TOPIC_HEAD, "| setting | default | meaning |", "|---|---|---|"]
    for one in fields(TopicConfig):
        default = one.default.value if isinstance(one.default, Enum) else one.default
        lines.append(f"| `{one.name}` | `{_written(default)}` | {words[one.name]} |")
    return [*lines, ""]


def _written(value: Any) -> str:
    """Returns a value in the form that YAML has for it."""
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value or '""'


# What no section of the file has, because it suits one topic and not all, or what is said there of new topics.
_TOPIC_WORDS = {
    "retention_hours": "How long messages are kept; -1: for ever.",
    "retention_bytes": "How much a partition keeps; -1: everything.",
    "retention_segments": "How many segments a partition keeps, the open one included; -1: all.",
    "retention_segments_min": "So many segments stay, the open one included, however old or large.",
    "retention_check_ms": "How often what is old is removed, and idle groups are forgotten.",
    "compaction_check_ms": "How often a topic with `cleanup: compact` is compacted.",
    "segment_size_bytes": "A segment is closed at this size.",
    "segment_age_ms": "A segment is closed by the first message that comes so long after its own first; -1: never.",
    "segment_messages_max": "A segment is closed when it holds so many messages; -1: no limit.",
    "compression": "`none`, `lz4` or `zstd`.",
    "cleanup": "`delete`: messages go by age and size. `compact`: of each key the last message stays.",
    "ttl_action": "What becomes of a message whose time to live is over: `drop` or `dlq`.",
    "on_damage": "At a batch that the disk has damaged: `stop` with an error, or `skip` it, counted.",
    "kafka_storage": "What Kafka's producers send: `verbatim`, as it came, or `columnar`, for topics that Spark reads.",
    "validation": "What becomes of a message that does not fit its schema ([schemas.md](schemas.md)): `none`: nothing "
    "is compared. `warn`: stored, counted and logged. `reject`: refused.",
    "key_subject": "The subject whose schemas keys have to fit; empty: `TOPIC-key`, once that has a version.",
    "value_subject": "The subject whose schemas values have to fit; empty: `TOPIC-value`.",
    "index_interval_bytes": "The index of a segment has one entry for so many bytes.",
    "dlq_enabled": "Keep dead letters; otherwise they are dropped and counted.",
    "starvation_ms": "A lane of messages that was not served for so long gets one message next; 0: off.",
}

_TOPIC_HEAD = """## Settings of a topic

What one topic has of its own: `penstock topic create NAME --set KEY=VALUE`, `penstock topic set`, `config` in
`POST /topics` and `PATCH /topics/{topic}`, `create_topic` and `penstock.open` in Python. The
defaults are those of a broker whose file says nothing else.
"""

_REFERENCE_HEAD = """# Configuration

Made from the source by `penstock config reference`; a test keeps it so.

`penstock serve` reads `penstock.yaml` in the working directory, or the file named by `--config`. A variable
`PENSTOCK_SECTION__KEY` (such as `PENSTOCK_BROKER__PORT=9000`) overrides the file, and a flag overrides both: `--port
9000`, or `--set SECTION.KEY=VALUE` for any of them. Lists are written with commas in a variable and in a flag. A key
that does not exist, a value of the wrong kind and a value out of range are all reported together, and nothing starts.
A variable that is no setting but looks like one, such as `PENSTOCK_BROKER_PORT`, is ignored with a warning.
`penstock config check` does only that; `penstock config show` prints what holds.

Sizes and durations may have units, in settings of topics too: `segment_size_bytes: 64MiB`, `retention_hours: 7d`,
`visibility_timeout_ms: 30s`. KB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024. Without a unit a
number is what the name says.

Settings marked SIGHUP take effect in a running process when it gets that signal; for others it says that they need
a restart. The sections `storage`, `consumer`, `dlq` and `topic` are what a *new* topic starts with, as far as a topic
has such a setting of its own.
"""
