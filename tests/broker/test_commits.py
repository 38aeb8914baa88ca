"""Named commits: exactly the chosen stagings, once, for ever; and what is refused."""

from collections.abc import Callable, Sequence

import pytest

from penstock.api.commits import (
    CommitStagings,
    DescribeCommitName,
    DropStagings,
    ListCommitNames,
    NamedCommit,
    OpenStaging,
    ResetCommitName,
    StageNamed,
    StageNamedBatch,
    StagingRef,
)
from penstock.api.principals import Principal, Role
from penstock.api.transactions import Staged
from penstock.broker.partition.cleanup import clear_staged
from penstock.codec import Marks, encode_messages
from penstock.config import LimitsConfig
from penstock.errors import (
    CommitInProgress,
    CommitNameTaken,
    DamagedFile,
    InvalidName,
    MalformedBatch,
    NotFound,
    OutOfSequence,
    OverCommitQuota,
    PenstockError,
    Refused,
    RepeatDiffers,
    SequenceCommitted,
    ShareFull,
    StagingMismatch,
    UnknownStaging,
)
from penstock.model import Message

from .test_transactions import Transactional, stored
from .world import TOPIC, World, values

HOUR_MS = 3600 * 1000
NAME, WRITER = "sink", "query-1"


class Attempt:
    """One attempt of a writer on a world: a staging, and how many messages it was told are in it."""

    def __init__(
        self, world: World, sequence: int, *, name: str = NAME, writer: str = WRITER
    ) -> None:
        self.world, self.count = world, 0
        self.id = world.execute(OpenStaging(name, sequence, writer, "task"))

    def stage(self, *some: bytes, partition: int | None = 0, **options) -> Sequence[Staged]:
        messages = [Message(one) for one in some]
        found = self.world.execute(StageNamed(self.id, TOPIC, messages, partition, **options))
        self.count += sum(not one.is_duplicate for one in found)
        return found

    @property
    def ref(self) -> StagingRef:
        return StagingRef(self.id, self.count)


def staged(world: World, sequence: int, *some: bytes, partition: int = 0, **options) -> Attempt:
    attempt = Attempt(world, sequence, **options)
    if some:
        attempt.stage(*some, partition=partition)
    return attempt


def commit(
    world: World, sequence: int, *attempts: Attempt, name: str = NAME, writer: str = WRITER, **more
) -> NamedCommit:
    """Until it is complete, with a sync between, as a driver does."""
    refs = [one.ref for one in attempts]
    command = CommitStagings(name, sequence, writer, refs, **more)
    for _ in range(6):
        found = world.execute(command)
        if found.is_complete:
            return found
        world.sync()
        world.node.pump(world.now())
    raise AssertionError("it never ends")


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(3)
    return world


def test_a_commit_publishes_what_it_lists_in_all_partitions_and_nothing_before(world) -> None:
    first, second = staged(world, 0, b"a", b"b"), staged(world, 0, b"c", partition=1)
    second.stage(b"d", partition=0)
    world.group()
    world.sync()
    assert stored(world) == [[], [], []]
    done = commit(world, 0, first, second)
    assert stored(world) == [[b"a", b"b", b"d"], [b"c"], []]
    assert (done.is_repeat, done.last_sequence) == (False, 0)
    assert [(*one,) for one in done.places] == [(TOPIC, 0, 0, 3), (TOPIC, 1, 0, 1)]
    assert sorted(values(world.drain())) == [b"a", b"b", b"c", b"d"]


def test_a_repeat_publishes_nothing_and_is_told_where_the_messages_are(world) -> None:
    one = staged(world, 4, b"a")
    first = commit(world, 4, one)
    again = commit(world, 4, one)
    assert (again.is_repeat, again.places) == (True, first.places)
    # Its writer knows nothing of the stagings any more, after a restart of its own.
    world.restart()
    assert commit(world, 4).places == first.places
    older = commit(world, 2)
    assert (older.is_repeat, older.last_sequence, older.places) == (True, 4, ())
    assert stored(world)[0] == [b"a"]


