"""The records of meta as bytes: docs/formats/meta.md. `python -m tests.broker.test_meta_format` writes a file that is
missing, and never touches one that is there."""

from pathlib import Path

import pytest

from penstock.api.principals import Role
from penstock.api.schemas import Reference
from penstock.broker.keys import KeyRevoked, KeyStored, Secret
from penstock.broker.meta import FORMAT, META_LOG_ID, MetaMachine, MetaRecord
from penstock.broker.queries import QueryForgotten, QueryStarted
from penstock.broker.reigns import ReignBegun
from penstock.broker.scram import ScramStored, ScramVerifier, SecretVerifiers
from penstock.broker.topics import (
    FilesPlanned,
    FilesRemoved,
    GenerationsUsed,
    IdsUsed,
    PartitionEnds,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicRecord,
)
from penstock.codec import HEAD_BYTES, Marks, batches_in
from penstock.config import LogConfig
from penstock.errors import UnsupportedFormat
from penstock.log import open_log
from penstock.log.journal import Journal
from penstock.log.records import RecordFormat
from penstock.model import Epoch, LogEnd, Offset
from penstock.schemas.records import (
    CompatibilitySet,
    ModeSet,
    SchemaIdsUsed,
    SchemaRecord,
    SchemaStored,
    VersionRemoved,
    VersionStored,
)
from penstock.sim import SimDisk

from .world import WALL_NS, World

GOLDEN = Path(__file__).parent / "golden" / f"meta-{FORMAT.version}.bin"
OLD, NEW = Secret(b"\x01" * 32, 1, WALL_NS), Secret(b"\xff" * 32, 2)
VERIFIER = ScramVerifier(b"\x02" * 32, b"\x03" * 32)
LONG_VERIFIER = ScramVerifier(b"\x04" * 64, b"\x05" * 64)
# Every kind, twice where a field may be left out.
RECORDS: tuple[MetaRecord, ...] = (
    IdsUsed(3),
    FilesPlanned(3, "default", "orders", 0, 2),
    TopicCreated(3, "default", "orders", 2, {"max_retries": 5, "cleanup": "compact"}),
    TopicCreated(2, "other", "grown", 4, {}, ((1, 10), (2, WALL_NS))),
    TopicConfigured(3, {"retention_hours": 0.5, "dlq_enabled": False}),
    FilesPlanned(3, "default", "orders", 2, 3),
    PartitionsAdded(3, 3, WALL_NS),
    PartitionEnds(3, 0, (1, 20, 0, 5), (1, 9, 2, 9), (2, 7, 7, 7), 4),
    PartitionEnds(3, 1, (1, 20, 0, 5), (), ()),
    TopicDeleted(2),
    FilesRemoved(2),
    FilesRemoved(3, 2),
    GenerationsUsed(100),
    QueryStarted("q", "latest", {"orders/0": 5}, {"orders": 3}),
    QueryStarted("gone", "earliest", {"orders/1": 0}, {}),
    QueryStarted("owned", "latest", {"orders/1": 7}, {"orders": 3}, "pk-0123456789ab"),
    QueryForgotten("gone"),
    KeyStored("pk-0123456789ab", "shop", Role.PRODUCER, ("orders", "bills"), 1, (OLD, NEW)),
    KeyStored("pk-ba9876543210", "ops", Role.ADMIN, (), WALL_NS, (NEW,)),
    KeyRevoked("pk-ba9876543210"),
    ScramStored(
        "pk-0123456789ab",
        b"\x07" * 16,
        4096,
        (
            SecretVerifiers(b"\x01" * 32, VERIFIER, LONG_VERIFIER),
            SecretVerifiers(b"\xff" * 32, VERIFIER, LONG_VERIFIER),
        ),
    ),
    SchemaIdsUsed(7),
    SchemaStored(7, "AVRO", '"int"', (), b"\x07" * 16),
    SchemaStored(8, "JSON", "{}", (Reference("a", "orders-value", 1),), b"\x08" * 16),
    SchemaStored(9, "JSON", "true", (), b"\x09" * 16, "http://json-schema.org/draft-07/schema"),
    VersionStored("orders-value", 1, 7),
    VersionStored("orders-value", 2, 8),
    VersionStored("orders-value", 2, 8, True),
    VersionRemoved("orders-value", 2),
    CompatibilitySet("", "FULL"),
    CompatibilitySet("orders-value", "NONE"),
    ModeSet("orders-value", "READONLY"),
    ReignBegun(257, 1),
    ReignBegun(514, 2, True, (2, 3)),
)


