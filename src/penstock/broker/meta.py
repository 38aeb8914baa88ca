"""The meta journal: what belongs to the node and not to one partition. One journal for several machines.

Topics and how far their logs are durable, where queries first began, the key ring and the schema registry.
docs/formats/meta.md has the records.
"""

from collections.abc import Iterable

from ..config import LogConfig
from ..errors import DamagedFile, UnsupportedFormat
from ..log import Log, open_log
from ..log.journal import Journal
from ..log.records import RecordFormat
from ..model import Epoch, LogEnd, LogId
from ..ports import Disk
from ..schemas import Registry, SchemaRecord
from ..schemas.records import (
    CompatibilitySet,
    ModeSet,
    SchemaIdsUsed,
    SchemaStored,
    VersionRemoved,
    VersionStored,
)
from .directories import SET_ASIDE, paths_in_topics
from .keys import KeyRecord, KeyRevoked, Keys, KeyStored
from .queries import Queries, QueryForgotten, QueryRecord, QueryStarted
from .reigns import ReignBegun, Reigns
from .scram import ScramStored
from .topics import TopicRecord, Topics

META = "meta"
META_LOG_ID = LogId(1)
META_CONFIG = LogConfig(segment_size_bytes=8 << 20, retention_hours=-1)
# Of those in the error that says that meta is gone.
_ENTRIES_SHOWN = 5
_ANY_EPOCH = Epoch((1 << 63) - 1)
# Where keys were before they came to meta.
_FORMER_KEYS = "keys.json"

MetaRecord = TopicRecord | QueryRecord | KeyRecord | SchemaRecord | ReignBegun
# Version 1 had no keys, topics of version 2 were in no namespace, keys of version 3 had no verifiers of SCRAM,
# version 4 had no schemas, starts of queries of version 5 had no owners, and version 6 had no reigns.
FORMAT: RecordFormat[MetaRecord] = RecordFormat(MetaRecord, version=7, oldest=3)


class MetaMachine:
    """All machines of the meta journal."""

    def __init__(self) -> None:
        self.topics, self.queries, self.keys = Topics(), Queries(), Keys()
        self.schemas, self.reigns = Registry(), Reigns()

    @property
    def epoch(self) -> Epoch:
        """The latest that meta knows any log of the node to have been in."""
        latest = 0 if self.reigns.latest is None else self.reigns.latest.epoch
        for one in self.topics.ends.values():
            latest = max(
                [latest, *(end[0] for end in (one.messages, one.state, one.delayed) if end)]
            )
        return Epoch(latest)

    def apply(self, record: MetaRecord) -> None:
        match record:
            case QueryStarted() | QueryForgotten():
                self.queries.apply(record)
            case KeyStored() | KeyRevoked() | ScramStored():
                self.keys.apply(record)
            case (
                SchemaStored()
                | VersionStored()
                | VersionRemoved()
                | CompatibilitySet()
                | ModeSet()
                | SchemaIdsUsed()
            ):
                self.schemas.apply(record)
            case ReignBegun():
                self.reigns.apply(record)
            case _:
                self.topics.apply(record)

    def snapshot(self) -> Iterable[MetaRecord]:
        yield from self.topics.snapshot()
        yield from self.queries.snapshot()
        yield from self.keys.snapshot()
        yield from self.schemas.snapshot()
        yield from self.reigns.snapshot()


def require_format(disk: Disk) -> None:
    """UnsupportedFormat for a directory whose keys are in a file of their own: it is of an earlier version."""
    if disk.exists(_FORMER_KEYS):
        raise UnsupportedFormat(
            f"{_FORMER_KEYS} is from an earlier version, which kept keys there; they are in {META}/ now. Go on with "
            "the version that wrote this directory, or begin with an empty one and make the keys anew"
        )


def own_end(log: Log) -> LogEnd:
    """For `Journal.recover`: the journal rests on no message log, and in its own an epoch means nothing to a
    snapshot."""
    return LogEnd(_ANY_EPOCH, log.end_offset)


def read_meta(disk: Disk) -> tuple[MetaMachine, Log]:
    """What meta knows, and its log, whose files are closed; only its ends are of use.

    The disk has to be one that may be changed, such as a copy: a torn end is cut off.
    """
    log, _ = open_log(disk, META, log_id=META_LOG_ID, config=META_CONFIG)
    machine = MetaMachine()
    Journal(log, FORMAT).recover(machine, message_end=own_end(log))
    log.discard()
    return machine, log


def meta_beyond(messages: Log, meta: Log, *, reign: int = 0) -> str:
    """Why a meta cannot be the one that the checkpoint of a message log knew; empty if it can.

    The epoch of the `reign` that opens the log is in meta already, and no checkpoint can know it yet.
    """
    seen = messages.meta.end
    end = min(meta.end_offset, meta.end_of_epoch(seen.epoch))
    if seen.offset <= end and seen.epoch <= meta.epoch and not 0 < reign <= seen.epoch:
        return ""
    return (
        f"it knows {META}/ to offset {seen.offset}, and that ends at {end}: {META}/ is an older copy, or has "
        f"lost its end; put the right one back, or take the topic as it is with `penstock topic adopt`"
    )


def require_meta(disk: Disk) -> None:
    """Without meta nothing is known about the topics that are there: neither use nor forget them."""
    if disk.list(META) or not (entries := [*paths_in_topics(disk)]):
        return
    shown = ", ".join(entries[:_ENTRIES_SHOWN]) + (", ..." if entries[_ENTRIES_SHOWN:] else "")
    raise DamagedFile(
        META,
        f"it is missing or empty, but there are {shown}: put {META}/ back from a copy; or, if there is "
        f"none, move the directories of topics to {SET_ASIDE}/ and bring each back with "
        "`penstock topic adopt`",
    )
