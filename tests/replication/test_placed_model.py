"""Placed appends and reconciliation against lists of (epoch, offset, value)."""

import random

import pytest

from penstock.codec import Columns, decode_messages, encode
from penstock.config import LogConfig
from penstock.errors import ChecksumMismatch, Fenced, MalformedBatch
from penstock.log import open_log
from penstock.log.compaction import compact
from penstock.log.placed import append_placed
from penstock.log.reign import FOLLOWING
from penstock.model import Epoch, LogId, Message
from penstock.replication.ballots import next_ballot
from penstock.replication.frames import EpochAt, LogFacts
from penstock.replication.reconcile import NOTHING, facts_of, keep_to
from penstock.replication.storage import Storage
from penstock.replication.stream import _whole_from
from penstock.sim import SimDisk, Tree

PATH, LOG_ID = "topics/default/t.1/partition-0/messages", LogId(77)
Entry = tuple[int, int, bytes]


class Copy:
    """A node's log, and the list that it should be equal to."""

    def __init__(self, first: LogFacts) -> None:
        self.storage = Storage(SimDisk())
        self.log = self.storage.make(first)
        self.model: list[Entry] = []

    def content(self) -> list[Entry]:
        found: list[Entry] = []
        for head, batch in self.log.batches_from(self.log.start_offset):
            found += [(head.epoch, one.offset, one.data) for one in decode_messages(batch, head)]
        return found

    def reopen(self) -> None:
        self.log.sync()
        self.storage.discard()
        assert self.storage.open()
        self.log = self.storage.logs[PATH]


def values(*some: bytes):
    return encode(Columns(values=[*some], timestamps=0))


def facts(epoch: int) -> LogFacts:
    return LogFacts(PATH, LOG_ID, 0, 0, (EpochAt(epoch, 0),), 700, 128)


