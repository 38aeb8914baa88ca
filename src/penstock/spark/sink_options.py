"""The options of the sink, parsed on the driver: unknown or wrong ones are refused by name before anything runs."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..client.stagings import CommitKey
from ..errors import Refused
from ..model import check_name
from .fingerprint import Then
from .option_reader import (
    BrokerOptions,
    Option,
    OptionReader,
    UsedBy,
    known_options,
)

SINK_OPTIONS = (
    Option(
        "url",
        UsedBy.BOTH,
        "",
        "address of the broker; none: that of PENSTOCK_SERVER, the current context, or this machine",
    ),
    Option(
        "apiKeyFile", UsedBy.BOTH, "", "file with the API key, on the driver and on every executor"
    ),
    Option("caFile", UsedBy.BOTH, "", "certificates to trust with TLS, instead of the system's"),
    Option("topic", UsedBy.BOTH, "", "topic of all rows; wins over a column `topic`"),
    Option(
        "sinkId",
        UsedBy.BOTH,
        "the id of the query, for a stream",
        "name under which the broker remembers what was committed",
    ),
    Option(
        "sequence", UsedBy.BATCH, "", "number of this write under `sinkId`: larger than the last"
    ),
    Option(
        "onRepeat",
        UsedBy.BOTH,
        "refuse",
        "what to do if the last sequence comes again with other rows: refuse, or skip and log how many",
    ),
    Option(
        "ifOlder",
        UsedBy.BOTH,
        "refuse",
        "what to do if a sequence below the last one comes: refuse, or skip and log how many rows",
    ),
    Option(
        "retries",
        UsedBy.BOTH,
        "9",
        "tries after the first when the broker is away or asks to wait; 9 take about a minute",
    ),
)
# Spark adds them to those of a stream.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
_SEQUENCE_MAX = (1 << 53) - 1
# The writer of all batches: a batch that is run again has nothing to be known by but its sink and its sequence.
_BATCH_WRITER = "spark-batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(BrokerOptions):
    """All options of a query that writes."""

    # A broker that asks producers to wait asks for longer pauses than one that starts again.
    pause_ms_max: ClassVar[int] = 30_000
    topic: str | None = None
    sink_id: str | None = None
    sequence: int | None = None
    on_repeat: Then = Then.REFUSE
    if_older: Then = Then.REFUSE

    def batch_key(self) -> CommitKey:
        """Returns the commit of a batch. Without a sinkId it is a name that no other write has."""
        if self.sink_id is None or self.sequence is None:
            return CommitKey(f"spark-{uuid.uuid4()}", 0, _BATCH_WRITER)
        return CommitKey(self.sink_id, self.sequence, _BATCH_WRITER)

    def stream_key(self, query: str, batch: int) -> CommitKey:
        """Returns the commit of a micro-batch of a query."""
        return CommitKey(self.sink_id or query, batch, query)


def parse_sink_options(given: Mapping[str, str], used_by: UsedBy) -> SinkOptions:
    """Returns the options of `write` or `writeStream`. Refused names the option and says what it takes."""
    ours = {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
    for name, value in ours.items():
        if name.lower() == "path":
            raise Refused(f"there is nothing to save to {value!r}: name a topic in 'topic'")
    asked = OptionReader(known_options(ours, SINK_OPTIONS, used_by))
    topic, sink_id = asked.text("topic"), asked.named("sinkId")
    sequence = asked.number("sequence", least=0)
    if sequence is not None and sequence > _SEQUENCE_MAX:
        raise Refused(f"option sequence must be at most {_SEQUENCE_MAX}, got {sequence}")
    if used_by is UsedBy.BATCH and (sink_id is None) != (sequence is None):
        raise Refused(
            "give sinkId and sequence together, so that a repeat is known, or neither of them"
        )
    return SinkOptions(
        topic=None if topic is None else check_name(topic, "topic"),
        sink_id=sink_id,
        sequence=sequence,
        on_repeat=asked.one_of("onRepeat", Then, Then.REFUSE),
        if_older=asked.one_of("ifOlder", Then, Then.REFUSE),
        **asked.broker(),
    )