def test_a_repeat_that_holds_something_else_is_refused_through_restarts(world) -> None:
    commit(world, 4, staged(world, 4, b"a"), fingerprint="1 row, aa")
    for stop in (world.sync, world.restart, world.kill):
        for home in world.node.transactions.coordinators():
            home.take_snapshot()
        stop()
        assert commit(world, 4, fingerprint="1 row, aa").is_repeat
        # One that says nothing is a repeat, as it ever was.
        assert commit(world, 4).is_repeat
        with pytest.raises(RepeatDiffers, match="holds 1 row, aa; this repeat of it holds 2 rows"):
            commit(world, 4, fingerprint="2 rows, bb")
        with pytest.raises(SequenceCommitted) as late:
            staged(world, 4)
        assert late.value.fields["fingerprint"] == "1 row, aa"
    assert stored(world)[0] == [b"a"]
    assert not commit(world, 5, staged(world, 5, b"b"), fingerprint="2 rows, bb").is_repeat
    facts = world.execute(DescribeCommitName(NAME))
    assert (facts.sequence, facts.fingerprint) == (5, "2 rows, bb")
    # What was committed without one is compared with nothing.
    commit(world, 6, staged(world, 6, b"c"))
    assert commit(world, 6, fingerprint="3 rows, cc").is_repeat
    with pytest.raises(Refused, match="fingerprint is 0 to 100 characters"):
        commit(world, 7, fingerprint="x" * 101)


def test_a_name_is_remembered_through_restarts_and_snapshots(world) -> None:
    for sequence in range(3):
        commit(world, sequence * 10, staged(world, sequence * 10, b"%d" % sequence))
    waiting = staged(world, 40, b"later")
    for stop in (world.restart, world.kill, world.lose_unsynced):
        world.sync()
        for home in world.node.transactions.coordinators():
            home.take_snapshot()
        stop()
        assert commit(world, 20).is_repeat
        with pytest.raises(SequenceCommitted):
            staged(world, 15)
    assert not commit(world, 40, waiting).is_repeat
    assert stored(world)[0] == [b"0", b"1", b"2", b"later"]


def test_losers_of_the_sequence_and_of_lower_ones_are_dropped_and_others_stay(world) -> None:
    winner, loser, dead = (
        staged(world, 7, b"winner"),
        staged(world, 7, b"loser"),
        staged(world, 5, b"dead", partition=2),
    )
    ahead = staged(world, 8, b"ahead")
    other = staged(world, 7, b"other", name="other")
    commit(world, 7, winner)
    world.settle()
    assert world.execute(DescribeCommitName(NAME)).staging_count == 1
    for one in (loser, dead, winner):
        with pytest.raises(UnknownStaging):
            one.stage(b"late")
    with pytest.raises(SequenceCommitted) as refused:
        staged(world, 7, b"late")
    assert refused.value.fields["last_sequence"] == 7
    assert world.node.partition(TOPIC, 2).machine.stagings.bytes == 0
    commit(world, 8, ahead)
    commit(world, 7, other, name="other")
    assert stored(world) == [[b"winner", b"ahead", b"other"], [], []]


def test_another_writer_is_refused_and_is_told_the_way_out(world) -> None:
    commit(world, 0, staged(world, 0, b"a"))
    for refused in (
        lambda: staged(world, 1, writer="query-2"),
        lambda: commit(world, 1, writer="query-2"),
        lambda: commit(world, 0, writer="query-2"),
    ):
        with pytest.raises(CommitNameTaken) as error:
            refused()
        assert f"penstock commits reset {NAME}" in str(error.value)
    was = world.execute(ResetCommitName(NAME))
    assert (was.sequence, was.writer) == (0, WRITER)
    commit(world, 0, staged(world, 0, b"b", writer="query-2"), writer="query-2")
    assert stored(world)[0] == [b"a", b"b"]


def test_a_reset_drops_stagings_and_forgets_the_name(world) -> None:
    one = staged(world, 3, b"a")
    world.execute(ResetCommitName(NAME))
    world.settle()
    assert world.node.partition(TOPIC, 0).machine.stagings.bytes == 0
    for call in (
        lambda: one.stage(b"b"),
        lambda: commit(world, 3, one),
        lambda: world.execute(ResetCommitName(NAME)),
        lambda: world.execute(DescribeCommitName(NAME)),
    ):
        with pytest.raises(NotFound):
            call()
    assert world.execute(ListCommitNames()) == []
    world.restart()
    assert world.execute(ListCommitNames()) == []


