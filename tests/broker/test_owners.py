"""Producers and names of commits belong to the key that made them: another is refused, and an administrator is not."""

from typing import Any

import pytest

from penstock.api.command import Command
from penstock.api.commits import (
    CommitStagings,
    DescribeCommitName,
    DropStagings,
    OpenStaging,
    StageNamed,
    StageNamedBatch,
    StagingRef,
)
from penstock.api.principals import LOCAL, Principal, Role
from penstock.api.transactions import (
    BeginTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    ProducerHeartbeat,
    Stage,
    StageBatch,
    StageRecords,
)
from penstock.codec import Marks, encode_messages
from penstock.errors import Forbidden
from penstock.model import Message

from .test_transactions import stored, transactional_records
from .world import TOPIC, World

ANN, BEN = (Principal(name, Role.PRODUCER, key_id=f"pk-{name}") for name in ("ann", "ben"))
# Has the name of a key that was revoked.
SECOND_ANN = Principal("ann", Role.PRODUCER, key_id="pk-second")
ROOT = Principal("root", Role.ADMIN, key_id="pk-root")
# The administrator of some topics, and not of what other keys do in all of them.
SHOP = Principal("shop", Role.ADMIN, ("orders", "nightly"), "pk-shop")


def execute(world: World, by: Principal, command: Command[Any]) -> Any:
    """Until it is complete, as a driver does."""
    while True:
        reply = world.node.execute(command, by, world.now()).outcome()
        if getattr(reply, "is_complete", True):
            return reply
        world.sync()
        world.node.pump(world.now())


def commands_of(world: World, mine: Any, staging: str) -> list[Command[Any]]:
    """Each that speaks for a producer or for a name of commits."""
    one = [Message(b"x")]
    marks = Marks(producer_id=mine.producer_id, producer_epoch=mine.epoch, first_sequence=0)
    return [
        InitProducer("billing"),
        InitProducer("billing", former=mine),
        ProducerHeartbeat(*mine),
        BeginTransaction(*mine),
        Stage(*mine, TOPIC, one),
        StageBatch(TOPIC, 0, encode_messages(one, marks=marks).to_bytes()),
        StageRecords(TOPIC, 0, transactional_records(*mine, [b"x"])),
        EndTransaction(*mine, is_commit=True),
        EndTransaction(*mine, is_commit=False),
        OpenStaging("nightly", 7, "job"),
        StageNamed(staging, TOPIC, one),
        StageNamedBatch(staging, TOPIC, 0, 1, encode_messages(one).to_bytes()),
        CommitStagings("nightly", 7, "job", [StagingRef(staging, 1)]),
        CommitStagings("other", 7, "job", [StagingRef(staging, 1)]),
        DropStagings([staging]),
    ]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_another_key_is_refused_and_changes_nothing(is_restarted: bool) -> None:
    world = World()
    world.topic(1)
    mine = execute(world, ANN, InitProducer("billing"))
    execute(world, ANN, Stage(*mine, TOPIC, [Message(b"a")]))
    staging = execute(world, ANN, OpenStaging("nightly", 7, "job"))
    execute(world, ANN, StageNamed(staging, TOPIC, [Message(b"b")]))
    if is_restarted:
        world.restart()  # From a snapshot.
        world.kill()  # From records.
    seen = [ListTransactions(), DescribeCommitName("nightly")]
    before = [execute(world, ROOT, one) for one in seen]
    for command in commands_of(world, mine, staging):
        for other in (BEN, SECOND_ANN, SHOP):
            with pytest.raises(Forbidden) as refused:
                execute(world, other, command)
            assert refused.value.fields["name"] in ("billing", "nightly"), command
    assert [execute(world, ROOT, one) for one in seen] == before
    assert execute(world, ANN, EndTransaction(*mine, is_commit=True)).is_complete
    # An administrator may.
    execute(world, ROOT, CommitStagings("nightly", 7, "job", [StagingRef(staging, 1)]))
    assert stored(world, 1) == [[b"a", b"b"]]
    # And leaves it to its owner.
    execute(world, ROOT, InitProducer("billing"))
    with pytest.raises(Forbidden):
        execute(world, BEN, InitProducer("billing"))
    assert execute(world, ANN, InitProducer("billing")).producer_id == mine.producer_id


def test_what_was_made_without_keys_is_open_and_a_producer_is_of_the_first_key_that_takes_it() -> (
    None
):
    world = World()
    world.topic(1)
    execute(world, LOCAL, InitProducer("billing"))
    execute(world, LOCAL, OpenStaging("nightly", 1, "job"))
    execute(world, ANN, InitProducer("billing"))
    with pytest.raises(Forbidden):
        execute(world, BEN, InitProducer("billing"))
    for by in (ANN, BEN, LOCAL):
        execute(world, by, OpenStaging("nightly", 2, "job"))
    assert execute(world, ROOT, DescribeCommitName("nightly")).owner == "local"
    execute(world, LOCAL, InitProducer("billing"))
