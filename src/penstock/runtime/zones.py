"""Time zones as the system knows them, or the `tzdata` package where the system has none."""

from datetime import datetime
from zoneinfo import ZoneInfo

from ..errors import Refused

# In the database of a system and no zones of IANA's: what the machine is set to, and copies with other leap seconds.
_NO_NAMES = frozenset({"localtime", "posixrules", "Factory"})
_COPIES = ("posix/", "right/")


class SystemZones:
    """Rules are read once in the life of a process: those of a newer release count after a restart."""

    def offset_s(self, zone: str, at_s: int) -> int:
        try:
            if zone in _NO_NAMES or zone.startswith(_COPIES):
                raise ValueError(zone)
            found = ZoneInfo(zone)
        # ZoneInfoNotFoundError is a KeyError; a name may also be that of a directory, or no name of a file at all.
        except (KeyError, ValueError, OSError):
            raise Refused(
                f'timezone: there is no {zone[:60]!r}; write a name such as "Europe/Berlin" or "UTC"',
                field="timezone",
            ) from None
        offset = datetime.fromtimestamp(at_s, found).utcoffset()
        assert offset is not None, "a zone has one"
        return offset.days * 86_400 + offset.seconds