def test_a_staging_is_collected_after_a_day_and_not_before(world) -> None:
    one = staged(world, 0, b"a")
    world.wait(12 * HOUR_MS)
    two = staged(world, 1, b"b")
    world.wait(11.9 * HOUR_MS)
    world.restart()
    world.wait(0)
    one.stage(b"still")
    world.wait(0.2 * HOUR_MS)
    with pytest.raises(UnknownStaging):
        one.stage(b"late")
    with pytest.raises(UnknownStaging):
        commit(world, 0, one)
    world.settle()
    commit(world, 1, two)
    assert stored(world)[0] == [b"b"]
    # A name that was never committed goes with its last staging.
    staged(world, 0, b"c", name="forgotten")
    world.wait(25 * HOUR_MS)
    assert [one.name for one in world.execute(ListCommitNames())] == [NAME]


def test_a_day_passes_while_the_broker_is_down(world) -> None:
    one = staged(world, 0, b"a")
    world.sync()
    world.now(24 * HOUR_MS)
    world.restart()
    world.wait(0)
    with pytest.raises(UnknownStaging):
        commit(world, 0, one)


def test_a_one_off_name_is_forgotten_after_a_day_and_publishes_nothing_again(world) -> None:
    one = staged(world, 0, b"a")
    commit(world, 0, one, is_one_off=True)
    world.wait(23 * HOUR_MS)
    assert commit(world, 0, one).is_repeat
    world.restart()
    world.wait(2 * HOUR_MS)
    assert world.execute(ListCommitNames()) == []
    with pytest.raises(NotFound):
        commit(world, 0, one)
    staged(world, 0, b"b")
    with pytest.raises(UnknownStaging):
        commit(world, 0, one)
    assert stored(world)[0] == [b"a"]


def test_a_repeat_of_a_staged_batch_is_recognised(world) -> None:
    one = Attempt(world, 0)
    batch = encode_messages([Message(b"a"), Message(b"b")]).to_bytes()
    assert world.execute(StageNamedBatch(one.id, TOPIC, 1, 0, batch)) == Staged(1, 0, False)
    assert world.execute(StageNamedBatch(one.id, TOPIC, 1, 0, batch)) == Staged(1, 0, True)
    world.restart()
    assert world.execute(StageNamedBatch(one.id, TOPIC, 1, 0, batch)) == Staged(1, 0, True)
    with pytest.raises(OutOfSequence):
        world.execute(StageNamedBatch(one.id, TOPIC, 1, 5, batch))
    assert world.execute(StageNamedBatch(one.id, TOPIC, 1, 2, batch)) == Staged(1, 2, False)
    one.count = 4
    commit(world, 0, one)
    assert stored(world)[1] == [b"a", b"b"] * 2


def test_a_staging_that_lost_something_is_not_committed(world) -> None:
    one = staged(world, 0, b"a")
    world.sync()
    one.stage(b"b")
    world.lose_unsynced()
    with pytest.raises(StagingMismatch):
        commit(world, 0, one)
    one.stage(b"b", sequence=1)
    one.count = 2
    commit(world, 0, one)
    assert stored(world)[0] == [b"a", b"b"]


def test_stagings_given_up_leave(world) -> None:
    one, two = staged(world, 0, b"a"), staged(world, 0, b"b")
    assert world.execute(DropStagings(["nothing", one.id])) == 1
    assert world.execute(DropStagings([one.id])) == 0
    with pytest.raises(UnknownStaging):
        commit(world, 0, one, two)
    commit(world, 0, two)
    assert stored(world)[0] == [b"b"]


def test_names_are_listed_and_described(world) -> None:
    commit(world, 3, staged(world, 3, b"a"))
    staged(world, 4, b"bb", partition=2)
    staged(world, 0, name="another")
    found = world.execute(ListCommitNames())
    assert [(one.name, one.sequence, one.staging_count) for one in found] == [
        ("another", None, 1),
        (NAME, 3, 1),
    ]
    assert world.execute(ListCommitNames(after="another", limit=1)) == [found[1]]
    name = world.execute(DescribeCommitName(NAME))
    (waiting,) = name.stagings
    assert (waiting.sequence, waiting.writer, waiting.attempt) == (4, WRITER, "task")
    assert [(one.partition, one.messages) for one in waiting.participants] == [(2, 1)]
    assert (name.owner, name.staged_messages, name.is_complete) == ("local", 1, True)


