"""What the process says about itself: one line each on stderr, as JSON or as text, without secrets."""

import logging
import re
import sys
from datetime import UTC, datetime

import msgspec

from .port_settings import LogSection

# A key as we make them, wherever it turns up.
_SECRET = re.compile(r"(pk-[0-9a-f]{12})\.[A-Za-z0-9_-]{20,}|(?i:bearer\s+)\S+")
_ROOT = "penstock"


def masked(text: str) -> str:
    """The text without anything that looks like a key."""
    return _SECRET.sub(lambda found: f"{found[1]}.***" if found[1] else "Bearer ***", text)


class JsonLines(logging.Formatter):
    """One object a line: when, how bad, who says it, what."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        if record.exc_info:
            line["trace"] = masked(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


class TextLines(logging.Formatter):
    """One line of text for each record, for people."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname:7} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return masked(line)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def configure_logging(section: LogSection) -> logging.Logger:
    """Send our lines to stderr. Calling it again changes level and format."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonLines() if section.format == "json" else TextLines())
    logger = logging.getLogger(_ROOT)
    logger.handlers, logger.propagate = [output], False
    logger.setLevel(section.level.upper())
    return logger
