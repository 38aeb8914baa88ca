"""Settings of a topic under Kafka's names. One that is in no table is refused by its name."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ...config import OFF
from ...errors import InvalidConfig

_HOUR_MS = 3_600_000
# Our own settings, for which Kafka has no name, are set and shown behind this.
OWN_PREFIX = "penstock."


class Config(NamedTuple):
    """A setting of Kafka: ours, the value of ours from its text and back, and what a text is that has a value.

    ValueError: not a value.
    """

    setting: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    expected: str = "a whole number"


def _hours(text: str) -> float:
    ms = int(text)
    return OFF if ms == OFF else ms / _HOUR_MS


def _hours_text(hours: float) -> str:
    return str(OFF if hours == OFF else round(hours * _HOUR_MS))


def _compression(text: str) -> str:
    if text not in _COMPRESSIONS:
        raise ValueError
    return _COMPRESSIONS[text]


_COMPRESSIONS = {"producer": "none", "uncompressed": "none", "lz4": "lz4", "zstd": "zstd"}
CONFIGS: Mapping[str, Config] = {
    "cleanup.policy": Config("cleanup", str, str),
    "compression.type": Config(
        "compression",
        _compression,
        lambda kind: "producer" if kind == "none" else str(kind),
        f"one of {', '.join(_COMPRESSIONS)}",
    ),
    "retention.bytes": Config("retention_bytes", int, str),
    "retention.ms": Config("retention_hours", _hours, _hours_text),
    "segment.bytes": Config("segment_size_bytes", int, str),
    "segment.ms": Config("segment_age_ms", int, str),
}
# As it is and cannot be changed; to set one to what it is changes nothing.
FIXED: Mapping[str, str] = {
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


def read_config(name: str, text: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a setting of Kafka changes of ours. InvalidConfig: it is not known, or this is no value for it.

    `settings` are those that a topic has, of which the type of one of our own is known.
    """
    value = text or ""
    if name in FIXED:
        if value != FIXED[name]:
            raise InvalidConfig(name, value[:100], f"{FIXED[name]}, which cannot be changed")
        return {}
    known = CONFIGS.get(name)
    own = name.removeprefix(OWN_PREFIX)
    if known is None and (own == name or own not in settings):
        said = f"there is no setting {name[:100]}; known: {', '.join([*CONFIGS, OWN_PREFIX + '*'])}"
        raise InvalidConfig(name[:100], "an unknown setting", "a known one", said=said)
    try:
        return {known.setting: known.read(value)} if known else {own: _own(value, settings[own])}
    except (ValueError, OverflowError):
        expected = known.expected if known else "true or false"
        raise InvalidConfig(name, value[:100], expected) from None


def _own(text: str, now: Any) -> Any:
    if isinstance(now, bool):
        return {"true": True, "false": False}[text] if text in ("true", "false") else _raise()
    if isinstance(now, int | float):
        with suppress(ValueError):  # It has a unit, or is wrong.
            return type(now)(text)
    return text


def _raise() -> bool:
    raise ValueError


def written_configs(settings: Mapping[str, Any]) -> dict[str, str]:
    """All settings of a topic under the names that a Kafka client knows them by, and ours behind their prefix."""
    mapped = {name: one.write(settings[one.setting]) for name, one in CONFIGS.items()}
    taken = {one.setting for one in CONFIGS.values()}
    own = {
        OWN_PREFIX + name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
        if name not in taken
    }
    return {**mapped, **FIXED, **own}