def test_stagings_of_names_are_carried_forward_and_leave_when_they_are_over() -> None:
    world = World()
    world.topic(3, segment_size_bytes=1500)
    kept = staged(world, 100, b"kept")
    for number in range(40):
        commit(world, number, staged(world, number, b"%d " % number + b"x" * 100))
    partition = world.node.partition(TOPIC, 0)
    before = partition.staging.size
    clear_staged(partition, world.now())
    assert partition.staging.size < before / 2
    world.restart()
    commit(world, 100, kept)
    assert stored(world)[0][-1] == b"kept"


def test_transactions_and_named_commits_live_beside_each_other(world) -> None:
    producer, one = Transactional(world), staged(world, 0, b"named")
    producer.stage(b"transaction", partition=0)
    world.restart()
    commit(world, 0, one)
    producer.end()
    assert stored(world)[0] == [b"named", b"transaction"]


def test_a_topic_that_is_deleted_takes_its_part_of_a_staging_with_it(world) -> None:
    world.topic(1, name="gone")
    one = staged(world, 0, b"a")
    world.execute(StageNamed(one.id, "gone", [Message(b"b")]))
    one.count = 2
    world.delete("gone")
    with pytest.raises(StagingMismatch):
        commit(world, 0, one)
    assert stored(world)[0] == []
    world.topic(1, name="gone")
    again = staged(world, 0, b"a")
    commit(world, 0, again)
    assert stored(world)[0] == [b"a"]


def _double(one: Attempt) -> CommitStagings:
    return CommitStagings(NAME, 1, WRITER, [one.ref, one.ref])


