"""When a schedule is due: a pure function of its timing, the time before, and the rules of its time zone."""

from typing import NamedTuple

from ..api.schedules import UTC_NAME, Timing
from ..errors import Refused
from ..ports import Zones
from .cron import Cron, parse_cron

_S_NS = 1_000_000_000
_MS_NS = 1_000_000
_TIME_NS_MAX = (1 << 63) - 1
# No zone has changed its offset twice within a day.
_PROBE_S = 24 * 3600
# A clock that is set back repeats a day at the most.
_REPEATED_S_MAX = 25 * 3600


class UtcOnly:
    """Knows UTC and no other time zone."""

    def offset_s(self, zone: str, _at_s: int) -> int:
        if zone != UTC_NAME:
            raise Refused(f"timezone: there is no {zone[:60]!r} here", field="timezone")
        return 0


class _Change(NamedTuple):
    """An instant at which the clocks of a zone are set, and their offsets before and from then on."""

    at_s: int
    before_s: int
    after_s: int


def next_due(timing: Timing, anchor_ns: int, after_ns: int, zones: Zones) -> int | None:
    """The first due time after a time; None: there is none before 2262. Intervals are counted from the anchor.

    A local time that is left out when clocks are set forward is due at the instant at which they are set. One that
    comes twice when they are set back is due the first time. With any hour (`*`) real time counts: what is left out
    does not come, and what comes twice is due both times. Refused: the zone is not known.
    """
    if timing.every_ms:
        every_ns = timing.every_ms * _MS_NS
        due_ns = anchor_ns + max(1, (after_ns - anchor_ns) // every_ns + 1) * every_ns
    else:
        due_s = _next_of_cron(parse_cron(timing.cron), timing.timezone, after_ns // _S_NS, zones)
        due_ns = _TIME_NS_MAX + 1 if due_s is None else due_s * _S_NS
    return due_ns if due_ns <= _TIME_NS_MAX else None


def last_due(timing: Timing, anchor_ns: int, first_ns: int, now_ns: int, zones: Zones) -> int:
    """The latest due time up to now, if `first_ns` is one of them. Found by halves, however many lie between."""
    found, end = first_ns, now_ns
    while True:
        following = next_due(timing, anchor_ns, found, zones)
        if following is None or following > now_ns:
            return found
        middle = (following + end) // 2
        later = next_due(timing, anchor_ns, middle, zones)
        if later is None or later > now_ns:
            found, end = following, middle
        else:
            found = later


def _next_of_cron(cron: Cron, zone: str, after_s: int, zones: Zones) -> int | None:
    # Local times below it have been, before clocks were set back.
    seen_s = -(1 << 62)
    position = after_s - _REPEATED_S_MAX
    while (change := _first_change(zone, position, after_s, zones)) is not None:
        seen_s, position = _seen_after(change, seen_s), change.at_s
    position, begin = after_s, after_s + 1
    offset_s = zones.offset_s(zone, after_s)
    while True:
        lowest_s = begin + offset_s
        minute = cron.next_from(-(-_from(cron, lowest_s, seen_s) // 60))
        if minute is None:
            return None
        due_s = minute * 60 - offset_s
        change = _first_change(zone, position, due_s, zones)
        if change is None:
            return due_s
        if not cron.is_any_hour:
            left_out = cron.next_from(-(-_from(cron, change.at_s + change.before_s, seen_s) // 60))
            if left_out is not None and left_out * 60 < change.at_s + change.after_s:
                return change.at_s
        seen_s = _seen_after(change, seen_s)
        position = begin = change.at_s
        offset_s = change.after_s


def _from(cron: Cron, local_s: int, seen_s: int) -> int:
    return local_s if cron.is_any_hour else max(local_s, seen_s)


def _seen_after(change: _Change, seen_s: int) -> int:
    return (
        max(seen_s, change.at_s + change.before_s) if change.after_s < change.before_s else seen_s
    )


def _first_change(zone: str, after_s: int, until_s: int, zones: Zones) -> _Change | None:
    """The first change after an instant, and at another one at the latest."""
    if zone == UTC_NAME:
        return None
    low, before_s = after_s, zones.offset_s(zone, after_s)
    while low < until_s:
        high = min(low + _PROBE_S, until_s)
        if zones.offset_s(zone, high) != before_s:
            while high - low > 1:
                middle = (low + high) // 2
                if zones.offset_s(zone, middle) == before_s:
                    low = middle
                else:
                    high = middle
            return _Change(high, before_s, zones.offset_s(zone, high))
        low = high
    return None
