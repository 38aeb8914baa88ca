"""What the client has to know of commands and their replies beside their fields. No I/O."""

import re
import time
from datetime import datetime

from ..api.arguments import text, utf8, whole_number
from ..api.publish import Acks
from ..api.start import EARLIEST, LATEST, Start
from ..api.units import Moment, duration_ns, moment_ns
from ..errors import Refused

_ERROR = 1
_SPAN = re.compile(r"[0-9.]+ ?[a-z]+", re.ASCII)
_ACKS = {"none": Acks.NONE, "leader": Acks.LEADER, "all": Acks.ALL}
_TIME_NS_MAX = (1 << 63) - 1


def is_error_reply(body: memoryview) -> bool:
    """Whether the server says that the reply is an error."""
    return len(body) > 0 and body[0] == _ERROR


def acks_of(given: str | int) -> Acks:
    """What a publish waits for. Refused if it is none of none, leader and all, nor 0, 1 or 2."""
    if isinstance(given, str) and given in _ACKS:
        return _ACKS[given]
    if not isinstance(given, bool) and str(given) in {"0", "1", "2"}:
        return Acks(int(given))
    raise Refused(f"acks must be none, leader or all, got {str(given)[:40]!r}", field="acks")


def acks_or_none(given: str | int | None) -> Acks | None:
    """What a publish waits for; None: as the server says."""
    return None if given is None else acks_of(given)


def past_moment(when: Moment) -> Moment:
    """A moment; a span such as "15m" is so long ago."""
    if isinstance(when, str) and _SPAN.fullmatch(when):
        return max(1, time.time_ns() - duration_ns(when))
    return when


def start_of(when: Moment, what: str = "start") -> Start:
    """A place in a log: earliest, latest, an offset, a moment, or a span such as "15m", which is so long ago.

    Refused if it is none; `what` is its name there.
    """
    if isinstance(when, str) and when in {"earliest", "latest"}:
        return EARLIEST if when == "earliest" else LATEST
    if isinstance(when, str | datetime):
        return Start.at_time(moment_ns(past_moment(when), what))
    return Start.at_offset(whole_number(f"{what}, as an offset,", when, 0, _TIME_NS_MAX))


def name_of(kind: str, given: object) -> str:
    """The name of a topic or a group, as bare text. Refused if it is none."""
    what = f"the name of a {kind}"
    return utf8(text(what, given), what)
