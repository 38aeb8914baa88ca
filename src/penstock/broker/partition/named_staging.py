"""The end of stagings of a named commit where they are: some are published, others dropped, once.

As with transactions, a published batch says which staging it was, and the record that ends them comes last, in one
batch with what their answers come to.
"""

from collections.abc import Callable, Iterable, Iterator

from ...errors import DamagedFile
from ...transactions.commit_records import NamedCommitConcluded, NamedStagingsEnded
from ...transactions.names import CommitName, CommitNames
from ...transactions.records import Place
from ...transactions.stagings import NAMED_NUMBER, Staged, TransactionKey, runs_of
from .outbox import NamedDecision
from .partition import Now, Partition
from .records import Arrived
from .staging import publish_stagings, record_ends, require_durable_delays

_NOTHING = Staged()


def apply_named_decision(
    source: Partition, destination: Partition, letter: NamedDecision, now: Now
) -> None:
    """Publish the stagings that a commit chose, in its order, and drop others.

    NoSpace, Damaged, DelaysUnsynced: it has to come again. DamagedFile also if not everything is here that
    was when it was decided.
    """
    chosen = [staged_here(destination, one) for one in letter.published]
    found = sum(one.message_count for one in chosen)
    if found != letter.message_count:
        reason = (
            f"commit {letter.commit} of name {letter.name_id} has {letter.message_count} messages "
            f"here, and {found} are there"
        )
        raise DamagedFile(destination.staging.directory, reason)
    publish_stagings(destination, [one for each in chosen for one in each.unpublished()], now)
    require_durable_delays(destination, chosen)
    arrived = Arrived(0, source.identity.as_source, letter.sequence)
    name = source.machine.commit_names.by_id.get(letter.name_id)
    ended = NamedStagingsEnded(
        0,
        letter.name_id,
        letter.commit,
        letter.published,
        letter.dropped,
        runs_of(chosen),
        name.name if name is not None and chosen else "",
    )
    # Those that commit come first: what a loser has answered, too, is theirs.
    ends = [(_key(one), True) for one in letter.published]
    ends += [(_key(one), False) for one in letter.dropped]
    record_ends(destination, (arrived, ended), ends, now)


def drop_named(partition: Partition, staging_id: int, now: Now) -> None:
    """Let go of what a staging has here that no coordinator knows: it was never committed, and never will be."""
    ended = NamedStagingsEnded(0, 0, -1, (), (staging_id,), ())
    record_ends(partition, (ended,), ((_key(staging_id), False),), now)


def _key(staging_id: int) -> TransactionKey:
    return TransactionKey(staging_id, NAMED_NUMBER)


def staged_here(partition: Partition, staging_id: int) -> Staged:
    """What a staging of a named commit has in a partition."""
    return partition.machine.stagings.open.get(_key(staging_id), _NOTHING)


def named_conclusions(
    names: CommitNames, arrived: set[int], find: Callable[[NamedDecision], Partition | None]
) -> Iterator[NamedCommitConcluded]:
    """Records for the commits that are applied everywhere once these letters have arrived."""
    found = {
        one.name_id: one for sequence in arrived if (one := names.waits_for(sequence)) is not None
    }
    for name in found.values():
        if name.letters <= arrived:
            yield NamedCommitConcluded(0, name.name_id, tuple(places_of(name, find)))


def places_of(
    name: CommitName, find: Callable[[NamedDecision], Partition | None]
) -> Iterable[Place]:
    """Where the messages of the last commit are, as the partitions that published them know it."""
    for topic_id, number in name.participants:
        partition = find(NamedDecision(0, name.name_id, 0, topic_id, number, (), (), 0))
        ended = None
        if partition is not None:
            ended = partition.machine.stagings.names_ended.get(name.name_id)
        if ended is not None and ended.sequence == name.sequence:
            yield from ((topic_id, number, first, count) for first, count in ended.runs)
