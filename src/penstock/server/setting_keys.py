"""A key of the configuration, and the checks of its value."""

from dataclasses import field
from typing import Any

from ..errors import InvalidConfig


def key(default: Any, text: str, *, is_live: bool = False, is_secret: bool = False) -> Any:
    """A setting: its default, what it means, and whether SIGHUP is enough to change it."""
    metadata = {"text": text, "is_live": is_live, "is_secret": is_secret}
    if isinstance(default, tuple | list):
        return field(default=tuple(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def require(setting: str, found: object, is_legal: bool, expected: str) -> None:
    """InvalidConfig if a setting is not legal."""
    if not is_legal:
        raise InvalidConfig(setting, found, expected)


def require_positive(section: object, *names: str) -> None:
    """InvalidConfig if one of some settings of a section is not above 0."""
    for name in names:
        found = getattr(section, name)
        require(name, found, found > 0, "above 0")
