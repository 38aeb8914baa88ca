"""The section of the audit log: when a file is complete, how many are kept, and how many lines a key may cause."""

from dataclasses import dataclass

from ..config import MIB, OFF
from .setting_keys import key, require, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSection:
    """The audit log: its files, and how much of it a key may fill."""

    rotate_bytes: int = key(64 * MIB, "A new file begins when this one has so many bytes.")
    rotate_hours: int = key(
        OFF, "A new file begins when this one's first line is so old; -1: by size only."
    )
    keep_files: int = key(
        OFF, "How many complete files are kept; older ones are removed. -1: all are kept."
    )
    key_lines_per_hour: int = key(
        3600,
        "Commands of one key that get a line, other than refusals: so many at once, and so many an hour; more get 429. "
        "-1: no limit. Without keys there is none.",
    )

    def __post_init__(self) -> None:
        require_positive(self, "rotate_bytes")
        for name, least in (("rotate_hours", 1), ("keep_files", 0), ("key_lines_per_hour", 1)):
            found = getattr(self, name)
            require(name, found, found == OFF or found >= least, f"{least} or more, or -1 for off")