def written() -> bytes:
    return FORMAT.to_batch(
        [*map(FORMAT.encode, RECORDS)], marks=Marks(control=True), now_ns=WALL_NS
    ).to_bytes()


def test_every_kind_of_record_is_in_the_file() -> None:
    kinds = {type(one) for one in RECORDS}
    assert kinds == set(MetaRecord.__args__)


def test_todays_records_are_written_as_in_the_file() -> None:
    # The batch around them has a format of its own, with files of its own.
    assert written()[HEAD_BYTES:] == GOLDEN.read_bytes()[HEAD_BYTES:]


def test_the_file_is_read() -> None:
    ((head, batch),) = batches_in(GOLDEN.read_bytes())
    assert tuple(FORMAT.from_batch(batch, head, "golden")) == RECORDS


@pytest.mark.parametrize(
    ("version", "later"),
    [
        (3, ScramStored | SchemaRecord | ReignBegun),
        (4, SchemaRecord | ReignBegun),
        (5, ReignBegun),
        (6, ReignBegun),
    ],
)
def test_a_former_version_is_read(version: int, later: type) -> None:
    """Version 3 had no verifiers of keys, version 4 no schemas, version 5 no owners of starts of queries, version 6
    no reigns and no drafts."""
    former = GOLDEN.with_name(f"meta-{version}.bin").read_bytes()
    ((head, batch),) = batches_in(former)
    found = tuple(FORMAT.from_batch(batch, head, "golden"))
    expected = [
        record
        for record in RECORDS
        if not isinstance(record, later) and getattr(record, "draft", "") == ""
    ]
    assert found == tuple(
        record for record in expected if version > 5 or getattr(record, "owner", "") == ""
    )


def test_a_snapshot_makes_the_same_state_from_nothing() -> None:
    machine, again = MetaMachine(), MetaMachine()
    for record in RECORDS:
        machine.apply(record)
    for record in machine.snapshot():
        again.apply(record)
    assert [*again.snapshot()] == [*machine.snapshot()]
    assert again.keys.by_id == machine.keys.by_id
    assert again.keys.scram == machine.keys.scram
    assert again.schemas.subjects == machine.schemas.subjects
    assert again.queries.by_name == machine.queries.by_name
    assert again.queries.counts.of("pk-0123456789ab") == 1
    assert again.reigns.begun_in_all_logs == machine.reigns.begun_in_all_logs == 256
    assert (again.topics.by_id, again.topics.ends) == (machine.topics.by_id, machine.topics.ends)


@pytest.mark.parametrize("version", [1, 2, 8])
def test_another_version_is_refused_by_name(version: int) -> None:
    disk = SimDisk()
    log, _ = open_log(disk, "meta", log_id=META_LOG_ID, config=LogConfig())
    form: RecordFormat[TopicRecord] = RecordFormat(TopicRecord, version=version)
    decided_at = LogEnd(Epoch(0), Offset(0))
    Journal(log, form).append([IdsUsed(1)], decided_at=decided_at, now_ns=1)
    log.close()
    # Where the topics of version 2 were.
    disk.make_directories("topics/orders.1/partition-0/messages")
    before = disk.tree()
    said = f"meta holds records of version {version}, and this Penstock reads version 3 to 7 only"
    with pytest.raises(UnsupportedFormat, match=said):
        World(disk)
    assert disk.tree() == before


if __name__ == "__main__":
    if not GOLDEN.exists():
        GOLDEN.write_bytes(written())