BAD: list[Callable[[Attempt], object]] = [
    lambda _: OpenStaging("x" * 256, 1, WRITER),
    lambda _: OpenStaging("a/b", 1, WRITER),
    lambda _: OpenStaging(NAME, -1, WRITER),
    lambda _: OpenStaging(NAME, 1 << 53, WRITER),
    lambda _: OpenStaging(NAME, 1, ""),
    lambda _: OpenStaging(NAME, 1, "w" * 251),
    lambda _: OpenStaging(NAME, 1, WRITER, "a\n"),
    lambda _: OpenStaging(NAME, 0, WRITER),
    lambda _: StageNamed("f" * 16, TOPIC, [Message(b"a")]),
    lambda _: StageNamed("4" * 16, TOPIC, [Message(b"a")]),
    lambda _: StageNamed("", TOPIC, [Message(b"a")]),
    lambda one: StageNamed(one.id, "nowhere", [Message(b"a")]),
    lambda one: StageNamed(one.id, TOPIC, [Message(b"a", idempotency_key="k")]),
    lambda one: StageNamed(one.id, TOPIC, [Message(b"a")], None, 0),
    lambda one: StageNamed(one.id, TOPIC, [Message(b"a")], 0, 9),
    lambda one: StageNamedBatch(one.id, TOPIC, 0, 1, b"nothing"),
    lambda one: StageNamedBatch(one.id, TOPIC, 0, -1, encode_messages([Message(b"a")]).to_bytes()),
    lambda one: StageNamedBatch(
        one.id,
        TOPIC,
        0,
        1,
        encode_messages(
            [Message(b"a")], marks=Marks(producer_id=1, producer_epoch=0, first_sequence=0)
        ).to_bytes(),
    ),
    _double,
    lambda one: CommitStagings(NAME, 1, WRITER, [StagingRef(one.id, 2)]),
    lambda one: CommitStagings(NAME, 2, WRITER, [one.ref]),
    lambda one: CommitStagings("other", 1, WRITER, [one.ref]),
    lambda one: CommitStagings("nobody", 1, WRITER, [one.ref]),
    lambda one: CommitStagings(NAME, 1, "another", [one.ref]),
    lambda _: CommitStagings(NAME, 1, WRITER, [StagingRef("4" * 16, 1)]),
    lambda _: CommitStagings(NAME, -1, WRITER, []),
    lambda one: CommitStagings(NAME, 1, WRITER, [one.ref] * 10_001),
    lambda _: ResetCommitName("nothing"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input_is_refused_and_changes_nothing(world, number: int) -> None:
    commit(world, 0, staged(world, 0, b"a"))
    one, other = staged(world, 1, b"b"), staged(world, 1, b"c", name="other")
    world.sync()
    before = world.disk.tree()
    with pytest.raises(Refused) as refused:
        world.execute(BAD[number](one))
    assert refused.value.code
    world.sync()
    assert world.disk.tree() == before
    commit(world, 1, one)
    commit(world, 1, other, name="other")
    assert stored(world)[0] == [b"a", b"b", b"c"]


def test_kinds_of_refusals(world) -> None:
    commit(world, 0, staged(world, 0, b"a"))
    one = staged(world, 1, b"b")
    staged(world, 1, b"c", name="other")
    kinds: list[tuple[type[PenstockError], object]] = [
        (InvalidName, OpenStaging("x" * 256, 1, WRITER)),
        (SequenceCommitted, OpenStaging(NAME, 0, WRITER)),
        (StagingMismatch, CommitStagings("other", 1, WRITER, [one.ref])),
        (StagingMismatch, CommitStagings(NAME, 2, WRITER, [one.ref])),
        (UnknownStaging, CommitStagings(NAME, 1, WRITER, [StagingRef("4" * 16, 1)])),
        (MalformedBatch, StageNamedBatch(one.id, TOPIC, 0, 1, b"nothing")),
    ]
    for kind, command in kinds:
        with pytest.raises(kind):
            world.execute(command)


def test_names_are_limited_by_node_and_by_key() -> None:
    world = World(limits=LimitsConfig(commit_names_max=5, commit_names_per_key_max=2))
    world.topic(1)
    ann, ben = (Principal(one, Role.PRODUCER, key_id=f"pk-{one}") for one in ("ann", "ben"))

    def opened(by: Principal, name: str) -> object:
        return world.node.execute(OpenStaging(name, 0, WRITER), by, world.now()).outcome()

    for name in ("a", "b"):
        opened(ann, name)
    with pytest.raises(ShareFull) as refused:
        opened(ann, "c")
    assert refused.value.fields["limit"] == 2
    opened(ann, "a")
    for name in ("c", "d"):
        opened(ben, name)
    staged(world, 0, name="e")
    with pytest.raises(ShareFull):
        staged(world, 0, name="f")
    world.execute(ResetCommitName("a"))
    world.restart()
    opened(ann, "f")
    with pytest.raises(ShareFull):
        opened(ben, "g")


def test_stagings_that_wait_under_one_name_are_limited(world, monkeypatch) -> None:
    monkeypatch.setattr("penstock.transactions.names.STAGINGS_MAX", 2)
    some = [staged(world, 0, b"%d" % one) for one in range(2)]
    with pytest.raises(OverCommitQuota):
        staged(world, 0)
    commit(world, 0, some[1])
    staged(world, 1)


def test_another_list_for_the_sequence_is_a_repeat_while_the_first_is_not_answered(world) -> None:
    one = staged(world, 0, b"a")
    world.sync()
    # Its client dies between the decision and the answer, and a new one stages again.
    assert not world.execute(CommitStagings(NAME, 0, WRITER, [one.ref])).is_complete
    assert commit(world, 0).is_repeat
    assert not commit(world, 0, one).is_repeat
    assert commit(world, 0, one).is_repeat
    assert stored(world)[0] == [b"a"]


def test_a_start_keeps_what_is_committed_and_cannot_be_published_yet(world, monkeypatch) -> None:
    one = staged(world, 0, b"a")
    world.sync()
    assert not world.execute(CommitStagings(NAME, 0, WRITER, [one.ref])).is_complete
    world.sync()

    def cannot(*_: object) -> None:
        raise DamagedFile("staging", "it cannot be read now")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.broker.partition.forwarding.apply_named_decision", cannot)
        world.kill()
        with pytest.raises(CommitInProgress):
            world.execute(CommitStagings(NAME, 1, WRITER, []))
        with pytest.raises(CommitInProgress):
            world.execute(ResetCommitName(NAME))
    assert stored(world)[0] == []
    commit(world, 0, one)
    assert stored(world)[0] == [b"a"]


def test_a_commit_is_decided_once_its_stagings_are_durable(world) -> None:
    one = staged(world, 0, b"a")
    command = CommitStagings(NAME, 0, WRITER, [one.ref])
    assert not world.execute(command).is_complete
    assert world.execute(DescribeCommitName(NAME)).sequence is None
    world.sync()
    assert not world.execute(command).is_complete
    assert world.execute(DescribeCommitName(NAME)).sequence == 0