def first_difference(one: list[Entry], other: list[Entry]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("seed", range(10))
def test_walk(seed: int) -> None:
    chance = random.Random(seed)
    copies = [Copy(facts(next_ballot(0, 1))) for _ in range(3)]
    leading, epoch, time, made = 0, next_ballot(0, 1), 0, 0
    for _ in range(80):
        leader, follower = copies[leading], copies[chance.randrange(3)]
        match chance.randrange(8):
            case 0 | 1 | 2:
                time, made, count = time + 1, made + 1, chance.randint(1, 3)
                batch = values(*(b"%d-%d" % (made, each) for each in range(count)))
                first = leader.log.append(batch, now_ns=time).base_offset
                leader.model += [
                    (epoch, first + each, b"%d-%d" % (made, each)) for each in range(count)
                ]
            case 3:
                leading = chance.randrange(3)
                epoch = next_ballot(epoch, leading + 1)
                copies[leading].log.begin_epoch(epoch)
            case 4:
                follower.reopen()
            case _ if follower is not leader:
                follow(follower, leader, epoch, chance)
        for copy in copies:
            assert copy.content() == copy.model


def follow(follower: Copy, leader: Copy, epoch: Epoch, chance: random.Random) -> None:
    """Reconcile, and fetch a part of the rest."""
    kept = keep_to(facts_of(leader.log), facts_of(follower.log))
    common = first_difference(leader.model, follower.model)
    if kept == NOTHING:
        assert common == 0
        follower.storage.set_log_aside(PATH, "nothing in common")
        follower.log = follower.storage.make(facts_of(leader.log))
        follower.model = []
    else:
        assert kept == common
        aside = len(follower.storage.aside)
        lost = follower.model[kept:]
        follower.storage.cut(follower.log, kept, "parted")
        assert bool(lost) == (len(follower.storage.aside) > aside)
        del follower.model[kept:]
    follower.storage.forget_unused_epochs(follower.log, facts_of(leader.log))
    if follower.log.end_offset < leader.log.end_offset:
        run = leader.log.read(follower.log.end_offset, bytes_max=chance.choice([1, 500, 5000]))
        heads = append_placed(follower.log, run.data, epoch_max=epoch)
        follower.model += leader.model[len(follower.model) : heads[-1].next_offset]


def test_cut_bytes_are_kept_in_a_file() -> None:
    copy = Copy(facts(257))
    for each in range(9):
        copy.log.append(values(b"%d" % each * 90), now_ns=each)
    stored = b"".join(bytes(batch) for _, batch in copy.log.batches_from(4))
    copy.storage.cut(copy.log, 4, "parted")
    kept = [copy.storage.disk.open(one.kept_in) for one in copy.storage.aside]
    assert b"".join(file.read(0, file.size()) for file in kept) == stored


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    one, other = Copy(facts(257)), Copy(facts(257))
    one.log.append(values(b"a"), now_ns=1)
    one.log.append(values(b"b"), now_ns=2)
    first, second = (bytes(batch) for _, batch in one.log.batches_from(0))
    torn = bytearray(first)
    torn[-9] ^= 1
    refused = [
        (second, MalformedBatch),
        (bytes(torn), ChecksumMismatch),
        (first[:-8], MalformedBatch),
    ]
    for data, error in refused:
        with pytest.raises(error):
            append_placed(other.log, data, epoch_max=257)
    with pytest.raises(Fenced):
        append_placed(other.log, first, epoch_max=256)
    another, _ = open_log(SimDisk(), "x", log_id=LogId(78), config=LogConfig(), reign=FOLLOWING)
    with pytest.raises(ChecksumMismatch):
        append_placed(another, first, epoch_max=257)
    assert other.log.end_offset == another.end_offset == 0
    append_placed(other.log, first + second, epoch_max=257)
    assert other.content() == one.content()


def test_compacted_log_is_gone_on_with_inside_a_range() -> None:
    one, other = Copy(facts(257)), Copy(facts(257))
    for each in range(30):
        message = Message(b"%d" % each, key=b"k" if each < 25 else b"z")
        batch = encode(Columns(values=[message.value], keys=[message.key], timestamps=0))
        one.log.append(batch, now_ns=each)
        if each == 8:
            other.storage.appended(other.log)
            append_placed(other.log, one.log.read(0, bytes_max=1 << 20).data, epoch_max=257)
            while other.log.end_offset < 9:
                data = one.log.read(other.log.end_offset, bytes_max=1 << 20).data
                append_placed(other.log, data, epoch_max=257)
    compact(one.log, now_ns=99)
    offset = other.log.end_offset
    while offset < one.log.end_offset:
        run = one.log.read(offset, bytes_max=1 << 20)
        data = b"".join(_whole_from(run.data, run.heads[0], offset, one.log.seed))
        append_placed(other.log, data, epoch_max=257)
        offset = other.log.end_offset
    there = {entry[1:] for entry in other.content()}
    assert {entry[1:] for entry in one.content()} <= there
    assert other.log.end_offset == one.log.end_offset == 30


@pytest.mark.parametrize("node", [0, 256])
def test_ballot_needs_a_node_number(node: int) -> None:
    with pytest.raises(Exception, match="node"):
        next_ballot(0, node)


def test_ballots_of_two_nodes_differ() -> None:
    assert next_ballot(0, 1) == 257
    assert next_ballot(257, 2) == 514
    assert {next_ballot(700, node) for node in range(1, 256)} == {
        (3 << 8) + node for node in range(1, 256)
    }


def test_batch_torn_by_a_power_cut_of_the_follower_is_no_damage() -> None:
    """The leader had synced the first batch when it wrote the second; the follower had not."""
    one, other = Copy(facts(257)), Copy(facts(257))
    one.log.append(values(b"a"), now_ns=1)
    one.log.sync()
    one.log.append(values(b"b"), now_ns=2)
    append_placed(other.log, one.log.read(0, bytes_max=1 << 20).data, epoch_max=257)
    tree = other.storage.disk.tree()
    path = f"{PATH}/{0:020d}.log"
    torn = b"\0" * 64 + tree.files[path][64:]
    left = Storage(SimDisk(Tree({**tree.files, path: torn}, tree.directories)))
    assert left.open()
    assert left.logs[PATH].end_offset == 0


def test_histories_part_where_the_last_common_epoch_ends() -> None:
    """Failed over twice: where the leader's later epoch begins says nothing of an epoch that it never had."""
    leader = LogFacts(PATH, LOG_ID, 0, 60, (EpochAt(257, 0), EpochAt(770, 50)))
    follower = LogFacts(PATH, LOG_ID, 0, 55, (EpochAt(257, 0), EpochAt(514, 40)))
    assert keep_to(leader, follower) == 40
    assert keep_to(follower, leader) == 40


def test_log_in_which_nothing_was_written_is_gone_on_with_in_any_epoch() -> None:
    """Both nodes began an epoch of their own in a log that was empty: neither has anything that is not the other's."""
    mine, theirs = facts(514), facts(257)
    assert keep_to(mine, theirs) == 0
    longer = LogFacts(PATH, LOG_ID, 0, 9, (EpochAt(514, 0),), 700, 128)
    assert keep_to(longer, theirs) == 0
    assert keep_to(mine, LogFacts(PATH, LOG_ID, 0, 9, (EpochAt(257, 0),), 700, 128)) == NOTHING
