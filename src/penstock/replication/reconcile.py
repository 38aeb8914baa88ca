"""Where two histories of a log part, and which of several replicas has the most.

Epochs decide, never a watermark: in one epoch only one node writes, so two logs that both have it are equal up to
where the first of them leaves it. What a follower has beyond that, no other node knows to be committed.
"""

from collections.abc import Mapping, Sequence

from ..log import Log
from .frames import EpochAt, LogFacts

META = "meta"
NOTHING = -1
# In this order what a log rests on comes before it.
_KINDS = {"delayed": 0, "staging": 1, "messages": 2, "state": 3}
_LAST = "\x7f"


def in_order(path: str) -> tuple[str, int, str]:
    """The key by which logs are sent and settled: of each partition what others rest on first, and meta last, which
    says how far all of them are."""
    if path == META:
        return _LAST, 0, path
    parent, _, kind = path.rpartition("/")
    return parent, _KINDS.get(kind, len(_KINDS)), path


def facts_of(log: Log) -> LogFacts:
    return LogFacts(
        log.directory,
        log.log_id,
        log.first_base,
        log.end_offset,
        tuple(EpochAt(*one) for one in log.epochs),
        log.config.segment_size_bytes,
        log.config.index_interval_bytes,
    )


def end_of_epoch(facts: LogFacts, epoch: int) -> int:
    """The offset at which the first later epoch starts, or the end of the log."""
    return next((one.offset for one in facts.epochs if one.epoch > epoch), facts.end)


def keep_to(leader: LogFacts, follower: LogFacts) -> int:
    """The offset up to which a follower's log is the leader's; NOTHING if it cannot be gone on with."""
    if leader.log_id != follower.log_id:
        return NOTHING
    if follower.start == follower.end == leader.start:
        # It has nothing of its own, in whichever epoch it was made.
        return follower.end
    common = {one.epoch for one in leader.epochs} & {one.epoch for one in follower.epochs}
    if not common:
        return NOTHING
    epoch = max(common)
    kept = min(end_of_epoch(leader, epoch), end_of_epoch(follower, epoch))
    return kept if kept >= max(leader.start, follower.start) else NOTHING


def asked_min(nodes: int, min_isr: int) -> int:
    """How many nodes that have lost nothing have to be asked, so that one of them has all that is committed."""
    return nodes - min_isr + 1


def longest(inventories: Sequence[Mapping[str, LogFacts]]) -> int | None:
    """The number of a replica that has all that any of the others has; None: there is none, and a person decides.

    Meta comes first: a replica appends to it when all before it is durable. With equal metas the one is longest that is
    at least as long as each other one in every log; after a power cut two may each have something of their own.
    """
    for number, one in enumerate(inventories):
        if all(_has_all(one, other) for other in inventories):
            return number
    return None


def _has_all(one: Mapping[str, LogFacts], other: Mapping[str, LogFacts]) -> bool:
    mine, theirs = _end(one.get(META)), _end(other.get(META))
    if mine != theirs:
        return mine > theirs
    return all(_end(one.get(path)) >= _end(facts) for path, facts in other.items())


def _end(facts: LogFacts | None) -> tuple[int, int]:
    """The epoch of the last batch, and the end. An epoch in which nothing was written counts for nothing."""
    if facts is None:
        return -1, 0
    written = [one.epoch for one in facts.epochs if one.offset < facts.end]
    return (written[-1] if written else -1), facts.end
