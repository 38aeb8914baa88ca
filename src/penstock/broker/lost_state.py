"""A partition whose state is lost, and whose messages are whole, goes on without it.

Its messages and delayed messages keep their offsets and times. What groups had finished, what had become of delayed
messages whose own messages are gone, schedules, producers, open transactions, and dead letters on their way are
forgotten.
"""

from msgspec.structs import replace

from ..log import open_log
from ..log.journal import Journal
from ..model import Epoch, LogEnd, LogId, Offset
from .adoption import ANYWHERE
from .catalogue import Catalogue
from .directories import LOGS, SET_ASIDE, TOPICS, partition_number, set_aside, topic_entry
from .meta import META, META_LOG_ID
from .partition import Now, PartitionId
from .partition.opening import STATE_CONFIG, log_id_of
from .partition.partition import FORMAT
from .partition.records import OutboxImage
from .partition.slots import Fault
from .topics import INTERNAL_PREFIX

_BEFORE_ALL = LogEnd(Epoch(0), Offset(0))


def log_id_at(path: str) -> LogId | None:
    """The id of the log in a directory of a data directory, by its path; None if no log is there by that name."""
    *above, kind = path.split("/")
    if path == META:
        return META_LOG_ID
    if len(above) < 3 or not {TOPICS, SET_ASIDE} & {*above[-4:-2]} or kind not in LOGS:
        return None
    topic, partition = topic_entry(above[-2]), partition_number(above[-1])
    if topic is None or partition is None:
        return None
    return log_id_of(PartitionId(topic.topic_id, partition), kind)


def lost_states(catalogue: Catalogue) -> list[Fault]:
    """The partitions that are faulty because of their state alone.

    Those of our own topics are not among them: their state is what was decided.
    """
    return [
        fault
        for fault in catalogue.faults()
        if f"/partition-{fault.number}/state" in fault.path
        and not fault.topic.startswith(INTERNAL_PREFIX)
    ]


def forget_state(catalogue: Catalogue, fault: Fault, now: Now) -> str:
    """Begin the state of a partition anew; it is open after the next start. Returns where the rest of the old one is,
    empty if there was none.
    """
    facts = catalogue.topics.find(fault.topic)
    identity = PartitionId(facts.topic_id, fault.number)
    path = f"{facts.partition_directory(fault.number)}/state"
    kept_as = set_aside(catalogue.disk, path) if catalogue.disk.list(path) else ""
    log, _ = open_log(
        catalogue.disk, path, log_id=log_id_of(identity, "state"), config=STATE_CONFIG
    )
    # Its letters are not those that other partitions have had of it.
    image = OutboxImage(0, _unused_sequence(catalogue, identity, now), (), ())
    Journal(log, FORMAT).append([image], decided_at=_BEFORE_ALL, now_ns=now.wall_ns)
    log.sync()
    log.close()
    known = catalogue.topics.ends.get(identity)
    if known is not None and known.state:
        # A later epoch, so that the new log may be shorter than the old one was.
        state = (known.state[0] + 1, 0, ANYWHERE, -1)
        catalogue.record_meta([replace(known, state=state, snapshot=-1)], now)
    return kept_as


def _unused_sequence(catalogue: Catalogue, identity: PartitionId, now: Now) -> int:
    """A sequence above those of all letters that a partition has sent. What has had some may be faulty itself: so
    many as seconds since 1970 no partition has sent."""
    source = identity.as_source
    arrived = (
        known.get(source, 0)
        for partition in catalogue.partitions()
        for known in partition.machine.arrived.values()
    )
    return max(now.wall_ns // 1_000_000_000, *arrived, 0) + 1


def open_groups(catalogue: Catalogue, fault: Fault, now: Now) -> list[str]:
    """Open the groups that other partitions of the topic know, at the start of the partition. Returns their names."""
    partitions = catalogue.topic(fault.topic).partitions
    names = sorted({name for partition in partitions for name, _ in partition.user_groups()})
    for name in names:
        partition = partitions[fault.number]
        partition.open_group(name, partition.messages.start_offset, now)
    return names
