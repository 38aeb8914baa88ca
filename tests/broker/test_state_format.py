"""The records of a partition's state as bytes: docs/formats/state.md. `python -m tests.broker.test_state_format` writes
a file that is missing, and never touches one that is there."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from pyroaring import BitMap64

from penstock.api.dead_letters import Edit
from penstock.api.groups import Mode
from penstock.broker.partition import FORMAT
from penstock.broker.partition.outbox import Burial, Redrive
from penstock.broker.partition.records import (
    Arrived,
    CommitNoted,
    Covered,
    DedupImage,
    DelayLogMade,
    Forwarded,
    GroupClosed,
    GroupOpened,
    LaneImage,
    LettersImage,
    ModeSet,
    OutboxImage,
    PartitionRecord,
    ProducerImage,
    Redriven,
    Returned,
    StartMoved,
)
from penstock.codec import HEAD_BYTES, Marks, batches_in
from penstock.delivery import delay_records as delays
from penstock.delivery import records as kinds
from penstock.delivery.offsets import runs_of
from penstock.delivery.records import Cause, DeadReason
from penstock.errors import UnsupportedFormat
from penstock.log.records import RecordFormat
from penstock.schedules import ScheduleRecord
from penstock.transactions import NamedCommitRecord, TransactionRecord
from penstock.transactions import commit_records as commits
from penstock.transactions.records import ProducerInitialised

from .world import WALL_NS

GOLDEN = Path(__file__).parent / "golden" / f"state-{FORMAT.version}.bin"
SCATTERED = runs_of(BitMap64([1, 5, 70_000, 1 << 40]))
COMMIT = commits.StagingsEnd.COMMIT
EDIT = Edit(key=b"k", is_key_set=True)
# Every kind; those that have gained fields with these, and as version 1 wrote them.
RECORDS: tuple[PartitionRecord, ...] = (
    GroupOpened(1, "billing", 0, WALL_NS),
    GroupOpened(2, "shipping", 5, WALL_NS, "pk-0123456789ab"),
    ModeSet(1, Mode.RELAXED),
    CommitNoted(1, "note"),
    StartMoved(0, 5),
    kinds.Leased(1, 7, "member", (0, 500), 500, 30_000, WALL_NS),
    kinds.Acked(1, 7, SCATTERED),
    kinds.Retried(1, 7, (3, 1), 1000, "no"),
    kinds.Retried(1, 7, (3, 1), 1000, "no", Cause.NACKED),
    kinds.Released(1, 7, (4, 2), -1),
    kinds.Released(1, 7, (4, 2), 4, Cause.MEMBER_GONE),
    kinds.Extended(1, 7, (6, 1), 5000),
    kinds.Buried(1, 7, 8, 1, DeadReason.REJECTED, "bad", WALL_NS),
    kinds.Buried(1, 7, 9, -1, DeadReason.TTL_EXPIRED, "old", WALL_NS, Cause.TTL_OVER),
    kinds.Expired(1, (10, 1), 11),
    kinds.Committed(1, 20),
    kinds.Committed(1, 30, 20, "member"),
    kinds.Committed(1, 40, 30, "", "lakes/orders"),
    kinds.Rewound(1, 5),
    kinds.Rewound(1, 5, 30, 40),
    kinds.Reopened(1, (8, 1)),
    kinds.Overtaken(1, 50),
    kinds.Overtaken(1, 50, 40),
    kinds.Absent(1, (), 60),
    kinds.Absent(1, (50, 2), 60, True),
    kinds.Moved(1, (61, 1)),
    kinds.AckedLate(1, (62, 1)),
    kinds.AckedLate(1, (62, 1), "member"),
    GroupClosed(1),
    GroupClosed(1, "billing"),
    Forwarded(0, 1),
    Forwarded(0, 2, 17),
    Redriven(2, Redrive(3, 4, "orders", 0, "", 8)),
    Redriven(2, Redrive(4, 5, "orders", 0, "billing", 9, EDIT)),
    Returned(2, 3),
    Arrived(0, 1 << 20, 4),
    OutboxImage(0, 5, ((1 << 20, 4),), ()),
    LettersImage(
        0,
        (
            Burial(1, 8, "billing", DeadReason.REJECTED, "bad", 1, 1, 2, "member", WALL_NS),
            Redrive(3, 4, "orders", 0, "", 8),
        ),
    ),
    DedupImage(0, ((b"key", 1, WALL_NS),)),
    ProducerImage(0, 9, 1, 10, ((5, 5, 100),)),
    Covered(0, 100, 3),
    LaneImage(0, 1, SCATTERED),
    DelayLogMade(0),
    kinds.GroupImage(1, 0, 10, 8, WALL_NS, 1, 2, 3),
    kinds.OffsetsImage(1, kinds.OffsetsKind.READY, (1, 2)),
    kinds.LeaseImage(1, 7, "member", (0, 5), 30_000, WALL_NS),
    kinds.FailuresImage(1, (kinds.FailureImage(3, 2, 1, 2, "member", "no", 500),)),
    kinds.AckedImage(1, 7, (0, 3)),
    kinds.ReleasedImage(1, "member", (4, 1)),
    delays.DelayCancelled(0, 1, 2),
    delays.DelayMoved(0, 1, 2, WALL_NS),
    delays.DelaysCovered(0, 5, 1, 1, 1),
    delays.DelayedIds(0, delays.DelayKind.DELIVERED, (0, 2)),
    delays.PendingDelays(0, (3, 1), b"\x01" * 8),
    delays.DelayKeys(0, ((b"key", 3),)),
    delays.DelaysLost(0, 1, (4, 1)),
    commits.CommitNameOpened(0, 9, "nightly", "key"),
    commits.NamedStagingOpened(0, 1 << 62, 9, 7, "job-12", "task 3", WALL_NS),
    commits.NamedStagingGrown(0, 1 << 62, ((3, 0),)),
    commits.NamedStagingsDecided(0, 9, COMMIT, 6, "job", False, (5,), (), 1, (2,), WALL_NS),
    commits.NamedStagingsDecided(0, 9, COMMIT, 7, "job", True, (6,), (), 2, (1,), WALL_NS, "1 row"),
    commits.NamedCommitConcluded(0, 9, ()),
    commits.CommitNameImage(0, 9, "nightly", "key", "job", 6, False, WALL_NS, (5,), (), (), ()),
    commits.CommitNameImage(
        *(0, 9, "nightly", "key", "job", 7, True, WALL_NS, (6,), ((3, 0),), (2,), ()), "1 row"
    ),
    commits.NamedStagingsEnded(0, 9, 7, (6,), (), ((0, 2),)),
    commits.NamedStagingsEnded(0, 9, 7, (6,), (), ((0, 2),), "nightly"),
)
# Without their last fields these are what version 1 wrote.
LAST_FIELDS = {
    GroupOpened: 1,
    kinds.Retried: 1,
    kinds.Released: 1,
    kinds.Buried: 1,
    kinds.Committed: 3,
    kinds.Rewound: 2,
    kinds.Overtaken: 1,
    kinds.AckedLate: 1,
    GroupClosed: 1,
    Forwarded: 1,
    commits.NamedStagingsDecided: 1,
    commits.CommitNameImage: 1,
    commits.NamedStagingsEnded: 1,
}


def is_of_commits(record: PartitionRecord) -> bool:
    """Whether a file has had this kind since version 4."""
    return isinstance(record, NamedCommitRecord)


def written() -> bytes:
    return FORMAT.to_batch(
        [*map(FORMAT.encode, RECORDS)], marks=Marks(control=True), now_ns=WALL_NS
    ).to_bytes()


def test_every_kind_of_record_is_in_the_file() -> None:
    """Those of transactions and schedules are formats of their own packages."""
    others = {
        *get_args(TransactionRecord),
        *get_args(kinds.ClaimRecord),
        *get_args(ScheduleRecord),
    }
    assert {type(one) for one in RECORDS} == set(get_args(PartitionRecord)) - others


def test_todays_records_are_written_as_in_the_file() -> None:
    # The batch around them has a format of its own, with files of its own.
    assert written()[HEAD_BYTES:] == GOLDEN.read_bytes()[HEAD_BYTES:]


def test_the_file_is_read() -> None:
    ((head, batch),) = batches_in(GOLDEN.read_bytes())
    assert tuple(FORMAT.from_batch(batch, head, "golden")) == RECORDS


OWNED = GroupOpened(2, "shipping", 5, WALL_NS, "pk-0123456789ab")


def test_the_file_of_version_2_is_read() -> None:
    ((head, batch),) = batches_in(GOLDEN.with_name("state-2.bin").read_bytes())
    since = {kinds.Committed(1, 40, 30, "", "lakes/orders"), Forwarded(0, 2, 17), OWNED}
    expected = tuple(one for one in RECORDS if one not in since and not is_of_commits(one))
    assert tuple(FORMAT.from_batch(batch, head, "golden")) == expected


def test_the_file_of_version_3_is_read() -> None:
    ((head, batch),) = batches_in(GOLDEN.with_name("state-3.bin").read_bytes())
    expected = tuple(one for one in RECORDS if one != OWNED and not is_of_commits(one))
    assert tuple(FORMAT.from_batch(batch, head, "golden")) == expected


def test_the_file_of_version_4_is_read() -> None:
    ((head, batch),) = batches_in(GOLDEN.with_name("state-4.bin").read_bytes())
    expected = tuple(one for one in RECORDS if one != OWNED)
    assert tuple(FORMAT.from_batch(batch, head, "golden")) == expected


def test_records_of_answers_in_transactions_are_written_as_ever() -> None:
    some: list[PartitionRecord] = [
        kinds.Claimed(1, 614, 3, kinds.ClaimKind.NACK, 7, (5, 2), "no", 100),
        kinds.CommitClaimed(1, 614, 3, 20, "member", None),
        kinds.ClaimsEnded(1, 614, 3, False, (5, 2)),
        kinds.Disowned(1, "member"),
        kinds.ClaimImage(
            1, 614, 3, kinds.ClaimKind.ACK, 7, "member", 9, 30_000, (5, 2), "", -1, False
        ),
    ]
    assert [msgspec.msgpack.decode(FORMAT.encode(one)) for one in some] == [
        [16, 1, 614, 3, 1, 7, [5, 2], "no", 100],
        [17, 1, 614, 3, 20, "member", None],
        [18, 1, 614, 3, False, [5, 2]],
        [19, 1, "member"],
        [26, 1, 614, 3, 0, 7, "member", 9, 30_000, [5, 2], "", -1, False],
    ]


def test_records_of_transactions_are_read_without_fields_that_came_later() -> None:
    former = {
        kinds.ClaimsEnded(1, 614, 3, False): [18, 1, 614, 3, False],
        ProducerInitialised(0, 614, "p", 1, 60_000, WALL_NS, True): [
            *(96, 0, 614, "p", 1, 60_000, WALL_NS, True)
        ],
        commits.NamedStagingsEnded(0, 5, 7, (8,), (), ((0, 2),)): [118, 0, 5, 7, [8], [], [[0, 2]]],
    }
    for record, fields in former.items():
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=PartitionRecord)
        assert read == record


@pytest.mark.parametrize("kind", LAST_FIELDS, ids=lambda kind: kind.__name__)
def test_a_record_of_version_1_is_read_without_what_it_did_not_say(kind) -> None:
    plain = next(one for one in RECORDS if type(one) is kind)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(plain))
    former = RecordFormat(object, version=1)
    short = fields[: len(fields) - LAST_FIELDS[kind]]
    batch = former.to_batch(
        [former.encode(short)], marks=Marks(control=True), now_ns=WALL_NS
    ).to_bytes()
    ((head, body),) = batches_in(batch)
    assert [*FORMAT.from_batch(body, head, "former")] == [plain]


def test_a_later_version_is_refused() -> None:
    later = RecordFormat(PartitionRecord, version=FORMAT.version + 1)
    batch = later.to_batch(
        [*map(later.encode, RECORDS)], marks=Marks(control=True), now_ns=WALL_NS
    ).to_bytes()
    ((head, body),) = batches_in(batch)
    with pytest.raises(UnsupportedFormat):
        [*FORMAT.from_batch(body, head, "later")]


if __name__ == "__main__":
    if not GOLDEN.exists():
        GOLDEN.write_bytes(written())
