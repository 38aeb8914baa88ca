"""Named commits: stagings, the commit that publishes some of them once, and a look at names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from ...api.command import Command
from ...api.commits import (
    CommitNameFacts,
    CommitStagings,
    DescribeCommitName,
    DropStagings,
    ListCommitNames,
    NamedCommit,
    OpenStaging,
    ResetCommitName,
    StageNamed,
    StageNamedBatch,
    StagingFacts,
)
from ...api.publish import PublishBatch
from ...api.transactions import Participant, Staged
from ...codec import Marks
from ...errors import (
    CommitInProgress,
    MalformedBatch,
    NotFound,
    Refused,
    StagingMismatch,
    UnknownStaging,
)
from ...model import check_name
from ...transactions.names import (
    SEQUENCE_MAX,
    STAGINGS_MAX,
    CommitName,
    NamedStaging,
    staging_number,
    staging_text,
)
from ...transactions.stagings import NAMED_NUMBER, TransactionKey
from ..partition import Now, Partition
from ..partition.batches import checked_batch
from ..partition.changes import Handler
from ..partition.staged_batches import client_batch_to_stage
from ..partition.staging import answered_count
from ..validation import require_valid
from ..walks import Slices
from .staged_messages import SEQUENCE_MAX as STAGED_SEQUENCE_MAX
from .staged_messages import check_sequence, placed, stage_encoded, stage_messages

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000
_TEXT_MAX = 250
_FINGERPRINT_MAX = 100
# A staging belongs to one attempt, which has one epoch.
_EPOCH = 0


def _checked_commit(name: str, sequence: int, writer: str) -> None:
    check_name(name, "commit")
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise Refused(
            f"the sequence of a commit is 0 to {SEQUENCE_MAX}, got {sequence}", limit=SEQUENCE_MAX
        )
    _checked_text("writer", writer, least=1)


def _checked_text(what: str, text: str, *, least: int, most: int = _TEXT_MAX) -> None:
    if not least <= len(text) <= most or not text.isprintable():
        raise Refused(
            f"{what} is {least} to {most} characters that can be printed, got {len(text)}",
            limit=most,
        )


def open_staging(node: "Node", command: OpenStaging, now: Now) -> str:
    name, sequence, writer = command.name, command.sequence, command.writer
    _checked_commit(name, sequence, writer)
    _checked_text("attempt", command.attempt, least=0)
    by = node.principal
    return staging_text(
        node.commits.open(name, sequence, writer, now, attempt=command.attempt, by=by)
    )


def stage(node: "Node", command: StageNamed, now: Now) -> Sequence[Staged]:
    staging_id = staging_number(command.staging)
    node.topic(command.topic)
    check_sequence(command)
    node.commits.owned(staging_id)
    if not command.messages and not command.delayed:
        return []

    def enrol(partitions: Sequence[Partition]) -> int:
        node.commits.enrol(staging_id, partitions, now)
        return NAMED_NUMBER

    return stage_messages(node, command, (staging_id, _EPOCH), enrol, now)


def stage_batch(node: "Node", command: StageNamedBatch, now: Now) -> Staged:
    staging_id = staging_number(command.staging)
    partition = node.partition(command.topic, command.partition)
    if not 0 <= command.sequence <= STAGED_SEQUENCE_MAX:
        raise Refused(f"a sequence is 0 to {STAGED_SEQUENCE_MAX}, got {command.sequence}")
    batch = checked_batch(command.batch, node.limits)
    head = batch.encoded.head
    if head.producer_id >= 0:
        raise MalformedBatch("a batch of a named commit has no producer: its staging is one")
    marks = Marks(producer_id=staging_id, producer_epoch=_EPOCH, first_sequence=command.sequence)
    encoded = client_batch_to_stage(partition, batch, now, marks=marks)
    node.commits.owned(staging_id)
    if node.bindings:
        require_valid(node, PublishBatch(command.topic, command.partition, command.batch))
    node.guard.admit_bytes(head.length, now)
    node.staging_quota.require_room(partition, encoded)
    node.commits.enrol(staging_id, (partition,), now)
    return stage_encoded(partition, encoded, NAMED_NUMBER, now)


def commit(node: "Node", command: CommitStagings, now: Now) -> NamedCommit:
    sequence, writer = command.sequence, command.writer
    _checked_commit(command.name, sequence, writer)
    _checked_text("fingerprint", command.fingerprint, least=0, most=_FINGERPRINT_MAX)
    if len(command.stagings) > STAGINGS_MAX:
        raise Refused(
            f"a commit has at most {STAGINGS_MAX} stagings, got {len(command.stagings)}",
            limit=STAGINGS_MAX,
        )
    if not node.commits.is_known(command.name) and command.stagings:
        # Says which one is gone, or whose it is.
        staging_id = staging_number(command.stagings[0].staging)
        staging = node.commits.owned(staging_id)
        raise StagingMismatch(staging_text(staging_id), f"is of {staging.name.name}")
    name = node.commits.find(command.name)
    node.commits.authorise(name)
    names = node.commits.home(command.name).machine.commit_names
    if not names.is_committed(name, sequence, writer):
        listed = {staging_number(one.staging): one.messages for one in command.stagings}
        if len(listed) < len(command.stagings):
            raise Refused("a commit names a staging twice")
        if not node.commits.commit(name, command, listed, now):
            return NamedCommit(name.name, sequence, name.sequence, False, False, ())
    names.require_same(name, sequence, command.fingerprint)
    is_last = sequence == name.sequence
    is_complete = not is_last or name.is_applied
    # A step of the commit that published these; another list for the same sequence publishes nothing.
    said = frozenset(one.staging for one in command.stagings)
    is_repeat = not is_last or name.unanswered != said
    if is_complete and not is_repeat:
        name.unanswered = None
    places = tuple(placed(node, name.places)) if is_last else ()
    return NamedCommit(name.name, sequence, name.sequence, is_repeat, is_complete, places)


def drop_stagings(node: "Node", command: DropStagings, now: Now) -> int:
    if len(command.stagings) > STAGINGS_MAX:
        raise Refused(
            f"at most {STAGINGS_MAX} stagings at once, got {len(command.stagings)}",
            limit=STAGINGS_MAX,
        )
    found: dict[int, NamedStaging] = {}
    for text in command.stagings:
        try:
            staging_id = staging_number(text)
            found[staging_id] = node.commits.owned(staging_id)
        except UnknownStaging:
            continue
    node.commits.drop(found.values(), now)
    return len(found)


def list_names(node: "Node", command: ListCommitNames, now: Now) -> Slices[list[CommitNameFacts]]:
    names: list[str] = []
    for home in [*node.commits.homes()]:
        for name in [*home.machine.commit_names.by_name]:
            if name > command.after:
                names.append(name)
            yield 1
    described: list[CommitNameFacts] = []
    for name in sorted(names):
        if len(described) >= command.limit:
            break
        with suppress(NotFound):
            described.append(_described(node, node.commits.find(name), now))
            yield described[-1].staging_count
        now = yield 1
    return described


def describe(node: "Node", command: DescribeCommitName, now: Now) -> CommitNameFacts:
    name = node.commits.find(command.name)
    return _described(node, name, now, with_stagings=True)


def reset(node: "Node", command: ResetCommitName, now: Now) -> CommitNameFacts:
    name = node.commits.find(command.name)
    if not name.is_applied:
        raise CommitInProgress(name.name, name.sequence)
    facts = _described(node, name, now)
    node.commits.reset(name, now)
    return facts


def _described(
    node: "Node", name: CommitName, now: Now, *, with_stagings: bool = False
) -> CommitNameFacts:
    stagings = [_staging(node, one, now) for one in name.stagings.values()]
    parts = [part for one in stagings for part in one.participants]
    is_new = name.sequence < 0
    return CommitNameFacts(
        name.name,
        node.keys.owner_name(name.owner),
        None if is_new else name.sequence,
        None if is_new else name.writer,
        None if is_new else max(0, now.wall_ns - name.at_ns) // _MS,
        name.is_applied,
        name.is_one_off,
        tuple(placed(node, name.places)),
        len(stagings),
        sum(one.messages for one in parts),
        sum(one.size_bytes for one in parts),
        name.fingerprint,
        tuple(stagings) if with_stagings else UNSET,
    )


def _staging(node: "Node", staging: NamedStaging, now: Now) -> StagingFacts:
    return StagingFacts(
        staging_text(staging.staging_id),
        staging.sequence,
        staging.writer,
        staging.attempt,
        max(0, now.wall_ns - staging.at_ns) // _MS,
        tuple(_participants(node, staging)),
    )


def _participants(node: "Node", staging: NamedStaging) -> Iterator[Participant]:
    for partition, staged in node.commits.serving(staging):
        size = sum(one.length for one in staged.stagings.values())
        answers = answered_count(partition, TransactionKey(staging.staging_id, NAMED_NUMBER))
        count = staged.message_count
        yield Participant(partition.topic, partition.number, count, size, answers)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    OpenStaging: open_staging,
    StageNamed: stage,
    StageNamedBatch: stage_batch,
    CommitStagings: commit,
    DropStagings: drop_stagings,
    ListCommitNames: list_names,
    DescribeCommitName: describe,
    ResetCommitName: reset,
}
